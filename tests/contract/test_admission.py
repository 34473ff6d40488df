"""Task admission: what makes a task unusable is found and told by its row, and usable tasks are let in."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from gradus.contract import GraderName
from gradus.resources import configs
from gradus.rows import Row, read_rows
from services.admission import Finding, validate
from services.graders.ocaml.grader import OcamlGrader
from services.graders.rust.grader import RustGrader
from tests.conftest import Cli
from tests.rust_config import write_config

TASK: dict[str, Any] = {
    "id": "inc",
    "prompt": "Add one.",
    "signature": "val inc : int -> int",
    "tests": "let () = assert (inc 1 = 2); assert (inc 2 = 3)",
    "solution": "let inc x = x + 1",
    "stub": 'let inc x = failwith "not yet"',
}


def changed(**changes: Any) -> dict[str, Any]:
    return {name: value for name, value in (TASK | changes).items() if value is not None}


def findings(grader: OcamlGrader, rows: Iterable[dict[str, Any] | Row]) -> list[Finding]:
    placed = [row if isinstance(row, Row) else Row(f"tasks.jsonl:{n}", row) for n, row in enumerate(rows, start=1)]
    return list(validate(placed, GraderName.OCAML, grader, 2))


def finding(grader: OcamlGrader, **changes: Any) -> Finding:
    [found] = findings(grader, [changed(**changes)])
    return found


def test_a_good_task_has_no_problem(ocaml_grader: OcamlGrader) -> None:
    assert finding(ocaml_grader) == Finding("tasks.jsonl:1", "inc")


UNUSABLE: dict[str, tuple[dict[str, Any], str]] = {
    "a wrong reference answer": ({"solution": "let inc x = x"}, "reference answer gets 0.35 at stage tests, not 1.00"),
    "a reference answer that passes some": ({"solution": "let inc _ = 2"}, "gets 0.68 at stage tests"),
    "a reference answer that does not type": ({"solution": 'let inc x = x ^ "1"'}, "at stage types, not 1.00: Values"),
    "a reference answer that does not parse": ({"solution": "let inc x ="}, "at stage types, not 1.00: Syntax error"),
    "a reference answer that looks degenerate": (
        {"solution": "let inc x = x + 1\n" * 100},
        "gets 0.30 at stage tests, not 1.00: degenerate:repetition",
    ),
    "tests of a name of the library, without a signature": (
        {"signature": None, "tests": "let () = assert (abs (inc (-3)) = 2)"},
        "abs of the standard library, which an answer may define, too: declare a signature",
    ),
    "tests of nothing but the library": (
        {"signature": None, "tests": "let () = assert (List.rev [] = [])"},
        "the tests use nothing of the answer",
    ),
    "a stub that passes": ({"stub": "let inc x = x + 1"}, "stub passes all tests: they prove nothing"),
    "tests that assert nothing": ({"tests": "let () = print_int (inc 1)"}, "the tests assert nothing"),
    "tests that do not parse": ({"tests": "let () = assert (inc 'ab')"}, "the tests do not parse"),
    "tests that do not fit the signature": ({"tests": 'let () = assert (inc "a" = 1)'}, "do not type"),
    "a signature that is none": ({"signature": "let inc : int -> int"}, "signature does not compile"),
    "a package that is not there": ({"packages": ["no_such_package"]}, "no_such_package"),
    "no tests": ({"tests": None}, "tests: Field required"),
    "empty tests": ({"tests": ""}, "tests: Field required"),
    "a number for tests": ({"tests": 3}, "tests: Input should be a valid string"),
    "no solution": ({"solution": None}, "solution: is missing or empty"),
    "no prompt": ({"prompt": "  "}, "prompt: is missing or empty"),
    "no id": ({"id": None}, "id: is missing or empty"),
    "an unknown field": ({"answr": "x"}, "unknown fields: answr"),
    "a NUL": ({"tests": "let () = assert (inc 1 = 2) \0"}, "contains a NUL"),
}


@pytest.mark.parametrize("what", UNUSABLE)
def test_an_unusable_task_says_why(ocaml_grader: OcamlGrader, what: str) -> None:
    changes, problem = UNUSABLE[what]
    problems = finding(ocaml_grader, **changes).problems
    assert any(problem in told for told in problems), problems
    assert len(problems) == len(set(problems)), "told once, though several answers were tried"


def test_a_task_without_stub_or_signature_is_usable_with_a_warning(ocaml_grader: OcamlGrader) -> None:
    found = finding(ocaml_grader, stub=None, signature=None)
    assert found.problems == []
    assert ["stub" in found.warnings[0], "signature" in found.warnings[1]] == [True, True]


def test_describing_fields_are_welcome(ocaml_grader: OcamlGrader) -> None:
    assert finding(ocaml_grader, difficulty="easy", topics=["ints"], licence="MIT", source="own").problems == []


def test_a_nested_task_is_understood(ocaml_grader: OcamlGrader) -> None:
    task = {name: TASK[name] for name in ("tests", "signature")}
    assert finding(ocaml_grader, tests=None, signature=None, task=task).problems == []


def test_a_reference_answer_may_have_fences_in_its_comments(ocaml_grader: OcamlGrader) -> None:
    solution = "(* For example:\n```\ninc 1\n```\nor ````inc 2````\n*)\nlet inc x = x + 1"
    assert finding(ocaml_grader, solution=solution).problems == []


def test_tasks_of_one_id_or_prompt_are_told_where_the_other_is(ocaml_grader: OcamlGrader) -> None:
    first, second, third = findings(ocaml_grader, [changed(), changed(prompt="Other."), changed(id="other")])
    assert first.problems == []
    assert second.problems == ["id: the same as at tasks.jsonl:1"]
    assert third.problems == ["prompt: the same as at tasks.jsonl:1"]


def test_findings_come_in_the_order_of_rows_one_for_each(ocaml_grader: OcamlGrader) -> None:
    rows: list[dict[str, Any] | Row] = [
        changed(id="a", prompt="a"),
        Row("tasks.jsonl:2", {}, "is not JSON: oops"),
        changed(id="c", prompt="c", solution="let inc x ="),
        changed(id="d", prompt="d", tests=None),
        changed(id="e", prompt="e"),
    ]
    found = findings(ocaml_grader, rows)
    assert [(one.where, bool(one.problems)) for one in found] == [
        ("tasks.jsonl:1", False),
        ("tasks.jsonl:2", True),
        ("tasks.jsonl:3", True),
        ("tasks.jsonl:4", True),
        ("tasks.jsonl:5", False),
    ]
    assert found[1].problems == ["is not JSON: oops"]


def test_the_command_tells_every_problem_and_has_exit_status_1(gradus: Cli, tmp_path: Path) -> None:
    file = tmp_path / "tasks.jsonl"
    tasks = [changed(), changed(id="b", prompt="b", solution="let inc x = x"), changed(id="c", prompt="c", stub=None)]
    file.write_text("".join(json.dumps(task) + "\n" for task in tasks) + "oops\n")
    said = gradus("tasks", "validate", file)
    assert said.status == 1
    assert f"{file}:2: b: the reference answer gets 0.35" in said.out
    assert f"{file}:4: : is not JSON" in said.out
    assert said.out.endswith("2 of 4 tasks are usable\n")
    assert f"{file}:3: c: warning: has no stub" in said.err


def test_every_task_that_ships_is_usable_and_has_a_stub_and_a_signature(ocaml_grader: OcamlGrader) -> None:
    rows = list(read_rows(configs() / "tasks" / "ocaml.jsonl"))
    found = list(validate(rows, GraderName.OCAML, ocaml_grader, 2))
    assert len(found) == len(rows) >= 100
    assert [one for one in found if one.problems or one.warnings] == []


# ----------------------------------------------------------------------------------------------------------- Rust


def test_every_rust_task_that_ships_is_usable_and_has_a_stub(rust_grader: RustGrader, tmp_path: Path) -> None:
    grader = RustGrader(write_config(tmp_path / "rust.yaml"), rust_grader.sandbox)
    rows = list(read_rows(configs() / "tasks" / "rust.jsonl"))
    assert len(rows) >= 60
    here = [row for row in rows if set(row.values.get("dependencies", ())) <= set(grader.crates.names)]
    found = list(validate(here, GraderName.RUST, grader, 2))
    assert [one for one in found if one.problems] == []
    assert {w for one in found for w in one.warnings} <= {"has no signature, so tests see whatever the answer defines"}


RUST_TASKS: dict[str, dict[str, Any]] = {
    "tests": {
        "signature": "pub fn inc(x: i64) -> i64;",
        "tests": "use solution::inc;\n#[test]\nfn incs() {\n    assert_eq!(inc(1), 2);\n}",
        "solution": "pub fn inc(x: i64) -> i64 {\n    x + 1\n}",
        "stub": "pub fn inc(_x: i64) -> i64 {\n    todo!()\n}",
        "edition": "2024",
    },
    "cases": {
        "cases": [{"stdin": "1", "stdout": "2"}],
        "solution": 'fn main() {\n    println!("2");\n}',
        "stub": "fn main() {}",
        "crate": "incs",
        "limits": {"cpu_s": 1},
    },
}


def rust_finding(grader: RustGrader, what: str, **changes: Any) -> Finding:
    row = {"id": what, "prompt": "Add one.", **RUST_TASKS[what], **changes}
    [found] = validate([Row("tasks.jsonl:1", row)], GraderName.RUST, grader, 2)
    return found


@pytest.mark.parametrize("what", RUST_TASKS)
def test_a_good_task_in_rust_has_no_problem(rust_grader: RustGrader, what: str) -> None:
    assert rust_finding(rust_grader, what) == Finding("tasks.jsonl:1", what)


@pytest.mark.parametrize(
    ("what", "changes", "problem"),
    [
        ("tests", {"module": "inc"}, "unknown fields: module"),
        (
            "tests",
            {"solution": "pub fn inc(x: i64) -> i64 {\n    x\n}"},
            "the reference answer gets 0.35 at stage tests",
        ),
        ("tests", {"stub": "pub fn inc(_: i64) -> i64 {\n    2\n}"}, "stub passes all tests"),
        ("tests", {"cases": RUST_TASKS["cases"]["cases"]}, "give either `tests`"),
        ("cases", {"edition": "2020"}, "edition: Input should be"),
        ("cases", {"dependencies": ["no_such_crate"]}, "no_such_crate"),
    ],
)
def test_an_unusable_task_in_rust_says_why(
    rust_grader: RustGrader, what: str, changes: dict[str, Any], problem: str
) -> None:
    problems = rust_finding(rust_grader, what, **changes).problems
    assert any(problem in told for told in problems), problems
