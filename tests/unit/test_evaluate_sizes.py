"""Sizes of answers and of changes: exact figures from hand-made records, and the code that graders
would take."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from report_runs import RIGHT, WRONG, record_of, verdict

from gradus.extract import extract
from trainer.config.run import DataConfig
from trainer.data.tasks import read_examples
from trainer.evaluate.breakdowns import details_of
from trainer.evaluate.verdicts import changed_lines, code_of
from trainer.rewards.judge import Record

TAGS = frozenset({"ocaml", "ml", "rust", "rs"})


def record(
    completion: str, task: str = "a", turn: int = 1, *, passed: bool = True, **more: Any
) -> Record:
    result = RIGHT if passed else WRONG
    made = record_of(
        result, mode="greedy", task_id=task, kind=None, sample=0, prompt="?", completion=completion
    )
    return made | more | ({"turn": turn} if turn > 1 else {})


def test_the_sizes_of_hand_made_answers_are_exactly_these() -> None:
    stub = 'let f x =\n  failwith "todo"\n'
    records = [
        record("```ocaml\nlet f x =\n  x + 1\n```", "a", stub=stub),  # one line for another
        record(
            "let f x =\n\n  let y = x in\n\n  y + 1", "b", stub=stub
        ),  # one goes, two come; blank ones do not count
        record("let f x = x + 1", "c"),
    ]
    found = details_of(records).sizes
    assert found is not None
    assert found.answer_lines is not None
    assert found.changed_lines is not None
    assert (found.answer_lines.p50, found.answer_lines.max, found.answer_lines.mean) == (2, 3, 2)
    assert (found.changed_lines.p50, found.changed_lines.max) == (2.5, 3)


def test_without_stubs_nothing_is_told_of_changes_and_stories_have_no_lines() -> None:
    found = details_of([record("let f x = x")]).sizes
    assert found is not None
    assert found.changed_lines is None
    story = verdict(0.5, grader="story@1")
    told = record_of(
        story, mode="greedy", task_id="a", kind=None, sample=0, prompt="?", completion="As a user"
    )
    assert details_of([told]).sizes is None


@pytest.mark.parametrize(
    ("before", "after", "changed"),
    [
        ("a\nb", "a\nb", 0),
        ("a\nb", "b\na", 0),
        ("a", "a\na", 1),
        ("a\nb\nc", "a\nx\nc", 2),
        ("", "a\nb", 2),
        ("a\n\n  b", "a\nb\n\n\n", 0),
        ("", "", 0),
    ],
)
def test_lines_that_only_one_side_has_are_changes(before: str, after: str, changed: int) -> None:
    assert changed_lines(before, after) == changed
    assert changed_lines(after, before) == changed


def test_texts_made_to_be_slow_are_compared_at_once() -> None:
    many = "a\nb\n" * 100_000
    assert changed_lines(many, many[2:]) == 1


COMPLETIONS = [
    "let f = 1",
    "",
    "```ocaml\nlet f = 1\n```",
    "Here:\n```ocaml\nlet f = 1\n```\nand\n```ocaml\nlet g = 2\n```\nDone.",
    "```\nlet f = 1\n```\n```python\nprint()\n```",
    "```python\nprint()\n```\n```text\nhm\n```",
    "```rust\nfn f() {}\n```\n```\nfn g() {}\n```",
    "```rust,ignore\nfn f() {}\n```",
    "```{.rust}\nfn f() {}\n```",
    "~~~ml\nlet f = 1\n~~~",
    '````ocaml\nlet f = "\n```\n"\n````',
    "```ocaml\nlet f = 1",
    "  ```ocaml\n  let f = 1\n  ```",
    "```ocaml\n\n```\n```ocaml\n```",
    "```ocaml let f = 1```",
    "```let f = 1```",
    "<think>\n```ocaml\nno\n```\n</think>\n```ocaml\nyes\n```",
    "<think> and so on\n```ocaml\nno\n```",
    "out </think> in </think> yes",
    "```ocaml\r\nlet f = 1\r\n```",
    "text ```ocaml\nlet f = 1\n```",
]


@pytest.mark.parametrize("completion", COMPLETIONS)
def test_the_code_of_a_completion_is_what_graders_take_for_the_answer(completion: str) -> None:
    assert code_of(completion, TAGS).strip() == extract(completion, TAGS).text.strip()


@pytest.mark.parametrize(
    "text", ["```" * 100_000, "`" * 200_000, " " * 200_000 + "```", "```ocaml\n" * 50_000]
)
def test_fences_made_to_be_slow_are_read_at_once(text: str) -> None:
    assert isinstance(code_of(text, TAGS), str)


@pytest.mark.parametrize(
    ("stub", "read"), [("let f = 0", "let f = 0"), ("  ", None), (None, None), (7, "7")]
)
def test_the_stub_of_a_task_is_read_with_it(tmp_path: Path, stub: Any, read: str | None) -> None:
    file = tmp_path / "tasks.jsonl"
    file.write_text(
        json.dumps({"id": "a", "prompt": "p", "tests": "let () = assert true", "stub": stub}) + "\n"
    )
    (example,), _ = read_examples(DataConfig(dataset=str(file)), str(file), "ocaml")
    assert example.stub == read
