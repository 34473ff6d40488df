"""Signatures for tasks that have none, derived from reference answers and tests. Writes no file.

A signature is kept only where the reference answer passes all tests with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pydantic import ValidationError

from corpus import ocaml_signature, rust_signature
from corpus.drafts import Unusable
from corpus.task_rows import Finding, build_submission, extract_task, replace_task
from corpus.task_validation import render_reasons
from gradus.contract import Faulted, Graded, GraderName, Submission
from gradus.row_reader import Row
from gradus.validation import explain
from services.graders.base import Grader
from services.graders.ocaml.grader import OcamlGrader
from services.local_grading import grade_in_order


def sign(
    rows: Sequence[Row], name: GraderName, grader: Grader, slots: int | None = None
) -> Iterator[Finding]:
    """Yield the signed row for each row, in order. Rows with a signature or `cases`, and those that
    cannot be signed, stay as they are."""
    drawn = [_derive_signature(row, name, grader) for row in rows]
    submissions = [submission for _, submission in drawn if submission is not None]
    graded = grade_in_order(grader, submissions, grader.info().rubrics[0], slots)
    for row, (finding, submission) in zip(rows, drawn, strict=True):
        problem = None if submission is None else _describe_failure(next(graded))
        yield Finding(row, [problem]) if problem else finding


def _derive_signature(
    row: Row, name: GraderName, grader: Grader
) -> tuple[Finding, Submission | None]:
    """Return the row with its derived signature, and the reference answer to grade with it."""
    values = row.values
    task = extract_task(values, name)
    if row.problem or task.get("signature") or task.get("cases"):
        return Finding(row), None
    solution = values.get("solution")
    tests = task.get("tests")
    try:
        if not isinstance(solution, str) or not solution.strip() or not isinstance(tests, str):
            raise Unusable("has no solution, from which a signature could be derived")
        if isinstance(grader, OcamlGrader):
            signature = ocaml_signature.derive_signature(grader, solution, tests)
        else:
            signature = rust_signature.derive_signature(solution, tests)
        submission = build_submission(name, solution, {**task, "signature": signature})
    except Unusable as unusable:
        return Finding(row, [str(unusable)]), None
    except ValidationError as error:
        return Finding(row, [explain(error)]), None
    return Finding(replace_task(row, {"signature": signature})), submission


def _describe_failure(result: Graded | Faulted) -> str | None:
    """Return why the derived signature cannot be used; None when it can."""
    if isinstance(result, Faulted):
        return f"with the signature that was derived: {result.fault.message}"
    if result.passed:
        return None
    return (
        f"the reference answer gets {result.reward:.2f} with the signature that was derived:"
        f" {render_reasons(result)[:300]}"
    )
