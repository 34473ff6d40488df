"""Layouts of real chat formats: the code is found in each, and marks, attacks and long texts change
nothing of that."""

from __future__ import annotations

import html
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from gradus.code_blocks import Layout, Syntax
from gradus.extract import extract
from services.graders.ocaml.syntax import SYNTAX as OCAML
from services.graders.rust.answer import _PATH
from services.graders.rust.answer import _SYNTAX as RUST
from services.graders.story.parser import read

CASES = Path(__file__).parents[1] / "cases" / "extraction"
LAYOUTS = [json.loads(line) for line in (CASES / "layouts.jsonl").read_text().splitlines()]
STORIES = [layout for layout in LAYOUTS if layout["story"]]
ATTACKS: list[dict[str, Any]] = yaml.safe_load((CASES / "attacks.yaml").read_text())
TAGS = {"ocaml": frozenset({"ocaml", "ml"}), "rust": frozenset({"rust", "rs"})}
SYNTAXES: dict[str, Syntax] = {"ocaml": OCAML, "rust": RUST}
CODES = yaml.safe_load((CASES / "codes.yaml").read_text())
DRAFTS = {"ocaml": "let f x = 0", "rust": "pub fn f(x: i64) -> i64 { 0 }"}
STORY = (
    "As a shopper, I want to pay by card, so that I need no cash.\n"
    "As a shop owner, I want to see what was sold today, so that I can reorder in time."
)
DRAFT_STORY = "As a thinker, I want to think, so that I know."


def dress(layout: dict[str, Any], tag: str, code: str, draft: str) -> str:
    lines = code.split("\n")
    values = {
        "tag": tag,
        "code": code,
        "draft": draft,
        "html": html.escape(code),
        "indented": "\n".join("    " + line for line in lines),
        "quoted": "\n".join("> " + line for line in lines),
        "quoted0": "\n".join(">" + line for line in lines),
        "quoted2": "\n".join("> > " + line for line in lines),
        "json": json.dumps({"code": code}),
        "json_reasoning": json.dumps({"reasoning": "Twice.", "answer": code}),
        "json_tool": json.dumps({"name": "submit", "arguments": {"code": code}}),
        "json_text": json.dumps(code),
    }
    text = str(layout["text"])
    for name, value in values.items():
        text = text.replace("{" + name + "}", value)
    return text


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: str(layout["layout"]))
@pytest.mark.parametrize("language", ["ocaml", "rust"])
@pytest.mark.parametrize("number", [0, 1, 2])
def test_code_is_found_in_every_layout(layout: dict[str, Any], language: str, number: int) -> None:
    code = CODES[language][number]
    completion = dress(layout, language, code, DRAFTS[language])
    answer = extract(completion, TAGS[language], SYNTAXES[language], lambda: {"f"})
    expected = [line.strip() for line in code.split("\n")]
    assert [line.strip() for line in answer.text.split("\n")] == expected


@pytest.mark.parametrize("layout", STORIES, ids=lambda layout: str(layout["layout"]))
def test_stories_are_found_in_the_layouts_that_hold_text(layout: dict[str, Any]) -> None:
    stories = read(dress(layout, "text", STORY, DRAFT_STORY), 20_000, 200)
    assert [story.role for story in stories.stories] == ["shopper", "shop owner"]


def test_there_are_enough_layouts_and_each_says_where_it_comes_from() -> None:
    assert len({layout["layout"] for layout in LAYOUTS}) == len(LAYOUTS) >= 42
    assert all(layout["source"] for layout in LAYOUTS)
    assert len(STORIES) >= 20


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: str(attack["name"]))
def test_of_several_answers_one_counts_and_marks_in_code_are_code(attack: dict[str, Any]) -> None:
    answer = extract(attack["completion"], TAGS["ocaml"], OCAML, lambda: {"f"})
    assert answer.text == attack["answer"]
    assert list(answer.flags) == attack.get("flags", [])


GIVEN = {"src/lib.rs": "mod step;\npub use step::run;", "src/step.rs": "pub fn run() {}"}
ROOT = GIVEN["src/lib.rs"]
STEP = "pub fn run() -> i64 { 2 }"


