"""What `gradus tasks harden` changes of programs and of their inputs."""

from __future__ import annotations

import ast
import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from corpus.hardening.input_mutation import CallMutation, InputMutation, find_counts, split_parts
from corpus.hardening.invariants import Invariants
from corpus.hardening.program import draw_calls, draw_inputs
from corpus.program_mutations import ProgramMutations

CASES = Path(__file__).parents[1] / "cases" / "corpus" / "programs"


@pytest.mark.parametrize(
    ("known", "admitted", "refused"),
    [
        ([[[1, 3, 5], 3], [[2, 4], 4]], [[1, 4], 4], [[4, 1], 4]),
        ([[[1, 3, 5]], [[]]], [[1, 5]], [[5, 1]]),
        ([[[1, 2]], [[3]]], [[1, 3]], [[3, 3]]),
        ([[[5]], [[2, 9]]], [[2, 5]], [[]]),
        ([[1, 9, 12], [2, 4, 0]], [2, 9, 0], [2, 2, 0]),
        ([[[7, 8], 2], [[8], 1]], [[7], 1], [[7, 8], 1]),
        ([[5], [9]], [6], [10]),
        ([["(()())"], ["[()]"]], ["(())"], ["(()"]),
        ([["12:30"], ["9:05"]], ["10:25"], ["9:5"]),
        ([["aba"], ["x"]], ["aa"], ["ab"]),
        ([[[[1, 2], [3, 4]]], [[[0, 4]]]], [[[1, 4]]], [[[1, 4], [2]]]),
        ([[{"a": 1}], [{"a": 3}]], [{"a": 2}], [{"a": 4}]),
        ([[True], [False]], [True], [1]),
    ],
)
def test_an_input_has_what_all_known_ones_share(
    known: list[list[Any]], admitted: list[Any], refused: list[Any]
) -> None:
    invariants = Invariants(known)
    assert all(map(invariants.admit, known))
    assert invariants.admit(admitted)
    assert not invariants.admit(refused)


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("3\n1 2 7\n", {0}),
        ("4 9\n1 2 7 5\n", {0}),
        ("3 10 20 30\n", {0}),
        ("5\nabcde\n", {0}),
        ("2\n7 8\n9 10\n", {0}),
        ("1 2\n7 8\n9 9 9\n8 8 9\n", {0, 1}),
        ("2\n3\n4 5 6\n1\n9\n", {0, 1, 5}),
        ("7 8\n", set()),
    ],
)
def test_numbers_that_may_count_something_are_known(text: str, counts: set[int]) -> None:
    assert find_counts(text) >= counts
    if not counts:
        assert find_counts(text) == set()


def test_changed_input_keeps_its_lines_counts_and_keywords() -> None:
    known = ["2\npush 7\nname kilo\n", "3\npush 5\npush 12\nname lima\n"]
    mutation = InputMutation(known, "if word == 'name': pass", "seed")
    invariants = Invariants([split_parts(text) for text in known])
    changed = {mutation.change(text) for text in known * 50} - set(known)
    assert len(changed) > 10
    for text in filter(lambda each: invariants.admit(split_parts(each)), changed):
        count, *lines = text.splitlines()
        assert int(count) == len(lines)
        assert [line.split()[0] for line in lines[:-1]] == ["push"] * (len(lines) - 1)
        word, name = lines[-1].split()
        assert word == "name"
        assert name.isalpha()


def test_changed_calls_keep_the_types_and_reach_the_constants_of_the_reference() -> None:
    known = [[[1, 4], "ab"], [[90, 2], "c"]]
    mutation = CallMutation(known, "if x > 50:", "seed")
    changed = [mutation.change(arguments) for arguments in known * 300]
    assert known == [[[1, 4], "ab"], [[90, 2], "c"]]
    for numbers, text in changed:
        assert all(isinstance(number, int) for number in numbers)
        assert set(text) <= set("abc")
    assert any(50 in numbers for numbers, _ in changed)


