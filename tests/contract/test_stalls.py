"""Answers that sleep end at the stall limit, however they sleep; those that compute or wait a
little do not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from gradus.contract import Graded, TaskSubmission
from services.graders.ocaml.grader import OcamlGrader
from services.graders.rust.grader import RustGrader

CASES = yaml.safe_load((Path(__file__).parents[1] / "cases/stalls/sleeps.yaml").read_text())


def list_cases(kind: str) -> list[Any]:
    """The answers of a kind as parameters; in `make test-fast` those that differ most."""
    cases = []
    for case in CASES[kind]["answers"]:
        marks = [pytest.mark.slow] if case.get("slow") else []
        cases.append(pytest.param(case, id=case["name"], marks=marks))
    return cases


def grade(grader: Any, kind: str, code: str) -> Graded:
    task = grader.task.model_validate(CASES[kind]["task"])
    submission = TaskSubmission[Any](id="a", completion=code, task=task)
    graded: Graded = grader.grade(submission, grader.info().rubrics[0], 0)
    return graded


def expect(graded: Graded, flag: str | None) -> None:
    limits = [name for name in graded.flags if name.startswith("limit:")]
    assert limits == [flag] if flag else limits == [], graded
    assert graded.passed is (flag is None), graded


@pytest.mark.parametrize("case", list_cases("ocaml"))
def test_ocaml(ocaml_grader: OcamlGrader, case: Any) -> None:
    expect(grade(ocaml_grader, "ocaml", case["code"]), case["flag"])


@pytest.mark.parametrize("case", list_cases("rust"))
def test_rust(rust_grader: RustGrader, case: Any) -> None:
    expect(grade(rust_grader, "rust", case["code"]), case["flag"])


@pytest.mark.parametrize("case", list_cases("rust_programs"))
def test_rust_programs_over_all_their_cases(rust_grader: RustGrader, case: Any) -> None:
    expect(grade(rust_grader, "rust_programs", case["code"]), case["flag"])
