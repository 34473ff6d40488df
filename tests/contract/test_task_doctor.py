"""`gradus tasks doctor`: rows as people bring them, their states, causes, failing tests and
repairs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from corpus.files import load_rows
from corpus.ocaml_text import find_type_definitions
from corpus.rust_repairs import (
    add_dependencies,
    advise_on_crates,
    flatten_files,
    read_edition,
    show_broken_code,
    split_tests,
)
from corpus.story_repairs import leave_out_copies, write_sprint_prompt
from corpus.task_doctor import RowState, diagnose
from corpus.task_repairs import add_signature, keep_unknown_columns, rename_columns
from corpus.task_rows import list_columns
from corpus.task_validation import validate
from gradus.row_reader import Row
from services.graders.ocaml.grader import OcamlGrader
from services.graders.story.grader import StoryGrader
from tests.conftest import ROOT, Cli

CASES: list[dict[str, Any]] = yaml.safe_load(
    (ROOT / "tests/cases/corpus/doctor_ocaml.yaml").read_text(encoding="utf-8")
)
STORY_CASES: list[dict[str, Any]] = yaml.safe_load(
    (ROOT / "tests/cases/corpus/doctor_stories.yaml").read_text(encoding="utf-8")
)


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    file = tmp_path / "mine.jsonl"
    lines = [json.dumps(case["row"]) for case in CASES]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file


def test_each_row_has_a_state_a_cause_and_a_repair_that_works(
    ocaml_grader: OcamlGrader, mine: Path
) -> None:
    diagnoses = list(diagnose(load_rows(mine), "ocaml", ocaml_grader, 2))
    assert [each.state for each in diagnoses] == [case["state"] for case in CASES], [
        (each.row.values.get("id"), each.cause, each.repairs) for each in diagnoses
    ]
    for case, diagnosis in zip(CASES, diagnoses, strict=True):
        fails = "\n".join(f"line {t.line} of the tests: {t.text}" for t in diagnosis.failing)
        assert case.get("fails", "") in fails
        assert case.get("cause", "") in diagnosis.cause
        assert case.get("repair", "") in "\n".join(diagnosis.repairs)
        assert diagnosis.row.values == case["row"], "the row as it was read is kept"
        assert "\n" not in diagnosis.cause
        assert bool(diagnosis.cause) is (diagnosis.state is not RowState.USABLE)


def test_the_command_repairs_what_it_proposes_and_loses_nothing(
    gradus: Cli, ocaml_grader: OcamlGrader, mine: Path
) -> None:
    out = mine.with_name("tasks.jsonl")
    said = gradus("tasks", "doctor", mine, "--fix", "-o", out, "--slots", "2")
    assert said.status == 1, said.err
    assert "3 usable, 8 repaired, 1 needs you of 12 rows" in said.out
    rows = load_rows(out)
    assert len(rows) == 11
    for finding in validate(rows, "ocaml", ocaml_grader, 2, needs_solution=False):
        assert finding.problems == []
    rejected = [row.values["row"] for row in load_rows(mine.with_name("tasks.rejected.jsonl"))]
    assert rejected == [case["row"] for case in CASES if case["state"] == "needs you"]
    renamed = next(row for row in rows if row.values["id"] == "other_columns")
    assert renamed.values["notes"] == {"author": "ada"}
    weak = "weak tests: 1 of 4 broken solutions pass all tests, such as line 1 with `2 mod n`"
    assert weak in said.out


@pytest.mark.parametrize("argv", [["--fix"], ["-o", "o.jsonl"]])
def test_fix_and_out_belong_together(gradus: Cli, mine: Path, argv: list[str]) -> None:
    said = gradus("tasks", "doctor", mine, *argv)
    assert said.status == 2
    assert "--fix and --out belong together" in said.err


def test_a_row_that_cannot_be_read_needs_its_author() -> None:
    row = Row("mine.jsonl:1", {}, "is not JSON")
    [diagnosis] = diagnose([row], "ocaml", None)
    assert (diagnosis.state, diagnosis.cause) == (RowState.NEEDS_YOU, "is not JSON")


def test_a_signature_asks_for_nothing_that_the_solution_lacks() -> None:
    row = {
        "prompt": "Write `size : int list -> int`; try it on `example : int list`.",
        "tests": "let example = [1]\nlet () = assert (size example = 1)\n",
        "solution": "let size l = List.length l\n",
    }
    repair = add_signature(row)
    assert repair is not None
    assert repair.values["signature"] == "val size : int list -> int\n"


def test_a_type_that_a_prompt_shows_twice_is_declared_once() -> None:
    shown = "type 'a node = One of 'a | Many of 'a node list"
    text = f"{shown}\n\nStart from this:\n\n{shown}\nlet f (x : int) : int =\n"
    assert find_type_definitions(text) == shown


def test_columns_of_a_grader_without_a_task_class_are_repaired_too() -> None:
    values = {"id": "a", "question": "Q", "solution": "S"}
    assert list_columns("plugin") == {"id", "prompt", "solution", "stub", "task"}
    renamed = rename_columns(values, "plugin")
    assert renamed is not None
    assert renamed.values == {"id": "a", "prompt": "Q", "solution": "S"}
    assert keep_unknown_columns(renamed.values, "plugin") is None


def test_an_interface_is_the_signature() -> None:
    repair = rename_columns({"id": "a", "interface": "val f : int -> int\n"}, "ocaml")
    assert repair is not None
    assert repair.values["signature"] == "val f : int -> int\n"


def test_files_of_a_crate_become_texts_with_its_name_and_edition() -> None:
    row = {
        "tests": {"tests/two-fer.rs": "use two_fer::*;"},
        "solution": {"src/lib.rs": "pub fn f() {}"},
        "cargo_toml": '[package]\nname = "two-fer"\nedition = "2024"\n',
    }
    repair = flatten_files(row)
    assert repair is not None
    assert repair.values["tests"] == "use two_fer::*;"
    assert repair.values["solution"] == "pub fn f() {}"
    assert (repair.values["crate"], repair.values["edition"]) == ("two_fer", "2024")
    assert flatten_files({"tests": {"a.rs": "", "b.rs": ""}}) is None


def test_a_sprint_without_a_prompt_is_asked_for_by_its_goal() -> None:
    row = {
        "formatted_issues": "As a cook, I want a menu",
        "sprint_goal": "Guests choose",
        "reference": "A book",
    }
    renamed = rename_columns(row, "story")
    assert renamed is not None
    assert renamed.values["references"] == "As a cook, I want a menu"
    assert "solution" not in renamed.values, "a citation is no solution"
    repair = write_sprint_prompt(renamed.values)
    assert repair is not None
    assert repair.values["prompt"].startswith(
        "Sprint goal: Guests choose\n\nWrite the user stories"
    )
    assert write_sprint_prompt({"prompt": "p", "references": "r"}) is None


def test_a_prompt_says_what_the_sprint_is_to_bring() -> None:
    row = {"sprint_goal": "Better tooling", "value_propositions": ["Saves time.", ""]}
    repair = write_sprint_prompt(row)
    assert repair is not None
    assert (
        "Better tooling\n\nWhat it is to bring:\n- Saves time.\n\nWrite" in repair.values["prompt"]
    )


def sprint(where: str, goal: str, *references: str) -> Row:
    return Row(
        where, {"id": where, "sprint_goal": goal, "formatted_issues": " ||||| ".join(references)}
    )


def test_rows_that_ask_the_same_become_one_task_with_all_references() -> None:
    rows = [
        sprint("a:1", "Guests choose", "read the menu online", "order by phone"),
        sprint("a:2", "Cooks plan", "see the orders of tomorrow"),
        sprint("a:3", "Guests choose", "order by phone", "see pictures of dishes"),
    ]
    first, other, joined = diagnose(rows, "story", None)
    assert [each.state for each in (first, other, joined)] == [RowState.REPAIRED] * 3
    assert first.task is not None
    references = ["read the menu online", "order by phone", "see pictures of dishes"]
    assert first.task.values["references"] == references
    assert "take the references of a:3, which ask the same" in first.repairs
    assert (joined.task, joined.joined_to) == (None, "a:1")
    assert joined.repairs == ("join with a:1: one task has the references of both",)


def test_rows_of_stories_have_a_state_and_a_repair_that_works(story_grader: StoryGrader) -> None:
    rows = [Row(f"mine:{n}", case["row"]) for n, case in enumerate(STORY_CASES, 1)]
    diagnoses = list(diagnose(rows, "story", story_grader))
    assert [each.state for each in diagnoses] == [case["state"] for case in STORY_CASES], [
        (each.row.values["id"], each.cause, each.repairs) for each in diagnoses
    ]
    for case, diagnosis in zip(STORY_CASES, diagnoses, strict=True):
        assert case.get("cause", "") in diagnosis.cause
        assert case.get("repair", "") in "\n".join(diagnosis.repairs)
        if diagnosis.repaired is not None:
            values = diagnosis.repaired.values
            assert values["references"] == case["references"]
            assert values["prompt"].startswith(case.get("prompt", ""))


def test_a_goal_that_became_references_is_kept_in_the_notes() -> None:
    goal = "reorder the stations, print orders by table"
    values = {"id": "a", "sprint_goal": goal, "impact": "Dishes leave sooner"}
    [diagnosis] = diagnose([Row("a:1", values)], "story", None)
    assert diagnosis.task is not None
    assert diagnosis.task.values["notes"] == {"stated_goal": goal}
    assert goal not in diagnosis.task.values["prompt"], "answers must not copy the references"


def test_a_row_without_references_says_what_it_lacks() -> None:
    [diagnosis] = diagnose([sprint("a:1", "Guests choose")], "story", None)
    assert diagnosis.state is RowState.NEEDS_YOU
    assert "has no reference stories" in diagnosis.cause


def test_references_that_the_goal_says_go_to_the_notes() -> None:
    row = {
        "prompt": "Sprint goal: guests read the menu online. Write stories.",
        "references": ["read the menu online", "order by phone at night"],
        "notes": "mine",
    }
    repair = leave_out_copies(row)
    assert repair is not None
    assert repair.values["references"] == ["order by phone at night"]
    assert repair.values["notes"] == {
        "notes": "mine",
        "copied_references": ["read the menu online"],
    }
    assert leave_out_copies({**row, "references": ["read the menu online"]}) is None


RUSTLING = """struct Point {
    x: i32,
}

