"""Validation of imported drafts: which become tasks, and the findings on each. Writes nothing.

A draft without a reference answer is unproven: that its tests can be passed, nothing shows. What
can be shown is: its stub compiles, the tests compile against it, and it does not pass them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from typing import Any

from corpus.drafts import Draft
from corpus.task_validation import ANSWER, ValidationRules, validate
from gradus.contract import GraderName
from gradus.row_reader import Row
from services.graders.base import Grader

UNGRADED = "was not graded; --validate grades what its references and a copy of its goal earn"
DROPPED = "had a reference answer that does not pass, which is left out"
UNPROVEN = "has no reference answer, so nothing shows that its tests can be passed"


@dataclass(frozen=True, slots=True)
class Decision:
    draft: Draft
    problems: Sequence[str] = ()
    """Why it is no task; none when it is one."""
    warnings: Sequence[str] = ()

    @property
    def rejected(self) -> dict[str, Any]:
        """The row that tells of a rejected draft."""
        return {
            "where": self.draft.where,
            "id": self.draft.id,
            "reasons": [*self.problems],
            "row": self.draft.values,
        }


def decide(
    drafts: Sequence[Draft],
    name: GraderName,
    grader: Grader | None,
    slots: int | None = None,
    *,
    full_marks: bool = True,
    proven_only: bool = False,
) -> Iterator[Decision]:
    """Yield one decision per draft, in order. Without a grader, only the rows are looked at."""
    rows = []
    for draft in drafts:
        is_refused = proven_only and draft.problem is None and not _is_proven(draft, name)
        rows.append(Row(draft.where, draft.values, UNPROVEN if is_refused else draft.problem))
    rules = ValidationRules(needs_solution=False, full_marks=full_marks)
    for draft, finding in zip(drafts, validate(rows, name, grader, slots, rules), strict=True):
        warnings = list(finding.warnings)
        if not _is_proven(draft, name):
            warnings.append(UNPROVEN)
        if grader is None:
            warnings.append(UNGRADED if name == "story" else "was not validated")
        yield Decision(draft, tuple(finding.problems), tuple(warnings))


def decide_without_failing(
    decisions: Sequence[Decision],
    name: GraderName,
    grader: Grader,
    slots: int | None = None,
    *,
    full_marks: bool = True,
) -> Iterator[Decision]:
    """Yield the decisions, with a new one for each draft whose reference answer does not pass: it
    counts as absent, and as the stub of a task without one."""
    failing = ["\n".join(one.problems).startswith(ANSWER) for one in decisions]
    drafts = []
    for decision in compress(decisions, failing):
        values = decision.draft.values
        given = {"stub": values["solution"], **values, "solution": None}
        drafts.append(replace(decision.draft, values=given))
    again = decide(drafts, name, grader, slots, full_marks=full_marks)
    for decision, is_failing in zip(decisions, failing, strict=True):
        if is_failing:
            new = next(again)
            yield replace(new, warnings=(*new.warnings, DROPPED))
        else:
            yield decision


def decide_examples(drafts: Iterable[Draft]) -> Iterator[Decision]:
    """Yield one decision per draft of a worked example, which has no tests: an empty one is
    rejected, and one that repeats an earlier one."""
    seen: dict[tuple[str, str], str] = {}
    for draft in drafts:
        if draft.problem is not None:
            yield Decision(draft, (draft.problem,))
            continue
        content = (draft.values["prompt"], draft.values["completion"])
        first = seen.setdefault(content, draft.where)
        yield Decision(draft, () if first == draft.where else (f"the same as at {first}",))


def _is_proven(draft: Draft, name: GraderName) -> bool:
    return name == "story" or bool(draft.values.get("solution"))
