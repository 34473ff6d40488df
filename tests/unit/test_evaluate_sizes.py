"""Sizes of answers: exact figures from hand-made records, and the code that graders
would take."""

from __future__ import annotations

from typing import Any

import pytest
from report_runs import RIGHT, WRONG, record_of, verdict

from gradus.descriptions import describe_offline
from gradus.extract import extract
from trainer.evaluate.breakdowns import compute_details
from trainer.evaluate.verdicts import extract_code
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
    records = [
        record("```ocaml\nlet f x =\n  x + 1\n```", "a"),
        record("let f x =\n\n  let y = x in\n\n  y + 1", "b"),  # blank lines do not count
        record("let f x = x + 1", "c"),
    ]
    found = compute_details(records, describe_offline("ocaml")).answer_lines
    assert found is not None
    assert (found.p50, found.max, found.mean) == (2, 3, 2)


def test_stories_have_no_lines() -> None:
    story = verdict(0.5, grader="story@1")
    told = record_of(
        story, mode="greedy", task_id="a", kind=None, sample=0, prompt="?", completion="As a user"
    )
    assert compute_details([told], describe_offline("story")).answer_lines is None


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
    assert extract_code(completion, TAGS).strip() == extract(completion, TAGS).text.strip()


@pytest.mark.parametrize(
    "text", ["```" * 100_000, "`" * 200_000, " " * 200_000 + "```", "```ocaml\n" * 50_000]
)
def test_fences_made_to_be_slow_are_read_at_once(text: str) -> None:
    assert isinstance(extract_code(text, TAGS), str)