@pytest.mark.parametrize(
    ("completion", "given", "text", "files"),
    [
        (f"```rust\n// src/step.rs\n{STEP}\n```", GIVEN, ROOT, {"src/step.rs"}),
        (f"```rust src/step.rs\n{STEP}\n```", GIVEN, ROOT, {"src/step.rs"}),
        (f"```rust:src/step.rs\n{STEP}\n```", GIVEN, ROOT, {"src/step.rs"}),
        (f'```rust title="src/step.rs"\n{STEP}\n```', GIVEN, ROOT, {"src/step.rs"}),
        (f"```rust\n// File: src/step.rs\n{STEP}\n```", GIVEN, ROOT, {"src/step.rs"}),
        (f"```rust\n/* src/step.rs */\n{STEP}\n```", GIVEN, ROOT, {"src/step.rs"}),
        (f"**src/step.rs**:\n```rust\n{STEP}\n```", GIVEN, ROOT, {"src/step.rs"}),
        (f"`step.rs`:\n\n```rust\n{STEP}\n```", GIVEN, ROOT, {"src/step.rs"}),
        (f"```rust\n{STEP}\n```", GIVEN, STEP, set()),
        (f"```rust\n// src/lib.rs\n{STEP}\n```", GIVEN, f"// src/lib.rs\n{STEP}", set()),
        (f"```rust\n// solution.rs\n{STEP}\n```", GIVEN, f"// solution.rs\n{STEP}", set()),
        (f"```rust\n// src/new.rs\n{STEP}\n```", {}, f"// src/new.rs\n{STEP}", set()),
        (
            f"```rust src/step.rs\n{STEP}\n```\nUse:\n```rust\nlet two = solution::run();\n```",
            GIVEN, ROOT, {"src/step.rs"},
        ),
        (
            f"```rust src/step.rs\n{STEP}\n```\n```rust src/new.rs\npub fn g() {{}}\n```",
            GIVEN, ROOT, {"src/step.rs", "src/new.rs"},
        ),
        (
            f"```rust src/lib.rs\nmod step;\n```\n```rust src/step.rs\n{STEP}\n```",
            GIVEN, "mod step;", {"src/step.rs"},
        ),
    ],
)  # fmt: skip
def test_a_block_that_names_a_file_is_that_file(
    completion: str, given: dict[str, str], text: str, files: set[str]
) -> None:
    layout = Layout("src/lib.rs", _PATH, "src/", given)
    answer = extract(completion, TAGS["rust"], RUST, lambda: {"run"}, layout)
    assert (answer.text, set(answer.files)) == (text, files)


REPEATED: dict[str, Callable[[int], str]] = {
    "openings of thinking": lambda n: "<think>" * n,
    "ends of thinking": lambda n: "</think>\n" * n,
    "marks in strings": lambda n: 'let x = "</think>"\n' * n,
    "answers": lambda n: "<answer>x</answer>" * n,
    "openings of answers": lambda n: "<answer>\n<solution>" * n,
    "answers with fences": lambda n: "<answer>\n```ocaml\nx\n```\n</answer>" * n,
    "blocks closed late": lambda n: "```ocaml\nlet x=1```\n" * n,
    "ends on lines of code": lambda n: "```ocaml\n" + "x```\n" * n,
    "ends in comments": lambda n: "```ocaml\n" + "(* x```\n*)\n" * n,
    "quoted fences": lambda n: "> ```ocaml\n> x\n> ```\n\n" * n,
    "signs of quotes": lambda n: ">" * n + "\n> a" * n,
    "channels": lambda n: "<|channel|>final<|message|>" * n,
    "turns": lambda n: "<|im_start|>assistant\nx<|im_end|>\n" * n,
    "turns of others": lambda n: "<|im_start|>user\nx<|im_end|>\n" * n,
    "HTML": lambda n: "<pre><code>let f=1</code></pre>" * n,
    "openings of HTML": lambda n: "<pre>" * n,
    "boxes": lambda n: "\\boxed{x}\\boxed{" * n,
    "JSON": lambda n: '{"code":' * n,
    "fences of Markdown": lambda n: "```markdown\n" * n,
    "openings of fences": lambda n: "```ocaml\n" * n,
    "fences behind words": lambda n: "a ```ocaml\n" * n,
    "file names": lambda n: "src/a.rs:\n" * n + "```",
    "reasoning": lambda n: "<reasoning>x</reasoning>" * n,
    "ends of turns": lambda n: "let x = 1 <|im_end|> y\n" * n,
}


def count_events(completion: str) -> int:
    """Return the lines of Python that extraction runs: work that no busy machine changes."""
    lines = 0

    def count(*_: object) -> Any:
        nonlocal lines
        lines += 1
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        extract(completion, TAGS["ocaml"], OCAML, lambda: {"f"})
    finally:
        sys.settrace(before)
    return lines


@pytest.mark.parametrize("text", REPEATED.values(), ids=REPEATED.keys())
def test_twice_a_text_takes_at_most_twice_the_steps(text: Callable[[int], str]) -> None:
    once, twice = count_events(text(150)), count_events(text(300))
    assert twice <= 2.2 * once + 200
