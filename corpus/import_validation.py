"""Validation of imported rows: which become tasks, and the findings on each. Writes nothing.

A row without a reference answer is unproven: that its tests can be passed, nothing shows. What
can be shown is: its stub compiles, the tests compile against it, and it does not pass them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import compress

from corpus.task_rows import Finding
from corpus.task_validation import ANSWER, validate
from gradus.contract import GraderName
from gradus.row_reader import Row
from services.graders.base import Grader

UNGRADED = "was not graded; --validate grades what its references and a copy of its goal earn"
DROPPED = "had a reference answer that does not pass, which is left out"
UNPROVEN = "has no reference answer, so nothing shows that its tests can be passed"


def check_rows(
    rows: Sequence[Row],
    name: GraderName,
    grader: Grader | None,
    slots: int | None = None,
    *,
    full_marks: bool = True,
) -> Iterator[Finding]:
    """Yield one finding per row, in order. Without a grader, the rows are looked at only."""
    for finding in validate(rows, name, grader, slots, needs_solution=False, full_marks=full_marks):
        if name != "story" and not finding.row.values.get("solution"):
            finding.warnings.append(UNPROVEN)
        if grader is None:
            finding.warnings.append(UNGRADED if name == "story" else "was not validated")
        yield finding


def recheck_failing(
    findings: Sequence[Finding],
    name: GraderName,
    grader: Grader,
    slots: int | None = None,
    *,
    full_marks: bool = True,
) -> Iterator[Finding]:
    """Yield the findings, with a new one for each row whose reference answer does not pass: it
    counts as absent, and as the stub of a task without one."""
    failing = ["\n".join(earlier.problems).startswith(ANSWER) for earlier in findings]
    rows = []
    for finding in compress(findings, failing):
        values = finding.row.values
        new_values = {"stub": values["solution"], **values, "solution": None}
        rows.append(replace(finding.row, values=new_values))
    again = check_rows(rows, name, grader, slots, full_marks=full_marks)
    for finding, is_failing in zip(findings, failing, strict=True):
        if is_failing:
            finding = next(again)
            finding.warnings.append(DROPPED)
        yield finding


def check_examples(rows: Iterable[Row]) -> Iterator[Finding]:
    """Yield one finding per worked example, which has no tests: an empty one is rejected, and one
    that repeats an earlier one."""
    first_places: dict[tuple[str, str], str] = {}
    for row in rows:
        if row.problem is not None:
            yield Finding(row, [row.problem])
            continue
        first = first_places.setdefault((row.values["prompt"], row.values["completion"]), row.where)
        yield Finding(row, [] if first == row.where else [f"the same as at {first}"])
