"""Signs of degenerate completions: each fires on what it is for, and none on an ordinary right
answer."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from gradus.extract import extract
from gradus.tasks.ocaml import OcamlTask
from services.degenerate import find_degenerate_flags, is_stub
from services.graders.ocaml.grader import COMMENT
from services.graders.ocaml.syntax import SYNTAX, find_needed_names
from tests.growth import check_growth

FACTORIAL = "let rec fact n =\n  if n <= 1 then 1\n  else n * fact (n - 1)"


def flags(completion: str) -> set[str]:
    answer = extract(completion, OcamlTask.FENCES)
    return set(
        find_degenerate_flags(
            answer, uncommented=COMMENT.sub("", answer.text), tests_passed=0, passed=False
        )
    )


def stub(code: str, tests_passed: int = 0) -> bool:
    return is_stub(code, uncommented=COMMENT.sub("", code), tests_passed=tests_passed)


@pytest.mark.parametrize(
    "completion",
    [
        FACTORIAL,
        f"```ocaml\n{FACTORIAL}\n```",
        f"Here is a recursive solution.\n```ocaml\n{FACTORIAL}\n```\nIt calls itself.",
        f"<think>{'I wonder how this works. ' * 40}</think>\n```ocaml\n{FACTORIAL}\n```",
        f"First:\n```ocaml\nlet f = 1\n```\nBetter:\n```ocaml\n{FACTORIAL}\n```",
        (
            "let f = function 1 -> 2 | 2 -> 4 | 3 -> 6 | 4 -> 8 | 5 -> 10 | 6 -> 12 | 7 -> 14 | 8"
            " -> 16 | 9 -> 18 | _ -> 0"
        ),
        "let f x = x",
    ],
)
def test_ordinary_answers_are_not_degenerate(completion: str) -> None:
    assert flags(completion) == set()


@pytest.mark.parametrize(
    "completion", ["", "  \n ", "```ocaml\n```", "(* only a comment *)", "(* never closed"]
)
def test_an_answer_without_code_is_empty(completion: str) -> None:
    assert flags(completion) == {"degenerate:empty"}


def test_the_same_lines_over_and_over_are_repetition() -> None:
    assert flags("let f x = x + 1\n" * 100) == {"degenerate:repetition"}
    assert flags("let x = 1 in " * 100) == {"degenerate:repetition"}


def test_short_answers_and_long_varied_ones_are_no_repetition() -> None:
    assert flags("let f x = x\n" * 8) == set()
    words = random.Random(1)
    assert (
        flags(
            "\n".join(
                f"let v{words.randrange(10**6)} = {words.randrange(10**6)}" for _ in range(200)
            )
        )
        == set()
    )


def test_more_prose_than_code_is_prose_but_a_remark_is_not() -> None:
    talk = (
        "This function takes a number and gives back its factorial, which it computes by calling"
        " itself. "
    )
    assert flags(f"{talk * 6}\n```ocaml\nlet f x = x\n```") == {"degenerate:prose"}
    assert flags(f"{talk * 5}\n```ocaml\nlet f x = x\n```") == set()
    assert flags(f"{talk}\n```ocaml\n{FACTORIAL}\n\n(* {'x' * 200} *)\n```\n{talk}") == set()


def test_more_than_five_blocks_are_code_spam() -> None:
    block = "```ocaml\nlet f x = x\n```\n"
    assert flags(block * 5) == set()
    assert flags(block * 6) == {"degenerate:code_spam"}


@pytest.mark.parametrize(
    "code",
    [
        'let f x = failwith "todo"',
        "let f x = assert false",
        "let f x = 0 (* placeholder *)",
        "(* Replace with your own *)\nlet f x = x",
        'let f x = raise (Failure "not implemented")',
        "let f x =\n  (* your code here *)\n  x",
        "let f x =\n  (* TODO: implement the rest *)\n  x",
    ],
)
def test_a_few_lines_that_only_pretend_are_a_stub(code: str) -> None:
    assert stub(code)


@pytest.mark.parametrize(
    "code",
    [
        "let f x = x + 1",
        "let f x = raise Not_found",
        FACTORIAL,
        'let f x =\n  if x < 0 then failwith "negative"\n  else x',
        "let f = function\n  | 0 -> 1\n  | 1 -> 1\n  | n when n > 1 -> n\n  | _ -> assert false",
    ],
)
def test_code_that_does_something_is_no_stub(code: str) -> None:
    assert not stub(code)


def test_what_passes_is_neither_prose_nor_spam_nor_a_stub() -> None:
    answer = extract(
        "Well. " * 200 + '```ocaml\nlet f x = failwith "no"\n```\n' * 9, OcamlTask.FENCES
    )
    assert find_degenerate_flags(answer, uncommented=answer.text, tests_passed=1, passed=True) == ()
    found = find_degenerate_flags(answer, uncommented=answer.text, tests_passed=0, passed=False)
    assert set(found) == {"degenerate:prose", "degenerate:code_spam", "degenerate:stub"}


PARTIAL = [
    'let f x = if x = 0 then 1 else failwith "not implemented"',
    "let f = function 0 -> 1 | 1 -> 1 | _ -> assert false",
    "pub fn f(x: i64) -> i64 { match x { 0 => 1, _ => todo!() } }",
]


@pytest.mark.parametrize("code", PARTIAL)
def test_work_that_fails_in_one_branch_is_no_stub_when_it_passes_a_test(code: str) -> None:
    assert not stub(code, tests_passed=1)
    assert stub(code)


@pytest.mark.parametrize(
    "code",
    [
        'let f _ = failwith "no"',
        "let f = function _ -> assert false",
        'let f x = if x = 0 then failwith "a" else failwith "b"',
        "let f _ = 2 (* placeholder *)",
        "pub fn f(x: i64) -> i64 { todo![] }",
    ],
)
def test_what_fails_in_every_branch_is_a_stub_whatever_it_passes(code: str) -> None:
    assert stub(code, tests_passed=1)


REPEATED = (
    *(
        "a",
        " ",
        "\n",
        "(*",
        "*)",
        '"',
        "'",
        "{|",
        "\n{|",
        '\n"',
        "```ocaml\n",
        "```\n",
        "`",
        "<think>",
        "</think>",
        "<eos>",
        "<|im_end|>",
    ),
    *(
        'let x = "</think>"\n',
        "```ocaml\n(* ```\n",
        "let a = 1\n",
        "type t =\n| A\n",
        "{ a : ",
        "| ",
        "let (",
        "type ('a ",
        "if ",
        "->",
    ),
    *(
        "failwith",
        "todo ",
        "assert false\n",
        "\r\n",
        "é",
        "~~~\n```\n",
        "'\\n'",
        "// a.b\n",
        "{aaaaaaaa|",
    ),
)


@pytest.mark.parametrize("form", ["{}", "```ocaml\n{}\n```"], ids=["bare", "fenced"])
@pytest.mark.parametrize("piece", REPEATED)
def test_whatever_an_ocaml_completion_repeats_costs_as_its_length(piece: str, form: str) -> None:
    task = OcamlTask(tests="let () = assert (double 2 = 4)")

    def read(completion: str) -> None:
        answer = extract(completion, task.FENCES, SYNTAX, lambda: find_needed_names(task))
        uncommented = COMMENT.sub("", answer.text)
        find_degenerate_flags(answer, uncommented=uncommented, tests_passed=0, passed=False)

    def prepare(size: int) -> Callable[[], None]:
        completion = form.format(piece * (size // len(piece)))
        return lambda: read(completion)

    check_growth(prepare, 1_000_000)


@pytest.mark.parametrize(("start", "piece"), [("(*", "*"), ("failwith", " ")])
def test_the_longest_answers_cost_as_their_length(start: str, piece: str) -> None:
    def prepare(size: int) -> Callable[[], object]:
        text = start + piece * size
        return lambda: (flags(text), stub(text))

    check_growth(prepare, 1_000_000)


@pytest.mark.parametrize("body", ["todo!()", 'unimplemented!("later")', "\n    todo!()\n"])
def test_a_function_that_is_still_to_be_done_is_a_stub_in_rust_too(body: str) -> None:
    assert is_stub(code := f"pub fn f(x: i64) -> i64 {{{body}}}", uncommented=code)
