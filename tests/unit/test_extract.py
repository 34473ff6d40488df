"""Completion -> answer: which part is the code, what is flagged, and that no completion makes it slow."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradus.extract import Answer, extract

TAGS = frozenset({"ocaml", "ml"})
DEFINES_F = re.compile(r"\blet\s+(?:rec\s+)?f\b")
CODE = "let f x = x + 1"


def answer(completion: str) -> Answer:
    return extract(completion, TAGS, DEFINES_F)


@pytest.mark.parametrize(
    "completion",
    [
        CODE,
        f"\n\n  {CODE}\n",
        f"```ocaml\n{CODE}\n```",
        f"```OCaml\n{CODE}\n```",
        f"```ml\n{CODE}\n```",
        f"```language:ocaml\n{CODE}\n```",
        f"```{{.ocaml}}\n{CODE}\n```",
        f'```ocaml title="f.ml"\n{CODE}\n```',
        f"``` ocaml\n{CODE}\n```",
        f"```\n{CODE}\n```",
        f"```ocaml\n\n{CODE}\n\n```",
        f"~~~ocaml\n{CODE}\n~~~",
        f"````ocaml\n{CODE}\n````",
        f"```ocaml\r\n{CODE}\r\n```\r\n",
        f"```ocaml {CODE}```",
        f"Use ```{CODE}``` for it.",
        f"Use ```ml {CODE}``` for it.",
        f"Here:\n```ocaml\n{CODE}\n```\nIt adds one.",
        f"```ocaml\n{CODE}",
        f"<think>let f x = 0</think>{CODE}",
        f"<think>\n```ocaml\nlet f x = 0\n```\n</think>\n```ocaml\n{CODE}\n```",
    ],
)
def test_the_code_is_found_however_it_is_dressed(completion: str) -> None:
    assert answer(completion).text == CODE


def test_a_tagged_block_wins_over_untagged_and_other_languages() -> None:
    found = answer(f"```\nlet f = 0\n```\n```ocaml\n{CODE}\n```\n```python\ndef f(x): pass\n```\n```\nlet f = 9\n```")
    assert found.text == CODE
    assert found.blocks == 4


def test_an_untagged_block_wins_over_other_languages() -> None:
    assert answer(f"```bash\nlet f=1\n```\n```\n{CODE}\n```\n```python\nlet f = 2\n```").text == CODE


def test_a_block_of_another_language_is_taken_when_there_is_no_better() -> None:
    assert answer(f"```reasonml\n{CODE}\n```").text == CODE


def test_of_several_blocks_the_last_that_defines_the_asked_name_wins() -> None:
    first_draft, usage = "let f x = x", "let () = print_int (f 1)"
    completion = "\n".join(f"```ocaml\n{code}\n```" for code in (first_draft, CODE, usage))
    assert answer(completion).text == CODE


def test_of_several_blocks_none_of_which_defines_it_the_last_wins() -> None:
    assert answer("```ocaml\nlet a = 1\n```\n```ocaml\nlet b = 2\n```").text == "let b = 2"


def test_without_declared_names_the_last_block_wins() -> None:
    assert extract(f"```ocaml\n{CODE}\n```\n```ocaml\nlet g = 1\n```", TAGS).text == "let g = 1"


def test_empty_blocks_do_not_count_as_code() -> None:
    assert answer(f"```ocaml\n{CODE}\n```\n```ocaml\n\n```").text == CODE


@pytest.mark.parametrize("completion", ["", " \n\t", "```ocaml\n```", "```ocaml", "```"])
def test_an_empty_completion_has_an_empty_answer(completion: str) -> None:
    assert answer(completion).text == ""


def test_a_shorter_fence_inside_a_longer_one_is_code() -> None:
    code = f"(* so:\n```\nf 1\n```\n*)\n{CODE}"
    assert answer(f"````ocaml\n{code}\n````").text == code


def test_a_fence_of_the_other_kind_does_not_close_a_block() -> None:
    assert answer(f"```ocaml\n{CODE}\n~~~\n```").text == f"{CODE}\n~~~"


def test_an_inline_fence_may_hold_a_single_word() -> None:
    assert answer("It is ```x```.").text == "x"


def test_backticks_inside_a_line_of_a_block_are_code() -> None:
    code = 'let f x = x + 1 (* see ```g``` *)\nlet s = "```"'
    assert answer(f"```ocaml\n{code}\n```").text == code


def test_indentation_inside_a_block_is_kept() -> None:
    code = "let f x =\n  let y = x in\n\ty + 1"
    assert answer(f"```ocaml\n{code}\n```").text == code


def test_a_fence_that_is_never_closed_runs_to_the_end_and_is_flagged() -> None:
    assert answer(f"```ocaml\n{CODE}").flags == ("extract:unclosed_fence",)
    assert answer(f"```ocaml\n{CODE}\n```").flags == ()


def test_thinking_that_never_ends_is_no_answer_and_is_flagged() -> None:
    found = answer(f"<think>Let me see.\n```ocaml\n{CODE}\n```")
    assert found.text == ""
    assert found.flags == ("extract:unclosed_think",)


def test_what_stands_before_the_last_end_of_thinking_is_not_looked_at() -> None:
    found = answer(f"```ocaml\nlet f x = 0\n```</think> hm </think>\n```ocaml\n{CODE}\n```")
    assert (found.text, found.blocks, found.prose_chars) == (CODE, 1, 0)


def test_prose_around_and_behind_the_code_is_measured() -> None:
    found = answer(f"Before.\n```ocaml\n{CODE}\n```\nbetween\n```ocaml\nlet g = 1\n```\n  After it.  \n")
    assert found.blocks == 2
    assert found.trailing_chars == len("After it.")
    assert found.prose_chars == len("Before.") + len("between") + len("After it.")


def test_a_completion_without_fences_is_all_code_and_no_prose() -> None:
    assert answer(CODE) == Answer(CODE, blocks=0, prose_chars=0, trailing_chars=0)


@given(st.text(alphabet="`~ \t\nab<>/think'letf=1\r", max_size=200))
def test_no_completion_breaks_extraction_and_none_gains_text(completion: str) -> None:
    found = answer(completion)
    assert found.text in completion.replace("\r\n", "\n")
    assert 0 <= found.trailing_chars <= found.prose_chars <= len(completion)


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="`~\r<"), max_size=200))
def test_all_code_without_fences_survives_being_fenced(code: str) -> None:
    assert answer(f"```ocaml\n{code}\n```").text == code.strip("\n")


SLOW_FOR_BACKTRACKING: dict[str, Callable[[int], str]] = {
    "a fence and spaces": lambda n: "```" + " " * n + "`",
    "a fence and one long word": lambda n: "```" + "a" * n + "`",
    "an inline fence and spaces": lambda n: "x ```a" + " " * n + "`",
    "an inline fence and words": lambda n: "x ```" + "a " * (n // 2),
    "only backticks": lambda n: "`" * n,
    "fences of growing length": lambda n: "\n".join("`" * k for k in range(3, int((2 * n) ** 0.5))),
    "fences that close nothing": lambda n: "~~~~\n" + "~~~\n" * (n // 4),
    "let and spaces": lambda n: "```ocaml\nlet" + " " * n + "\n```",
    "let rec and spaces": lambda n: "```ocaml\n" + "let rec " * (n // 16) + " " * (n // 2) + "\n```",
    "only new lines": lambda n: "\n" * n,
}


@pytest.mark.parametrize("text", SLOW_FOR_BACKTRACKING.values(), ids=SLOW_FOR_BACKTRACKING.keys())
def test_the_longest_completions_take_no_time(text: Callable[[int], str]) -> None:
    before = time.process_time()
    answer(text(1_000_000))
    assert time.process_time() - before < 5


def test_a_fence_line_of_any_length_is_read_quickly() -> None:
    before = time.process_time()
    extract("```rust " + "a.," * 100_000 + "\nfn f() {}\n```\n```rust src/a.rs\n```", {"rust"})
    assert time.process_time() - before < 5
