"""Completion -> answer: which part is the code, what is flagged, and that no completion makes it
slow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradus.extract import Answer, extract
from services.graders.ocaml.syntax import SYNTAX, find_definitions
from tests.growth import check_growth

TAGS = frozenset({"ocaml", "ml"})
CODE = "let f x = x + 1"


def answer(completion: str) -> Answer:
    return extract(completion, TAGS, SYNTAX, lambda: {"f"})


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
        f"<think>Hm.</think>```ocaml\n{CODE}\n```",
        f"<|channel|>final<|message|>```ocaml\n{CODE}\n```<|return|>",
        f"\ufeff```ocaml\n{CODE}\n```",
        f"```ocaml\n{CODE}\n```\u00a0",
    ],
)
def test_the_code_is_found_however_it_is_dressed(completion: str) -> None:
    assert answer(completion).text == CODE


def test_a_tagged_block_wins_over_untagged_and_other_languages() -> None:
    found = answer(
        f"```\nlet f = 0\n```\n```ocaml\n{CODE}\n```\n```python\ndef f(x): pass\n```\n```\nlet f ="
        " 9\n```"
    )
    assert found.text == CODE
    assert found.blocks == 4


def test_an_untagged_block_wins_over_other_languages() -> None:
    assert (
        answer(f"```bash\nlet f=1\n```\n```\n{CODE}\n```\n```python\nlet f = 2\n```").text == CODE
    )


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
    found = answer(
        f"Before.\n```ocaml\n{CODE}\n```\nbetween\n```ocaml\nlet g = 1\n```\n  After it.  \n"
    )
    assert found.blocks == 2
    assert found.trailing_chars == len("After it.")
    assert found.prose_chars == len("Before.") + len("between") + len("After it.")


def test_a_completion_without_fences_is_all_code_and_no_prose() -> None:
    assert answer(CODE) == Answer(CODE, blocks=0, prose_chars=0, trailing_chars=0)


def fenced(*blocks: str) -> str:
    return "\nand\n".join(f"```ocaml\n{block}\n```" for block in blocks)


@pytest.mark.parametrize(
    ("blocks", "expected"),
    [
        (["let two = 2", "let f x = two * x"], [0, 1]),
        (["let f x = two * x", "let two = 2"], [1, 0]),
        (["let a = 1", "let b = a", "let f x = b + x"], [0, 1, 2]),
        (["let f x = b + x", "let b = a", "let a = 1"], [2, 1, 0]),
        (["let g x = h x", "let f x = g x", "let h x = x"], [2, 0, 1]),
        (["let a = 1", "let b = a", "let f x = a + b + x"], [0, 1, 2]),
        (["let a = 1", "let f x = x"], [1]),
        (["let x = 5", "let f x = x", "let y = f 1"], [0, 1]),
        (["let f x = x + 1", "let x = 5\nlet () = print_int (f x)"], [0]),
        (["let x = 5\nlet () = print_int (f x)", "let f x = x + 1"], [1]),
        (["let f x = x", "let f x = x + 1"], [1]),
        (["let g x = x\nlet f x = g x", "let f x = (* no g *) x + 1"], [1]),
        (["type t = Leaf | Node of t", "let f = function Leaf -> 0 | Node _ -> 1"], [0, 1]),
        (["type t = {\n  mutable size : int;\n}", "let f s = s.size"], [0, 1]),
        (["type a = A\nand b =\n  | B of a\n\nlet c = 1", "let f = B A"], [0, 1]),
        (["exception Empty", "let f () = raise Empty"], [0, 1]),
        (["let ( +++ ) a b = a + b", "let f a = a +++ 1"], [0, 1]),
        (["module M = struct\n  let a = 1\nend", "let f x = x + M.a"], [0, 1]),
        (["  let two = 2", "  let f x = two * x"], [0, 1]),
    ],
)
def test_blocks_are_joined_by_the_names_that_are_needed(
    blocks: list[str], expected: list[int]
) -> None:
    assert answer(fenced(*blocks)).text == "\n".join(blocks[at] for at in expected)


def test_what_a_text_defines_at_its_top_level() -> None:
    code = (
        "let rec a = 1 and b = 2\ntype 'a d = E | F of int\ntype ('a, 'b) g = { h : int; i : 'a }\n"
        "  let j = 1"
    )
    assert find_definitions(code) == {"a", "d", "E", "F", "g", "h", "i"}


@pytest.mark.parametrize(
    "code",
    [
        "(** So:\n```\nf 1\n```\n*)\nlet f x = x + 1",
        "(* So:\n```ocaml\nf 1\n```\n*)\nlet f x = x + 1",
        'let s = "\n```\n"\nlet f x = x + 1',
        "let s = {|\n```\n|}\nlet f x = x + 1",
        "let c = '\"'\nlet f x = x + 1",
        'let s = "</think>"\nlet f x = x + 1',
        "(* <think> *)\nlet f x = x + 1",
    ],
)
@pytest.mark.parametrize(
    "before", ["", "<think>Hm.</think>\n", "<think>\n```ocaml\nlet f x = 0\n```\n</think>\n"]
)
def test_fences_and_thinking_in_comments_and_literals_are_code(code: str, before: str) -> None:
    assert answer(f"{before}```ocaml\n{code}\n```\nSo it is.") == Answer(
        code, 1, len("So it is."), len("So it is.")
    )


@pytest.mark.parametrize(
    "broken", ['let s = "abc', "let f = List.fold_left (*) 1", "(* never closed"]
)
def test_a_comment_or_literal_that_is_not_closed_swallows_no_other_block(broken: str) -> None:
    assert answer(f"{fenced(broken)}\nNo:\n{fenced(CODE + ' (* a *)')}").text == CODE + " (* a *)"
    thinking = f"<think>{fenced(broken)}</think>"
    assert answer(f"{thinking}\n{fenced(CODE + ' (* a *)')}").text == CODE + " (* a *)"


@pytest.mark.parametrize(
    "end",
    ["<|im_end|>", "</s>", "<eos>", " <|eot_id|>", "<end_of_turn>\n", "<|im_end|><|endoftext|>\n"],
)
def test_the_end_of_a_turn_is_no_code(end: str) -> None:
    assert answer(f"```ocaml\n{CODE}\n```{end}") == Answer(CODE, 1)
    assert answer(f"```ocaml\n{CODE}\n```{end}\nIt adds.").text == CODE
    assert answer(f"{CODE}{end}").text == CODE


@given(st.text(alphabet="`~ \t\nab<>/think'letf=1\r", max_size=200))
def test_no_completion_breaks_extraction_and_none_gains_text(completion: str) -> None:
    found = answer(completion)
    assert Counter(found.text.split()) <= Counter(completion.split())
    assert 0 <= found.trailing_chars <= found.prose_chars <= len(completion)


@given(
    st.text(
        alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="`~\r<"), max_size=200
    )
)
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
    "let rec and spaces": lambda n: (
        "```ocaml\n" + "let rec " * (n // 16) + " " * (n // 2) + "\n```"
    ),
    "only new lines": lambda n: "\n" * n,
    "only tabs": lambda n: "\t" * n,
    "blocks": lambda n: "```ocaml\nlet f = g\n```\n" * (n // 23),
    "blocks with comments that are not closed": lambda n: "```ocaml\n(*\n```\n" * (n // 16),
    "blocks with comments around their ends": lambda n: "```ocaml\n(*\n```\n*)\n```\n" * (n // 23),
    "blocks that mention each other": lambda n: "".join(
        f"```ocaml\nlet f{k} = f{k + 1}\n```\n" for k in range(n // 33)
    ),
    "drafts of one name": lambda n: "```ocaml\nlet f = f\nlet g = f\n```\n" * (n // 34),
    "ends of turns": lambda n: "<eos>" * (n // 5) + "x",
    "ends of thinking in literals": lambda n: '```ocaml\n"</think>"\n```\n' * (n // 24),
    "empty literals": lambda n: "```ocaml\n" + '""' * (n // 2) + "\n```",
    "types": lambda n: (
        "```ocaml\n" + "type t = A |\n" * (n // 13) + "\n```\n```ocaml\nlet f = 1\n```"
    ),
}


@pytest.mark.parametrize("text", SLOW_FOR_BACKTRACKING.values(), ids=SLOW_FOR_BACKTRACKING.keys())
def test_the_longest_completions_cost_as_their_length(text: Callable[[int], str]) -> None:
    def prepare(size: int) -> Callable[[], object]:
        completion = text(size)
        return lambda: answer(completion)

    check_growth(prepare, 1_000_000)


def test_a_fence_line_of_any_length_is_read_in_linear_time() -> None:
    def prepare(size: int) -> Callable[[], object]:
        line = "```rust " + "a.," * size
        completion = f"{line}\nfn f() {{}}\n```\n```rust src/a.rs\n```"
        return lambda: extract(completion, {"rust"})

    check_growth(prepare, 100_000)
