"""`gradus tasks harden`: typed inputs that kill mutants which pass the tests of a task."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from corpus.hardening import HEADING, choose_tests
from corpus.ocaml_inputs import OcamlRuns, Type, Values, find_functions
from services.graders.ocaml.grader import OcamlGrader
from tests.conftest import Cli

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
    counts = re.compile(r"^(\d+) of \d+ mutants passed, now (\d+)$", re.MULTILINE)
    [(before, after)] = counts.findall(done.out)
    assert int(after) < int(before)
    [(left, _)] = counts.findall(again.out)
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


def test_values_stay_near_what_the_tests_speak_of() -> None:
    near = Values("let () = assert (f 3 [4] = 1)", "let f a b = if a > 7 then 1 else 2", "seed")
    numbers = {near.draw(Type("int")) for _ in range(200)}
    assert numbers <= {str(number) for number in range(6)}
    lists = {near.draw(Type("list", (Type("int"),))) for _ in range(50)}
    assert "[]" not in lists
    far = Values("let () = assert (f (-3) [] = 1)", "", "seed")
    assert any("-" in far.draw(Type("int")) for _ in range(50))
    assert "[]" in {far.draw(Type("list", (Type("int"),))) for _ in range(50)}


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
    kills = {"long test": {1, 2}, "short": {1, 2}, "other": {3}, "needless": {1}}
    assert choose_tests(kills, 5) == ["short", "other"]
    assert choose_tests(kills, 1) == ["short"]
    assert choose_tests({}, 5) == []
