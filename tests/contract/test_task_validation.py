"""Task admission: what makes a task unusable is found and told by its row, and usable tasks are let
in."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from corpus.task_rows import Finding
from corpus.task_validation import validate
from gradus.resources import configs
from gradus.row_reader import Row, read_rows
from services.graders.ocaml.grader import OcamlGrader
from services.graders.rust.grader import RustGrader
from services.graders.story.grader import StoryGrader
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
    placed = [
        row if isinstance(row, Row) else Row(f"tasks.jsonl:{n}", row)
        for n, row in enumerate(rows, start=1)
    ]
    return list(validate(placed, "ocaml", grader, 2))


def finding(grader: OcamlGrader, **changes: Any) -> Finding:
    [found] = findings(grader, [changed(**changes)])
    return found


def test_a_good_task_has_no_problem(ocaml_grader: OcamlGrader) -> None:
    assert finding(ocaml_grader) == Finding(Row("tasks.jsonl:1", changed()))


SUM = {"signature": "val inc : int array -> int", "solution": "let inc = Array.fold_left (+) 0"}
AFTER = [
    "let () = let a = [|5; 3|] in let r = inc a in assert (r = Array.fold_left (+) 0 a)",
    "let a = [|5; 3|]\nlet r = inc a\nlet () = assert (Array.fold_left (+) 0 a = r)",
    "let () = let a = [|5; 3|] in let r = inc a + 0 in\n  let s = r = a.(0) + a.(1) in assert s",
    'open OUnit2\nlet () = run_test_tt_main ("a" >:: fun _ -> let a = [|5; 3|] in\n'
    "let r = Solution.inc a in assert_equal (Array.fold_left (+) 0 a) r)",
]
BEFORE = [
    "let a = [|5; 3|]\nlet sum = a.(0) + a.(1)\nlet () = let r = inc a in assert (r = sum)",
    "let () = let a = [|5; 3|] in let r = inc a in assert (r = 8 && a = [|5; 3|])",
    "let () = let a = [|5; 3|] in let n = inc a in assert (Array.sub a 0 (n - 7) = [|5|])",
    "let () = let a = [|1; 1|] in let n = inc a in assert (n = Array.length a)",
    "let () = let l = [5; 3] in let r = inc (Array.of_list l) in assert (r = List.hd l + 3)",
]


@pytest.mark.parametrize("tests", AFTER)
def test_what_tests_expect_of_a_changed_argument_is_told(
    ocaml_grader: OcamlGrader, tests: str
) -> None:
    [warning] = finding(ocaml_grader, **SUM, stub="let inc _ = 1", tests=tests).warnings
    assert "expect is computed from a after the answer had it" in warning


@pytest.mark.parametrize("tests", BEFORE)
def test_what_tests_expect_of_their_own_is_no_warning(
    ocaml_grader: OcamlGrader, tests: str
) -> None:
    assert not finding(ocaml_grader, **SUM, stub="let inc _ = 1", tests=tests).warnings


UNUSABLE: dict[str, tuple[dict[str, Any], str]] = {
    "a wrong reference answer": (
        {"solution": "let inc x = x"},
        "reference answer gets 0.35 at stage tests, not 1.00",
    ),
    "a reference answer that passes some": (
        {"solution": "let inc _ = 2"},
        "gets 0.68 at stage tests",
    ),
    "a reference answer that does not type": (
        {"solution": 'let inc x = x ^ "1"'},
        "at stage types, not 1.00: Values",
    ),
    "a reference answer that does not parse": (
        {"solution": "let inc x ="},
        "at stage types, not 1.00: Syntax error",
    ),
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
    "a stub that passes": (
        {"stub": "let inc x = x + 1"},
        "stub passes all tests: they prove nothing",
    ),
    "tests that assert nothing": (
        {"tests": "let () = print_int (inc 1)"},
        "the tests assert nothing",
    ),
    "tests that do not parse": ({"tests": "let () = assert (inc 'ab')"}, "the tests do not parse"),
    "tests that do not fit the signature": (
        {"tests": 'let () = assert (inc "a" = 1)'},
        "do not type",
    ),
    "a signature that is none": (
        {"signature": "let inc : int -> int"},
        "signature does not compile",
    ),
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


def test_a_task_without_stub_or_signature_is_usable_with_a_warning(
    ocaml_grader: OcamlGrader,
) -> None:
    found = finding(ocaml_grader, stub=None, signature=None)
    assert found.problems == []
    assert ["stub" in found.warnings[0], "signature" in found.warnings[1]] == [True, True]


def test_describing_fields_are_welcome(ocaml_grader: OcamlGrader) -> None:
    assert (
        finding(
            ocaml_grader, difficulty="easy", topics=["ints"], licence="MIT", source="own"
        ).problems
        == []
    )


def test_a_nested_task_is_understood(ocaml_grader: OcamlGrader) -> None:
    task = {name: TASK[name] for name in ("tests", "signature")}
    assert finding(ocaml_grader, tests=None, signature=None, task=task).problems == []


def test_a_reference_answer_may_have_fences_in_its_comments(ocaml_grader: OcamlGrader) -> None:
    solution = "(* For example:\n```\ninc 1\n```\nor ````inc 2````\n*)\nlet inc x = x + 1"
    assert finding(ocaml_grader, solution=solution).problems == []


def test_tasks_of_one_id_or_prompt_are_told_where_the_other_is(ocaml_grader: OcamlGrader) -> None:
    first, second, third = findings(
        ocaml_grader, [changed(), changed(prompt="Other."), changed(id="other")]
    )
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
    assert [(one.row.where, bool(one.problems)) for one in found] == [
        ("tasks.jsonl:1", False),
        ("tasks.jsonl:2", True),
        ("tasks.jsonl:3", True),
        ("tasks.jsonl:4", True),
        ("tasks.jsonl:5", False),
    ]
    assert found[1].problems == ["is not JSON: oops"]


def test_the_command_tells_every_problem_and_has_exit_status_1(gradus: Cli, tmp_path: Path) -> None:
    file = tmp_path / "tasks.jsonl"
    tasks = [
        changed(),
        changed(id="b", prompt="b", solution="let inc x = x"),
        changed(id="c", prompt="c", stub=None),
    ]
    file.write_text("".join(json.dumps(task) + "\n" for task in tasks) + "oops\n")
    said = gradus("tasks", "validate", file)
    assert said.status == 1
    assert f"{file}:2: b: the reference answer gets 0.35" in said.out
    assert f"{file}:4: : is not JSON" in said.out
    assert said.out.endswith("2 of 4 tasks are usable\n")
    assert f"{file}:3: c: warning: has no stub" in said.err


def test_every_task_that_ships_is_usable_and_has_a_stub_and_a_signature(
    ocaml_grader: OcamlGrader,
) -> None:
    rows = list(read_rows(configs() / "tasks" / "ocaml.jsonl"))
    found = list(validate(rows, "ocaml", ocaml_grader, 2))
    assert len(found) == len(rows) >= 100
    assert [one for one in found if one.problems or one.warnings] == []


# -------------------------------------------------------------------------------------------- Rust


@pytest.fixture(scope="module")
def rust_grader_with_crates(
    rust_grader: RustGrader, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RustGrader]:
    config = write_config(tmp_path_factory.mktemp("configs") / "rust.yaml")
    with closing(RustGrader(config, rust_grader.sandbox)) as grader:
        yield grader


@pytest.mark.parametrize(
    "part", [0, *(pytest.param(part, marks=pytest.mark.slow) for part in range(1, 6))]
)
def test_every_rust_task_that_ships_is_usable_and_has_a_stub(
    rust_grader_with_crates: RustGrader, part: int
) -> None:
    """Each part has a sixth of the tasks."""
    rows = [
        row
        for name in ("rust", "rust_crates")
        for row in read_rows(configs() / "tasks" / f"{name}.jsonl")
    ]
    assert len(rows) >= 60
    known = set(rust_grader_with_crates.crates.externs)
    here = [row for row in rows[part::6] if set(row.values.get("dependencies", ())) <= known]
    found = list(validate(here, "rust", rust_grader_with_crates, 2))
    assert [one for one in found if one.problems] == []
    assert {w for one in found for w in one.warnings} <= {
        "has no signature, so tests see whatever the answer defines"
    }


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


_OF_TEXT = '#[test] fn a() { assert_eq!(inc(1), "2") }'


def rust_finding(grader: RustGrader, what: str, **changes: Any) -> Finding:
    row = {"id": what, "prompt": "Add one.", **RUST_TASKS[what], **changes}
    [found] = validate([Row("tasks.jsonl:1", row)], "rust", grader, 2)
    return found


@pytest.mark.parametrize("what", RUST_TASKS)
def test_a_good_task_in_rust_has_no_problem(rust_grader: RustGrader, what: str) -> None:
    found = rust_finding(rust_grader, what)
    assert (found.problems, found.warnings) == ([], [])


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
        ("tests", {"dependencies": ["no_such_crate"], "solution": ""}, "no_such_crate"),
        (
            "tests",
            {"solution": "", "stub": "", "tests": f"use solution::inc;\n{_OF_TEXT}"},
            "line 2 of its tests: mis",
        ),
        (
            "tests",
            {"signature": "", "tests": f"use solution::*;\n{_OF_TEXT}"},
            "line 2 of its tests, with the reference answer: mismatched types",
        ),
        (
            "tests",
            {
                "signature": "",
                "tests": "use solution::*;\n#[test] fn a() { HashSet::new().insert(inc(1)); }",
            },
            "line 2 of its tests, with the reference answer: cannot find type `HashSet`",
        ),
    ],
)
def test_an_unusable_task_in_rust_says_why(
    rust_grader: RustGrader, what: str, changes: dict[str, Any], problem: str
) -> None:
    problems = rust_finding(rust_grader, what, **changes).problems
    assert [problem in told for told in problems].count(True) == 1, problems


# ----------------------------------------------------------------------------------------- stories

STORIES: dict[str, Any] = {
    "id": "repairs",
    "prompt": "Plan the sprint.",
    "sprint_goal": "Nobody has to phone the office any more when something at home is broken.",
    "references": [
        (
            "As a tenant, I want to report a leak with a photo, so that the plumber knows what to"
            " bring."
        ),
        "As a tenant, I want to choose a free visit slot, so that I lose no day of work.",
        (
            "As a coordinator, I want to assign jobs to contractors by postcode, so that nobody"
            " drives across town."
        ),
        "As a contractor, I want to mark a job as finished, so that my invoice is approved.",
    ],
    "solution": (
        "As a resident, I want to send a photo of a leak, so that the right tools arrive.\n"
        "As a resident, I want to pick a slot for the visit, so that I can go to work.\n"
        "As a dispatcher, I want to give jobs to contractors near by, so that they drive less.\n"
        "As a plumber, I want to close a finished job, so that I am paid."
    ),
    "stub": "As a tenant, I want nice things, so that they are nice.",
}
REFERENCES: list[str] = STORIES["references"]


def story_findings(grader: StoryGrader, *rows: dict[str, Any]) -> list[Finding]:
    placed = [Row(f"sprints.jsonl:{n}", row) for n, row in enumerate(rows, start=1)]
    return list(validate(placed, "story", grader, 4))


def story_finding(grader: StoryGrader, **changes: Any) -> Finding:
    row = {name: value for name, value in (STORIES | changes).items() if value is not None}
    [found] = story_findings(grader, row)
    return found


def test_a_good_story_task_has_no_problem(story_grader: StoryGrader) -> None:
    found = story_finding(story_grader)
    assert (found.problems, found.warnings) == ([], [])


@pytest.mark.parametrize("every", [6, pytest.param(1, marks=pytest.mark.slow)])
def test_every_story_task_that_ships_is_usable(story_grader: StoryGrader, every: int) -> None:
    rows = list(read_rows(configs() / "tasks" / "story.jsonl"))[::every]
    found = list(validate(rows, "story", story_grader, 8))
    assert len(found) == len(rows) >= 60 // every
    assert [one for one in found if one.problems or one.warnings] == []
    assert all(row.values.get("solution") and row.values.get("stub") for row in rows)


TITLES = ["Leak reports with photos", "Slot picker", *REFERENCES[2:]]
UNUSABLE_STORIES: dict[str, tuple[dict[str, Any], str]] = {
    "a solution beside the point": (
        {"solution": "As a pilot, I want to see the runway, so that I can land."},
        "the solution earns 0.03, not at least 0.40: too little of what was asked for",
    ),
    "a stub that is good": ({"stub": STORIES["solution"]}, "the stub earns"),
    "a reference in the prompt": (
        {"prompt": f"For example: {REFERENCES[1].upper()}"},
        "1 of 4 references (2) is word for word in the prompt, goal or context",
    ),
    "a reference in the context": (
        {"team_context": {"notes": ["we must mark a job as finished"]}},
        "1 of 4 references (4) is word for word",
    ),
    "references in German": (
        {
            "references": [
                "Als Mieter möchte ich ein Leck melden, damit die Handwerker gut vorbereitet sind.",
                "Als Mieter will ich einen freien Termin wählen, damit ich nicht frei nehmen muss.",
            ]
        },
        "not of the form",
    ),
    "short references in German": (
        {"references": ["Als Mieter will ich ein Leck melden", "Als Mieter will ich Termine"]},
        "not of the form",
    ),
    "references in French": (
        {"references": ["En tant que locataire je veux signaler une fuite"]},
        "not of the form",
    ),
    "references in Japanese": (
        {"references": ["顧客として、カードで支払いたい。"]},
        "not of the form",
    ),
    "references that equal the goal": (
        {"sprint_goal": REFERENCES[0], "references": [REFERENCES[0]]},
        "1 of 1 references (1) is word for word",
    ),
    "a goal that lists the references": (
        {
            "sprint_goal": (
                "Report leaks with photos, choose free visit slots, assign jobs to contractors by"
                " postcode."
            )
        },
        "3 of 4 references (1, 2, 3) are in the goal with at least 100% of their words",
    ),
    "more references than the grader takes": (
        {
            "references": [
                f"As a clerk, I want to file form {n}, so that it is kept." for n in range(401)
            ]
        },
        "this task cannot be judged: it has 401 references",
    ),
    "no references": ({"references": None}, "references: has no reference stories"),
    "an empty list": ({"references": []}, "references: has no reference stories"),
    "nothing between separators": (
        {"references": " ||||| "},
        "references: Value should have at least 1 item",
    ),
    "a number for a reference": (
        {"references": [3]},
        "references.0: Input should be a valid string",
    ),
    "both names": (
        {"formatted_issues": "a ||||| b"},
        "unknown fields: formatted_issues",
    ),
    "a text for the context": (
        {"team_context": "pilot"},
        "team_context: Input should be a valid dictionary",
    ),
    "an unknown field": ({"sprint_gaol": "x"}, "unknown fields: sprint_gaol"),
    "tests": ({"tests": "let () = ()"}, "unknown fields: tests"),
    "no prompt": ({"prompt": None}, "prompt: is missing or empty"),
    "a NUL": ({"references": ["As a\0"]}, "contains a NUL"),
    "a task that is no mapping": (
        {"task": ["a"], "references": None},
        "Input should be a valid dictionary",
    ),
}


@pytest.mark.parametrize("what", UNUSABLE_STORIES)
def test_an_unusable_story_task_says_why(story_grader: StoryGrader, what: str) -> None:
    changes, problem = UNUSABLE_STORIES[what]
    problems = story_finding(story_grader, **changes).problems
    assert any(problem in told for told in problems), problems
    assert len(problems) == len(set(problems))


DOUBTFUL_STORIES: dict[str, tuple[dict[str, Any], str]] = {
    "bare titles": (
        {"references": TITLES},
        "2 of 4 references (1, 2) are no story (1: not of the form",
    ),
    "a goal with one reference in it": (
        {"sprint_goal": "Tenants report any leak by photo, and the office is spared."},
        "1 of 4 references (1) is in the goal",
    ),
}


@pytest.mark.parametrize("what", DOUBTFUL_STORIES)
def test_a_doubtful_story_task_is_told_with_its_numbers(
    story_grader: StoryGrader, what: str
) -> None:
    changes, warning = DOUBTFUL_STORIES[what]
    warnings = story_finding(story_grader, **changes).warnings
    assert any(warning in told for told in warnings), warnings


def test_sprints_with_the_same_references_are_told_where_the_other_is(
    story_grader: StoryGrader,
) -> None:
    other = STORIES | {"id": "other", "prompt": "Other.", "references": REFERENCES[::-1]}
    first, second = story_findings(story_grader, STORIES, other)
    assert first.warnings == []
    assert second.warnings == ["references: the same as at sprints.jsonl:1"]


def test_hostile_texts_in_a_story_task_are_findings_and_no_crash(story_grader: StoryGrader) -> None:
    hostile = ["\u202e\u200b", "as a " * 5000, "((((" * 2000, "so that so that", "\U0001f600" * 50]
    found = story_finding(story_grader, references=hostile, sprint_goal="," * 5000, solution=None)
    assert "5 of 5 references (1, 2, 3, 4, 5) are no story" in found.warnings[0]
    assert "the references as the answer earns" in found.problems[0]


def test_the_command_checks_stories(gradus: Cli, tmp_path: Path, story_grader: StoryGrader) -> None:
    file = tmp_path / "sprints.jsonl"
    second = {
        "id": "Sprint 8",
        "prompt": "Less waiting.",
        "sprint_goal": "Less waiting.",
        "references": "Slot picker ||||| Leaks",
    }
    file.write_text("".join(json.dumps(row) + "\n" for row in (STORIES, second)))
    said = gradus("tasks", "validate", file, "--grader", "story")
    assert f"{file}:2: Sprint 8: warning: 2 of 2 references (1, 2) are no story" in said.err
    assert said.out.endswith("2 of 2 tasks are usable\n")
    assert said.status == 0