impl Point {
    fn new(x: i32) -> Self {
        Point { x }
    }
}

struct Unit(u8, pub u8);

fn main() {
    // try it here
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn has_x() {
        assert_eq!(Point::new(1).x, 1);
    }
}
"""


def test_tests_leave_the_file_of_the_solution_and_the_broken_code_is_shown() -> None:
    broken = RUSTLING.replace("Point { x }", "todo!()")
    row = {
        "prompt": "Fix it.",
        "solution": RUSTLING,
        "broken": broken,
        "run": "rustc --edition 2024",
    }
    for repair in (read_edition, split_tests, show_broken_code):
        done = repair(row)
        assert done is not None
        row = done.values
    assert row["edition"] == "2024"
    assert row["solution"].startswith("pub struct Point {\n    pub x: i32,")
    assert "pub fn new" in row["solution"]
    assert "pub struct Unit(pub u8, pub u8);" in row["solution"]
    assert "mod tests" not in row["solution"] + row["stub"]
    assert "fn main" not in row["solution"]
    assert row["tests"].lstrip().startswith("use solution::*;")
    assert row["prompt"] == f"Fix it.\n\n```rust\n{row['stub']}\n```"
    assert "broken" not in row


def test_a_crate_is_named_if_the_grader_has_it_and_else_its_author_is_told_how() -> None:
    problem = "unresolved import: use of unresolved module or unlinked crate `rand`"
    repair = add_dependencies({"dependencies": ["serde"]}, problem, {"rand"})
    assert repair is not None
    assert repair.values["dependencies"] == ["serde", "rand"]
    assert advise_on_crates(problem, {"rand"}) == ""
    assert add_dependencies({}, problem, set()) is None
    hyphen = "unresolved import: use of unresolved module or unlinked crate `enum_iterator`"
    manifest = '[dependencies]\nenum-iterator = "2.0"\n'
    assert "list enum-iterator 2.0 in a copy" in advise_on_crates(hyphen, set(), manifest)
    assert "list rand in a copy of configs/graders/rust_crates.yaml" in advise_on_crates(
        problem, set()
    )
