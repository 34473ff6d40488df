"""`gradus tasks harden`: typed inputs that kill mutants which pass the tests of a task."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from corpus.hardening.engine import ProposedTest, choose_tests
from corpus.hardening.ocaml import HEADING, OcamlRuns, find_functions, read_values
from corpus.hardening.rust import find_functions as find_rust_functions
from corpus.hardening.typed_values import Kind, Type
from services.graders.ocaml.grader import OcamlGrader
from services.graders.program.grader import ProgramGrader
from services.graders.rust.grader import RustGrader
from tests.conftest import Cli

OPTIONS = ("--max-mutants", "8", "--quiet")
COUNTS = re.compile(r"^(\d+) of \d+ mutants passed, now (\d+)$", re.MULTILINE)
CLAMP = {
    "id": "clamp",
    "prompt": "Write clamp, which moves x into the range from a to b.",
    "signature": "val clamp : int -> int -> int -> int\n",
    "tests": "let () = assert (clamp 1 9 5 = 5)\nlet () = assert (clamp 1 9 12 = 9)\n",
    "solution": "let clamp a b x =\n  if x < a then a else if x > b then b else x\n",
}
PAIRS = {
    "id": "pairs",
    "prompt": "Write pairs, which counts equal neighbours.",
    "signature": "val pairs : 'a list -> int\n",
    "tests": "let () = assert (pairs [] = 0)\nlet () = assert (pairs [1; 2] = 0)\n",
    "solution": "let rec pairs = function\n  | a :: (b :: _ as rest) -> (if a = b then 1 else 0)"
    " + pairs rest\n  | _ -> 0\n",
}
OPAQUE = {
    **CLAMP,
    "id": "opaque",
    "signature": "type t = int\nval clamp : t -> t -> t -> t\n",
    "solution": f"type t = int\n{CLAMP['solution']}",
}
MARK = {
    "id": "mark",
    "prompt": "Write mark(points), the letter for points from 0 to 100.",
    "cases": [
        {"call": {"function": "mark", "arguments": [points]}, "equals": letter}
        for points, letter in ((95, "A"), (85, "B"), (3, "C"))
    ],
    "solution": "def mark(points):\n    if points >= 90:\n        return 'A'\n"
    "    if points >= 80:\n        return 'B'\n    return 'C'\n",
}
TOTAL = {
    "id": "total",
    "prompt": "Read n and n numbers. Print the sum of those above 9.",
    "language": "c",
    "cases": [{"stdin": "2\n1 20\n", "stdout": "20\n"}, {"stdin": "3\n14 6 5\n", "stdout": "14"}],
    "solution": """#include <stdio.h>
