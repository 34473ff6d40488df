"""`gradus tasks import`: foreign material becomes validated tasks, or is rejected with file, line
and reason."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from corpus.dataset_layouts import LAYOUTS, build_column_drafts
from corpus.files import load_rows
from corpus.humaneval import build_humaneval_drafts
from corpus.import_validation import DROPPED, check_rows
from corpus.task_validation import validate
from gradus.contract import GraderName, OcamlSubmission
from gradus.errors import Misuse
from gradus.row_reader import Row
from services.graders.base import Grader
from services.graders.ocaml.grader import OcamlGrader
from services.graders.rust.grader import RustGrader
from services.graders.story.grader import StoryGrader
from tests.conftest import Cli, Said

CASES = Path(__file__).parents[1] / "cases" / "corpus"
Import = Callable[..., tuple[Said, list[dict[str, Any]], list[dict[str, Any]]]]


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.fixture
def imported(gradus: Cli, tmp_path: Path) -> Import:
    """Runs an import; what it said, the tasks, and the rejected records."""

    def run(
        form: str, *argv: str | Path
    ) -> tuple[Said, list[dict[str, Any]], list[dict[str, Any]]]:
        out = tmp_path / "out.jsonl"
        said = gradus(
            "tasks", "import", *argv, "--format", form, "-o", out, "--force", "--slots", "2"
        )
        return said, read(out), read(tmp_path / "out.rejected.jsonl")

    return run


def decided(
    drafts: Iterable[Row], name: GraderName, grader: Grader, **rules: bool
) -> tuple[list[Mapping[str, Any]], list[dict[str, Any]]]:
    """The tasks and the rejected records that an import would write, by a grader that has
    started."""
    decisions = list(check_rows(list(drafts), name, grader, 2, **rules))
    good = [decision.row.values for decision in decisions if not decision.problems]
    rejected = [
        {
            "where": decision.row.where,
            "id": decision.row.values.get("id"),
            "reasons": decision.problems,
        }
        for decision in decisions
        if decision.problems
    ]
    return good, rejected


def reason(rejected: list[dict[str, Any]], name: str) -> str:
    [found] = [row for row in rejected if row["id"] == name]
    return "; ".join(found["reasons"])


# ---------------------------------------------------------------------- benchmarks


def test_multipl_e_in_ocaml(imported: Import, tmp_path: Path, ocaml_grader: OcamlGrader) -> None:
    said, tasks, rejected = imported("humaneval", CASES / "multipl_e.jsonl", "--language", "ocaml")
    by_id = {task["id"]: task for task in tasks}
    assert set(by_id) == {"HumanEval_900_add_all", "mbpp_902_apply"}
    assert by_id["HumanEval_900_add_all"]["signature"] == "val add_all : int list -> int\n"
    assert (
        by_id["mbpp_902_apply"]["signature"]
        == "val apply : (int -> int -> int) -> int * int -> int\n"
    )
    assert {task["group"] for task in tasks} == {"humaneval/900", "mbpp/902"}
    assert "solution" not in by_id["mbpp_902_apply"]
    assert "2 tasks: has no reference answer" in said.err
    assert "tests do not parse" in reason(rejected, "HumanEval_901_negate")
    assert "tests: is missing" in reason(rejected, "HumanEval_903_no_tests")
    assert reason(rejected, "HumanEval_904_in_python") == "language: is py, not ocaml"
    task = {name: tasks[0][name] for name in ("tests", "signature")}
    half = OcamlSubmission.model_validate(
        {"id": "a", "completion": "let add_all _ = 0", "task": task}
    )
    result = ocaml_grader.grade(half, "ocaml/graduated@1", 0)
    assert result.tests is not None
    assert (result.tests.passed, result.tests.total) == (1, 2), "tests count one by one"
    first = (tmp_path / "out.jsonl").read_bytes()
    imported("humaneval", CASES / "multipl_e.jsonl", "--language", "ocaml")
    assert (tmp_path / "out.jsonl").read_bytes() == first, "the same import writes the same bytes"


def test_a_file_in_several_languages_needs_a_choice(imported: Import) -> None:
    said, _, _ = imported("humaneval", CASES / "multipl_e.jsonl")
    assert said.status == 2
    assert "by --language" in said.err


def test_humaneval_x_in_rust(imported: Import, rust_grader: RustGrader) -> None:
    _, tasks, rejected = imported("humaneval", CASES / "humaneval.jsonl", "--ignore-lint")
    by_id = {task["id"]: task for task in tasks}
    assert set(by_id) == {"Rust-900", "Rust-901"}
    assert by_id["Rust-900"]["solution"].startswith(
        "use std::collections::HashSet;\npub fn add_all("
    )
    assert "super" not in by_id["Rust-900"]["tests"]
    assert "    x\n" in by_id["Rust-901"]["stub"], "a buggy solution is what does not pass"
    assert "at stage tests" in reason(rejected, "Rust-902")
    assert "hold no #[test] function" in reason(rejected, "Rust-903")
    drafts = build_humaneval_drafts(load_rows(CASES / "humaneval.jsonl"), "rust")
    strict, rejected = decided(drafts, "rust", rust_grader)
    assert [task["id"] for task in strict] == ["Rust-900"]
    assert "unneeded `return`" in reason(rejected, "Rust-901")


def test_humaneval_in_ocaml(ocaml_grader: OcamlGrader) -> None:
    drafts = build_humaneval_drafts(load_rows(CASES / "humaneval_ocaml.jsonl"), "ocaml")
    tasks, rejected = decided(drafts, "ocaml", ocaml_grader)
    assert rejected == []
    assert tasks[0]["solution"].startswith(
        "let rec add_all (numbers : int list) : int =\n  match numbers with"
    )
    assert tasks[1]["solution"] == "let is_even x = x mod 2 = 0\n"
    assert "signature" not in tasks[1], "without types written down there is none"


# ---------------------------------------------------------------------- other columns


def test_columns_of_ocaml_training_data(imported: Import, ocaml_grader: OcamlGrader) -> None:
    said, [task], rejected = imported("ocamler", CASES / "ocamler.csv")
    assert (task["id"], task["signature"]) == ("first_1", "val add_all : int list -> int\n")
    assert "does not end in the beginning of a definition" in reason(rejected, "first_2")
    assert "tests do not parse" in reason(rejected, "first_3")
    assert rejected[0]["where"].endswith("ocamler.csv:11")


def test_columns_of_ocaml_evaluation_data(ocaml_grader: OcamlGrader) -> None:
    drafts = build_column_drafts(load_rows(CASES / "ocamler_eval.jsonl"), LAYOUTS["ocamler-eval"])
    [task], rejected = decided(drafts, "ocaml", ocaml_grader)
    assert (task["id"], task["difficulty"]) == ("1", "easy")
    assert task["solution"] == "let add (x : int) : int =\nx + 1\n"
    assert "reference answer gets" in reason(rejected, "2"), "its solution is a stub"


def test_failing_reference_answers_count_as_absent_when_told(
    imported: Import, ocaml_grader: OcamlGrader
) -> None:
    said, tasks, rejected = imported("ocamler-eval", CASES / "ocamler_eval.jsonl", "--drop-failing")
    assert ([task["id"] for task in tasks], rejected) == (["1", "2"], [])
    assert [bool(task.get("solution")) for task in tasks] == [True, False]
    assert f"1 tasks: {DROPPED}" in said.err


def test_columns_of_supervised_data_become_worked_examples(imported: Import) -> None:
    _, examples, rejected = imported("ocamler-sft", CASES / "ocamler_sft.jsonl")
    assert [set(one) for one in examples] == [{"id", "prompt", "completion"}]
    assert [
        "the same as at" in str(rejected[0]["reasons"]),
        "missing" in str(rejected[1]["reasons"]),
    ] == [True, True]


@pytest.mark.slow
def test_columns_of_a_rust_agent(imported: Import, rust_grader: RustGrader) -> None:
    _, tasks, rejected = imported("rust-pipeline", CASES / "rust_agent.jsonl")
    assert rejected == []
    assert tasks[0]["signature"] == "pub fn add_all(numbers: &[i64]) -> i64;\n"
    assert tasks[0]["difficulty"] == 2
    assert tasks[1]["id"].startswith("row-")
    assert "signature" not in tasks[1], "what the tests need of a type cannot be told"


def test_columns_of_sprints(imported: Import, story_grader: StoryGrader) -> None:
    said, [task], rejected = imported("scrum", CASES / "scrum.jsonl", "--validate")
    assert "was not graded" not in said.err
    assert (
        task["references"][0]
        == "As a visitor, I want to see a map of each floor, so that I can plan my visit."
    )
    assert "id: the same as at" in str(rejected[0]["reasons"])
    assert "is missing or empty" in str(rejected[1]["reasons"])


def test_sprints_with_titles_for_references_are_read_and_told_of(imported: Import) -> None:
    said, [titles, mixed], [leaked] = imported("scrum", CASES / "scrum_titles.jsonl")
    assert "2 tasks: was not graded" in said.err
    assert titles["references"] == [
        "Map of each floor",
        "[Design] Room booking",
        "Fix lamp report form",
    ]
    assert len(mixed["references"]) == 2
    assert leaked["reasons"] == [
        "1 of 2 references (1) is word for word in the prompt, goal or context"
    ]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    "row",
    [
        {},
        {"id": None, "prompt": None},
        {
            "id": [],
            "prompt": {},
            "tests": 3,
            "problem": [],
            "description": 1,
            "sprint_goal": 2,
            "solution": 3,
        },
        {
            "id": "\ud800",
            "prompt": "\ud800 =",
            "tests": "\ud800",
            "sprint_goal": "\ud800",
            "description": "\0",
        },
        {
            "id": "../../etc",
            "prompt": "let f (((((=",
            "problem": "=",
            "tests": "}}}",
            "description": "fn",
            "solution": "{",
        },
        {
            "id": True,
            "formatted_issues": 5,
            "sprint_goal": "x",
            "references": [1],
            "description": "x",
            "tests": "#[test",
        },
    ],
)
def test_any_row_is_a_draft_or_has_a_problem(layout: str, row: dict[str, Any]) -> None:
    [draft] = build_column_drafts([Row("x:1", row)], LAYOUTS[layout])
    if draft.problem:
        assert draft.values.keys() >= row.keys(), "a rejected record is kept whole"
    else:
        assert draft.values["id"]
        assert "/" not in draft.values["id"]


# ---------------------------------------------------------------------- input, output


def test_broken_lines_are_told_by_line(tmp_path: Path, ocaml_grader: OcamlGrader) -> None:
    file = tmp_path / "rows.jsonl"
    good = (CASES / "multipl_e.jsonl").read_text().splitlines()[0]
    file.write_text(
        f"{good}\n{{oops\n[1]\n{good}\n" + '{"name": "a", "name": "b"}\n{"prompt": NaN}\n'
    )
    drafts = build_humaneval_drafts(load_rows(file), "ocaml")
    tasks, rejected = decided(drafts, "ocaml", ocaml_grader)
    assert len(tasks) == 1
    told = [(row["where"].rpartition(":")[2], row["reasons"][0][:24]) for row in rejected]
    assert [line for line, _ in told] == ["2", "3", "4", "5", "6"]
    assert "id: the same as at" in rejected[2]["reasons"][0]


@pytest.mark.parametrize(
    ("content", "told"),
    [(b"", "holds no rows"), (b'{"a": "\xff"}', ":1: is not UTF-8"), (b"\n\n", "holds no rows")],
)
def test_a_file_without_rows_is_misuse(
    imported: Import, tmp_path: Path, content: bytes, told: str
) -> None:
    (tmp_path / "rows.jsonl").write_bytes(content)
    said, _, _ = imported("humaneval", tmp_path / "rows.jsonl", "--language", "rust")
    assert said.status == 2
    assert told in said.err


def test_a_file_that_is_too_large_is_refused_unread(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    with file.open("wb") as sparse:
        sparse.truncate(2049 * 2**20)
    with pytest.raises(Misuse, match="larger than 2048 MB"):
        load_rows(file)


def test_what_exists_is_replaced_only_by_force(
    gradus: Cli, tmp_path: Path, ocaml_grader: OcamlGrader
) -> None:
    out = tmp_path / "out.jsonl"
    rejected = tmp_path / "out.rejected.jsonl"
    out.write_text("mine")
    argv = ("tasks", "import", CASES / "humaneval_ocaml.jsonl", "--format", "humaneval", "-o", out)
    said = gradus(*argv, "--language", "ocaml")
    assert (said.status, out.read_text()) == (2, "mine")
    assert "--force" in said.err
    rejected.write_text("of an earlier import")
    assert gradus(*argv, "--language", "ocaml", "--force").status == 0
    assert len(read(out)) == 2
    assert not rejected.exists()
    assert [path.name for path in tmp_path.iterdir()] == ["out.jsonl"], (
        "nothing half written is left"
    )


def test_a_file_is_never_written_onto_its_source(gradus: Cli, tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    shutil.copy(CASES / "humaneval.jsonl", file)
    before = file.read_bytes()
    said = gradus("tasks", "import", file, "--format", "humaneval", "-o", file, "--force")
    assert said.status == 2
    assert "is also an input" in said.err
    assert file.read_bytes() == before


def test_without_validation_only_the_form_is_looked_at(imported: Import) -> None:
    said, tasks, _ = imported(
        "humaneval", CASES / "multipl_e.jsonl", "--language", "ocaml", "--no-validate"
    )
    assert len(tasks) == 3
    assert "3 tasks: was not validated" in said.err


def test_the_rules_of_validation_are_strict_unless_told_otherwise(
    ocaml_grader: OcamlGrader,
) -> None:
    row = {
        "id": "a",
        "prompt": "p",
        "tests": "let () = assert (f 1 = 2)",
        "signature": "val f : int -> int",
    }
    [finding] = validate([Row("x:1", row)], "ocaml", ocaml_grader, 2)
    assert finding.problems == ["solution: is missing or empty"]


@pytest.mark.parametrize(
    ("argv", "problem"),
    [
        (("rows.jsonl",), "Missing option '--format'"),
        (("rows.jsonl", "--format", "other"), "--format other: choose one of"),
        (("rows.jsonl", "--format", "scrum"), "rows.jsonl: cannot be read"),
    ],
)
def test_an_import_that_cannot_be_understood_is_misuse(
    gradus: Cli, tmp_path: Path, argv: tuple[str, ...], problem: str
) -> None:
    said = gradus("tasks", "import", *argv, "-o", tmp_path / "out.jsonl")
    assert said.status == 2
    assert problem in said.err
