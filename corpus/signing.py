"""Signatures for tasks that have none, derived from reference answers and tests. Writes no file.

A signature is kept only where the reference answer passes all tests with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from operator import attrgetter
from typing import Any

from pydantic import ValidationError

from corpus import ocaml_signature, rust_signature
from corpus.drafts import Candidate, Unusable
from corpus.task_rows import Finding, build_submission, extract_task, replace_task
from corpus.task_validation import render_reasons
from gradus.contract import Faulted, Graded, GraderName, Submission
from gradus.row_reader import Row
from gradus.validation import explain
from services.graders.base import Grader
from services.graders.ocaml.grader import OcamlGrader
from services.local_grading import grade_in_order


@dataclass(slots=True)
class _Draft:
    """Signatures of one row that are still to be tried, and what came of those before."""

    row: Row
    task: dict[str, Any]
    candidates: Sequence[Candidate] = ()
    finding: Finding | None = None

    def build_submissions(self, name: GraderName) -> list[Submission]:
        """Return the answers to grade with the next signature; none where the row is decided."""
        if not self.candidates:
            return []
        candidate = self.candidates[0]
        task = {**self.task, "signature": candidate.signature}
        return [build_submission(name, variant, task) for variant in candidate.variants]

    def add_results(self, results: Sequence[Graded | Faulted]) -> None:
        """Accept the signature if all its answers pass, else go on to the next."""
        problems = list(filter(None, map(_describe_failure, results)))
        if problems:
            self.finding = Finding(self.row, problems[:1])
            self.candidates = self.candidates[1:]
        else:
            changes = {"signature": self.candidates[0].signature}
            self.finding = Finding(replace_task(self.row, changes))
            self.candidates = ()


def sign(
    rows: Sequence[Row], name: GraderName, grader: Grader, slots: int | None = None
) -> Iterator[Finding]:
    """Yield the signed row for each row, in order. Rows with a signature or `cases`, and those that
    cannot be signed, stay as they are."""
    drafts = [_build_draft(row, name, grader) for row in rows]
    while any(draft.candidates for draft in drafts):
        pending = list(filter(attrgetter("candidates"), drafts))
        rounds = [_build_round(draft, name) for draft in pending]
        submissions = list(chain.from_iterable(rounds))
        graded = grade_in_order(grader, submissions, grader.info().rubrics[0], slots)
        for draft, batch in zip(pending, rounds, strict=True):
            if batch:
                draft.add_results(list(islice(graded, len(batch))))
    for draft in drafts:
        yield draft.finding or Finding(draft.row)


def _build_round(draft: _Draft, name: GraderName) -> list[Submission]:
    try:
        return draft.build_submissions(name)
    except ValidationError as error:
        draft.finding = Finding(draft.row, [explain(error)])
        draft.candidates = ()
        return []


def _build_draft(row: Row, name: GraderName, grader: Grader) -> _Draft:
    """Return the row with the signatures to try, from the one that most answers fit."""
    values = row.values
    task = extract_task(values, name)
    draft = _Draft(row, task)
    if row.problem or task.get("signature") or task.get("cases"):
        return draft
    solution = values.get("solution")
    tests = task.get("tests")
    prompt = str(values.get("prompt") or "")
    try:
        if not isinstance(solution, str) or not solution.strip() or not isinstance(tests, str):
            raise Unusable("has no solution, from which a signature could be derived")
        if isinstance(grader, OcamlGrader):
            candidates = ocaml_signature.derive_signatures(grader, solution, tests, prompt)
        else:
            candidates = rust_signature.derive_signatures(solution, tests, prompt)
        draft.candidates = list(candidates)
    except Unusable as unusable:
        draft.finding = Finding(row, [str(unusable)])
    return draft


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