int main(void) {
    int n, x, sum = 0;
    scanf("%d", &n);
    while (n--) {
        scanf("%d", &x);
        if (x > 9) sum += x;
    }
    printf("%d", sum);  // < 9
}
""",
}
DICE = {
    "id": "dice",
    "prompt": "Print 1 for 5, else any number.",
    "cases": [{"stdin": "5 0", "stdout": "1"}, {"stdin": "5 9", "stdout": "1"}],
    "solution": "import random\na, b = map(int, input().split())\n"
    "print(1 if b in (0, 9) or a > 7 else random.random())\n",
}
RUST_CLAMP = {
    **CLAMP,
    "signature": "pub fn clamp(a: i64, b: i64, x: i64) -> i64;\n",
    "tests": "use solution::clamp;\n\n#[test]\nfn inside() {\n"
    "    assert_eq!(clamp(1, 9, 5), 5);\n}\n",
    "solution": "pub fn clamp(a: i64, b: i64, x: i64) -> i64 {\n"
    "    if x < a { a } else if x > b { b } else { x }\n}\n",
}


def harden(
    gradus: Cli, folder: Path, rows: Sequence[dict[str, Any]], grader: str
) -> tuple[list[dict[str, Any]], tuple[int, int], str]:
    """Return the hardened rows, how many mutants passed before and pass now, and what was said."""
    weak = folder / "weak.jsonl"
    hard = folder / "hard.jsonl"
    weak.write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = gradus("tasks", "harden", str(weak), "-o", str(hard), "--grader", grader, *OPTIONS)
    assert done.status == 0, done.err
    [(before, after)] = COUNTS.findall(done.out)
    hardened = [json.loads(line) for line in hard.read_text().splitlines()]
    return hardened, (int(before), int(after)), done.out + done.err


def test_programs_get_cases_near_their_own(
    gradus: Cli, tmp_path: Path, program_grader: ProgramGrader
) -> None:
    """A reference that says something else each time gets none. `program_grader` is asked for
    because it skips where boxes cannot be made."""
    rows = [MARK, TOTAL, DICE]
    hardened, (before, after), _ = harden(gradus, tmp_path, rows, "program")
    assert [row["id"] for row in hardened] == ["mark", "total"]
    assert after < before
    for row, weak in zip(hardened, rows, strict=False):
        known = weak["cases"]
        assert row["cases"][: len(known)] == known
        assert {**row, "cases": known} == weak
        assert len(row["cases"]) > len(known)
    for case in hardened[0]["cases"]:
        [points] = case["call"]["arguments"]
        assert 3 <= points <= 95
        assert case["equals"] == "CBA"[(points >= 80) + (points >= 90)]
    for case in hardened[1]["cases"]:
        number, *numbers = map(int, case["stdin"].split())
        assert number == len(numbers)
        assert int(case["stdout"]) == sum(value for value in numbers if value > 9)


def test_the_doctor_sees_weak_cases(
    gradus: Cli, tmp_path: Path, program_grader: ProgramGrader
) -> None:
    file = tmp_path / "weak.jsonl"
    file.write_text(json.dumps(MARK) + "\n")
    done = gradus("tasks", "doctor", str(file), "--grader", "program", "--mutants", "3", "--quiet")
    assert done.status == 0, done.err
    assert re.search(r"weak tests: \d of 3 broken solutions pass all tests, such as line", done.out)


def test_rust_gets_tests_of_typed_calls(
    gradus: Cli, tmp_path: Path, rust_grader: RustGrader
) -> None:
    [row], (before, after), _ = harden(gradus, tmp_path, [RUST_CLAMP], "rust")
    assert after < before
    assert row["tests"].startswith(RUST_CLAMP["tests"])
    proposed = row["tests"].removeprefix(RUST_CLAMP["tests"])
    calls = re.findall(r"assert_eq!\(solution::clamp\((.*)\), (\d+)\);", proposed)
    assert len(calls) == proposed.count("#[test]") > 0
    for arguments, expected in calls:
        low, high, x = map(int, arguments.split(", "))
        assert int(expected) == (low if x < low else min(x, high))


def test_mutants_that_passed_fail_the_proposed_tests_and_the_solution_does_not(
    gradus: Cli, tmp_path: Path, ocaml_grader: OcamlGrader
) -> None:
    """`ocaml_grader` is asked for because it skips where there is no OCaml."""
    weak = tmp_path / "weak.jsonl"
    hard = tmp_path / "hard.jsonl"
    weak.write_text("".join(json.dumps(row) + "\n" for row in (CLAMP, PAIRS, OPAQUE)))
    done = gradus("tasks", "harden", str(weak), "-o", str(hard), "--quiet")
    assert done.status == 0, done.err
    assert "opaque: its signature has no function of base types" in done.err
    rows = [json.loads(line) for line in hard.read_text().splitlines()]
    assert [row["id"] for row in rows] == ["clamp", "pairs"]
    for row, before in zip(rows, (CLAMP, PAIRS), strict=True):
        assert row["tests"].startswith(before["tests"].rstrip() + f"\n{HEADING}\n")
        assert {**row, "tests": ""} == {**before, "tests": ""}
    again = gradus("tasks", "harden", str(hard), "-o", str(tmp_path / "again.jsonl"), "--quiet")
    assert again.status == 1
    assert again.out.splitlines()[0].startswith("0 tests proposed for 0 of 2 tasks")
    [(before, after)] = COUNTS.findall(done.out)
    assert int(after) < int(before)
    [(left, _)] = COUNTS.findall(again.out)
    assert int(left) < int(before)


@pytest.mark.parametrize(
    ("declared", "found"),
    [
        ("val f : int -> (string * bool) list -> int option", 2),
        ("val f : ('a, string) result array -> char", 1),
        ("val f : (int -> int) -> int", 0),
        ("val f : x:int -> int", 0),
        ("val f : t -> int", 0),
        ("val f : int -> float", 0),
        ("val f : int", 0),
        ("type t = A | B\n\nval f : int ->\n  int\n\ntype u", 1),
    ],
)
def test_functions_are_those_whose_values_can_be_made_and_compared(
    declared: str, found: int
) -> None:
    functions = find_functions(declared)
    assert sum(len(function.parameters) for function in functions) == found


@pytest.mark.parametrize(
    ("declared", "found"),
    [
        ("pub fn f(a: &[(u8, String)], b: Option<&str>) -> Result<Vec<i64>, char>;", 2),
        ("pub fn f<'a, T: Ord + Clone>(a: &'a [T], b: &mut [T]) -> bool;", 0),
        ("pub fn f<'a, T: Ord + Clone>(a: &'a [T], b: T) -> Vec<&'a T>;", 2),
        ("pub fn f<F: Fn(i64) -> i64>(f: F) -> i64;", 0),
        ("pub fn f(a: [u8; 4]) -> i64;", 0),
        ("pub fn f(a: i64) -> f64;", 0),
        ("pub fn f(a: &mut Vec<i64>) -> i64;", 0),
        ("pub struct S;\nimpl S { pub fn f(a: i64) -> i64; }", 0),
    ],
)
def test_rust_functions_are_those_whose_values_can_be_made_and_compared(
    declared: str, found: int
) -> None:
    functions = find_rust_functions(declared)
    assert sum(len(function.parameters) for function in functions) == found


def test_values_stay_near_what_the_tests_speak_of() -> None:
    integer = Type(Kind.INTEGER, "int")
    integers = Type(Kind.LIST, "list", (integer,))
    near = read_values(
        "let () = assert (f 3 [4] = 1)", "let f a b = if a > 7 then 1 else 2", "seed"
    )
    numbers = {near.draw(integer) for _ in range(200)}
    assert numbers <= {str(number) for number in range(6)}
    lists = {near.draw(integers) for _ in range(50)}
    assert "[]" not in lists
    far = read_values("let () = assert (f (-3) [] = 1)", "", "seed")
    assert any("-" in far.draw(integer) for _ in range(50))
    assert "[]" in {far.draw(integers) for _ in range(50)}


def test_literals_of_results_are_read_back(ocaml_grader: OcamlGrader) -> None:
    runs = OcamlRuns(ocaml_grader.toolchain, ocaml_grader.sandbox)
    [function] = find_functions("val f : int -> (string option * int list, char) result")
    source = """let f = function
      | 0 -> Ok (Some "a\\"b\\n\\\\", [-1; 2])
      | 1 -> Error '\\''
      | 2 -> failwith "no"
      | _ -> while true do () done; Ok (None, [])"""
    calls = [(f"f {number}", function.returned) for number in range(5)]
    assert runs.run(source, calls) == [
        '(Ok ((Some "a\\"b\\n\\\\"), [(-1); 2]))',
        "(Error '\\'')",
        '!Failure("no")',
        None,
        None,
    ]


def test_few_and_short_tests_are_chosen() -> None:
    texts = {"long test": {1, 2}, "short": {1, 2}, "other": {3}, "needless": {1}}
    kills = {ProposedTest(text): killed for text, killed in texts.items()}
    assert choose_tests(kills, 5) == [ProposedTest("short"), ProposedTest("other")]
    assert choose_tests(kills, 1) == [ProposedTest("short")]
    assert choose_tests({}, 5) == []
