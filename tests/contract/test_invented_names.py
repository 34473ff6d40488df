"""What is taken for an invented name, by what the real compilers say of small answers:
tests/cases/invented_names."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from corpus.task_rows import wrap_in_fence
from gradus.contract import SUBMISSIONS, Graded, GraderName
from services.graders.base import Grader
from services.graders.ocaml.grader import OcamlGrader
from services.graders.rust.evaluation import NAME_ERRORS
from services.graders.rust.grader import RustGrader
from services.local_grading import grade_in_order
from trainer.evaluate.breakdowns import measure_invented_names
from trainer.evaluate.verdicts import extract_invented_name
from trainer.rewards.judge import Record, build_outcome

CASES = Path(__file__).parents[1] / "cases" / "invented_names"
TESTS = {"ocaml": "let () = assert (f 1 = 1)", "rust": "#[test]\nfn t() {}\n"}


def judged(name: GraderName, grader: Grader) -> tuple[dict[str, list[str]], dict[str, Record]]:
    """The names that each answer is said to invent, by its title, and its record."""
    cases = yaml.safe_load((CASES / f"{name}.yaml").read_text())
    asked = [
        {
            "id": title,
            "completion": wrap_in_fence(name, case["code"]),
            "task": {"tests": TESTS[name]},
        }
        for title, case in cases.items()
    ]
    submissions = [SUBMISSIONS[name].model_validate(one) for one in asked]
    results = list(grade_in_order(grader, submissions, grader.info().rubrics[0], 1))
    assert all(isinstance(result, Graded) for result in results)
    records = dict(zip(cases, map(build_outcome, results), strict=True))
    return {title: case["names"] for title, case in cases.items()}, records


def named(record: Record, grader: str) -> list[str]:
    names = [extract_invented_name(one, grader) for one in record["diagnostics"]]
    return [name for name in names if name is not None]


def test_rustc_names_what_does_not_exist(rust_grader: RustGrader) -> None:
    expected, records = judged("rust", rust_grader)
    assert {title: named(record, "rust") for title, record in records.items()} == expected
    codes = {
        one["code"]
        for record in records.values()
        for one in record["diagnostics"]
        if named(record, "rust")
    }
    # What 1.95 says by E0425 was E0412 before: evaluations that are stored may have it.
    assert {*NAME_ERRORS} - codes == {"E0412"}, (
        "every code in the table is one that this rustc says"
    )


def test_the_ocaml_compiler_names_what_does_not_exist(ocaml_grader: OcamlGrader) -> None:
    expected, records = judged("ocaml", ocaml_grader)
    assert {title: named(record, "ocaml") for title, record in records.items()} == expected


def test_the_share_of_real_answers_is_counted_by_answer(
    ocaml_grader: OcamlGrader,
) -> None:
    expected, records = judged("ocaml", ocaml_grader)
    found = measure_invented_names(
        [{**record, "prompt_id": title} for title, record in records.items()], "ocaml"
    )
    assert found is not None
    assert found.answers is not None
    inventing = sum(bool(names) for names in expected.values())
    assert found.answers.value == pytest.approx(inventing / len(expected))