def test_calls_are_drawn_by_function_and_are_new() -> None:
    cases = [
        {"call": {"function": name, "arguments": [number]}, "equals": 0, "group": "g"}
        for name in ("f", "g")
        for number in (0, 40)
    ]
    drawn = draw_calls([*cases, {"stdin": "1", "stdout": "2"}], "", "seed")
    assert {case["call"]["function"] for case in drawn} == {"f", "g"}
    assert all(case["group"] == "g" for case in drawn)
    arguments = [str(case["call"]) for case in [*cases, *drawn]]
    assert len(set(arguments)) == len(arguments)


PYTHON = '''def f(items, é="x < 1"):  # x < 2
    """Adds 1."""
    total = 0
    for i in range(len(items)):
        if not items[i] <= 3 and é in "ü" or items[i] == -1:
            total += sorted(items)[i] * 2
            break
    return f"{total + 1}".lower()
'''


def test_edits_of_python_parse_and_leave_comments_and_texts() -> None:
    edits = ProgramMutations().find_edits(PYTHON, {"language": "python"})
    kinds = {edit.kind for edit in edits}
    assert kinds == {"operator", "constant", "condition", "range", "call", "function", "statement"}
    for edit in edits:
        changed = edit.apply(PYTHON)
        ast.parse(changed)
        assert changed != PYTHON
        assert "# x < 2" in changed
        assert '"""Adds 1."""' in changed
        assert '"x < 1"' in changed
    changed = {edit.apply(PYTHON) for edit in edits}
    assert PYTHON.replace("<= 3", "< 3") in {
        text.replace("(items[i] < 3)", "items[i] < 3") for text in changed
    }
    assert PYTHON.replace("+=", "-=") in changed
    assert PYTHON.replace("len(items)):", "len(items) - 1):") in changed
    assert PYTHON.replace(" and ", " or ") in changed
    assert PYTHON.replace("break", "continue") in changed
    assert ProgramMutations().find_edits("def f(:", {}) == []


CPP = """#define LIMIT 7
int f(int x) { // x < 1
  if (x >= 9 && x != 4) return x - 1; /* 1 + 2 */
  const char *text = "1 < 2";
  return x < 5 ? max(x, 2) : x->size;
}
"""


def test_edits_of_text_leave_comments_texts_and_directives() -> None:
    edits = ProgramMutations().find_edits(CPP, {"language": "cpp"})
    changed = {edit.apply(CPP) for edit in edits}
    for text in changed:
        for untouched in ("#define LIMIT 7", "// x < 1", "/* 1 + 2 */", '"1 < 2"', "x->size"):
            assert untouched in text
    for before, after in [(">= 9", "> 9"), ("&&", "||"), ("x - 1", "x + 1"), ("max(", "min(")]:
        assert CPP.replace(before, after) in changed
    assert CPP.replace("x >= 9 && x != 4", "!(x >= 9 && x != 4)") in changed
    assert ProgramMutations().find_edits("print 1", {"language": "perl"}) == []


PAIRS = yaml.safe_load((CASES / "two_right_answers.yaml").read_text())


def answer(code: str, arguments: list[Any]) -> Any:
    scope: dict[str, Any] = {}
    exec(code, scope)  # noqa: S102
    return scope["f"](*copy.deepcopy(arguments))


def read_arguments(case: dict[str, Any]) -> list[Any]:
    arguments: list[Any] = case["call"]["arguments"] if "call" in case else [case["stdin"]]
    return arguments


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: str(pair["name"]))
def test_right_answers_agree_on_new_inputs(pair: dict[str, Any]) -> None:
    """Where they differ, the input breaks the task's precondition, and a case made of it would
    refuse a right answer."""
    known = []
    for each in pair["known"]:
        call = {"call": {"function": "f", "arguments": each}}
        known.append({"stdin": each, "stdout": ""} if isinstance(each, str) else call)
    cases = []
    for seed in ("1", "2", "3"):
        cases += draw_calls(known, pair["reference"], seed)
        cases += draw_inputs(known, pair["reference"], seed)
    assert len(cases) >= 3
    for arguments in map(read_arguments, cases):
        try:
            expected = answer(pair["reference"], arguments)
        except (IndexError, ValueError, KeyError, StopIteration, RuntimeError):
            continue  # then the input is no case
        assert answer(pair["other"], arguments) == expected, arguments
