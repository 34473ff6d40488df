"""Signatures for tasks that have none, derived from reference answers and tests. Writes no file.

A signature is kept only where the reference answer passes all tests with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from corpus import ocaml_signature, rust_signature
from corpus.drafts import Unusable
from corpus.task_validation import fenced
from gradus.contract import Faulted, Graded, GraderName, Submission, submission_class
from gradus.row_reader import Row
from gradus.tasks import TASKS
from gradus.validation import explain
from services.graders.base import Grader
from services.graders.ocaml.grader import OcamlGrader
from services.local_grading import grade_in_order

LANGUAGES = ("ocaml", "rust")


@dataclass(frozen=True, slots=True)
class SigningResult:
    """A row after signing: with a signature, as it was, or as it was for a reason."""

    row: Row
    values: Mapping[str, Any]
    problem: str | None = None
    """Why the row has no signature, though it should."""

    @property
    def is_new(self) -> bool:
        return self.values is not self.row.values


def sign(
    rows: Sequence[Row], name: GraderName, grader: Grader, slots: int | None = None
) -> Iterator[SigningResult]:
    """One result per row, in order. Rows that have a signature or `cases` stay as they are."""
    drawn = [_drawn(row, name, grader) for row in rows]
    asked = [submission for _, submission in drawn if submission is not None]
    graded = grade_in_order(grader, asked, grader.info().rubrics[0], slots)
    for result, submission in drawn:
        problem = None if submission is None else _loss(next(graded))
        yield SigningResult(result.row, result.row.values, problem) if problem else result


def _drawn(row: Row, name: GraderName, grader: Grader) -> tuple[SigningResult, Submission | None]:
    """The row with its derived signature, and the reference answer to grade with it."""
    values, task = dict(row.values), row.values.get("task")
    fields = dict(task) if isinstance(task, Mapping) else values
    if row.problem or fields.get("signature") or fields.get("cases"):
        return SigningResult(row, row.values, row.problem), None
    solution, tests = values.get("solution"), fields.get("tests")
    if not isinstance(solution, str) or not solution.strip() or not isinstance(tests, str):
        return (
            SigningResult(
                row, row.values, "has no solution, from which a signature could be derived"
            ),
            None,
        )
    try:
        if isinstance(grader, OcamlGrader):
            signature = ocaml_signature.derived_signature(grader, solution, tests)
        else:
            signature = rust_signature.derived_signature(solution, tests)
        plain = {key: fields[key] for key in TASKS[name].model_fields if fields.get(key)}
        asked = {
            "id": "solution",
            "completion": fenced(name, solution),
            "task": {**plain, "signature": signature},
        }
        submission = submission_class(name).model_validate(asked)
    except Unusable as unusable:
        return SigningResult(row, row.values, str(unusable)), None
    except ValidationError as error:
        return SigningResult(row, row.values, explain(error)), None
    given = (
        {"task": {**fields, "signature": signature}}
        if isinstance(task, Mapping)
        else {"signature": signature}
    )
    return SigningResult(row, {**values, **given}), submission


def _loss(result: Graded | Faulted) -> str | None:
    """Why the derived signature cannot be used; None when it can."""
    if isinstance(result, Faulted):
        return f"with the signature that was derived: {result.fault.message}"
    reasons = "; ".join(diagnostic.message for diagnostic in result.diagnostics) or ", ".join(
        result.flags
    )
    if result.passed:
        return None
    return (
        f"the reference answer gets {result.reward:.2f} with the signature that was derived:"
        f" {reasons[:300]}"
    )
