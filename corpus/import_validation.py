"""Validation of imported rows: which become tasks, and the findings on each. Writes nothing.

A row without a reference answer is unproven: that its tests can be passed, nothing shows. What
can be shown is: its stub compiles, the tests compile against it, and it does not pass them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from typing import Any

from corpus.task_validation import ANSWER, ValidationRules, validate
from gradus.contract import GraderName
from gradus.row_reader import Row
from services.graders.base import Grader

UNGRADED = "was not graded; --validate grades what its references and a copy of its goal earn"
DROPPED = "had a reference answer that does not pass, which is left out"
UNPROVEN = "has no reference answer, so nothing shows that its tests can be passed"


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether an imported row is a task."""

    row: Row
    problems: Sequence[str] = ()
    """Why it is no task; none when it is one."""
    warnings: Sequence[str] = ()

    @property
    def rejected(self) -> dict[str, Any]:
        """The row that tells of a rejected one."""
        values = self.row.values
        reasons = [*self.problems]
        return {"where": self.row.where, "id": values.get("id"), "reasons": reasons, "row": values}


def decide(
    rows: Sequence[Row],
    name: GraderName,
    grader: Grader | None,
    slots: int | None = None,
    *,
    full_marks: bool = True,
) -> Iterator[Decision]:
    """Yield one decision per row, in order. Without a grader, the rows are looked at only."""
    rules = ValidationRules(needs_solution=False, full_marks=full_marks)
    for row, finding in zip(rows, validate(rows, name, grader, slots, rules), strict=True):
        warnings = list(finding.warnings)
        if not _is_proven(row, name):
            warnings.append(UNPROVEN)
        if grader is None:
            warnings.append(UNGRADED if name == "story" else "was not validated")
        yield Decision(row, finding.problems, warnings)


def decide_without_failing(
    decisions: Sequence[Decision],
    name: GraderName,
    grader: Grader,
    slots: int | None = None,
    *,
    full_marks: bool = True,
) -> Iterator[Decision]:
    """Yield the decisions, with a new one for each row whose reference answer does not pass: it
    counts as absent, and as the stub of a task without one."""
    failing = ["\n".join(one.problems).startswith(ANSWER) for one in decisions]
    rows = []
    for decision in compress(decisions, failing):
        values = decision.row.values
        given = {"stub": values["solution"], **values, "solution": None}
        rows.append(replace(decision.row, values=given))
    again = decide(rows, name, grader, slots, full_marks=full_marks)
    for decision, is_failing in zip(decisions, failing, strict=True):
        if is_failing:
            new = next(again)
            yield replace(new, warnings=[*new.warnings, DROPPED])
        else:
            yield decision


def decide_examples(rows: Iterable[Row]) -> Iterator[Decision]:
    """Yield one decision per worked example, which has no tests: an empty one is rejected, and one
    that repeats an earlier one."""
    seen: dict[tuple[str, str], str] = {}
    for row in rows:
        if row.problem is not None:
            yield Decision(row, [row.problem])
            continue
        first = seen.setdefault((row.values["prompt"], row.values["completion"]), row.where)
        yield Decision(row, [] if first == row.where else [f"the same as at {first}"])


def _is_proven(row: Row, name: GraderName) -> bool:
    return name == "story" or bool(row.values.get("solution"))
