"""Validation of imported drafts: which become tasks, and the findings on each. Writes nothing.

A draft without a reference answer is unproven: that its tests can be passed, nothing shows. What can be shown is: its
stub compiles, the tests compile against it, and it does not pass them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from corpus.drafts import Draft
from corpus.task_validation import ValidationRules, fenced, validate
from gradus.contract import Faulted, Graded, GraderName, Stage, Submission, submission_class
from gradus.row_reader import Row
from gradus.tasks import TASKS
from gradus.validation import explain
from services.graders.base import Grader
from services.local_grading import grade_in_order

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
        return {"where": self.draft.where, "id": self.draft.id, "reasons": [*self.problems], "row": self.draft.values}


def decide(
    drafts: Sequence[Draft],
    name: GraderName,
    grader: Grader | None,
    slots: int | None = None,
    *,
    full_marks: bool = True,
    proven_only: bool = False,
) -> Iterator[Decision]:
    """One decision per draft, in order. Without a grader only the form of rows is looked at."""
    early = [_formal(draft, name, proven_only) for draft in drafts]
    asked = [decision.draft for decision in early if not decision.problems]
    judged: Iterator[Decision]
    judged = _unjudged(asked) if grader is None else _judged(asked, name, grader, slots, full_marks)
    for decision in early:
        yield decision if decision.problems else next(judged)


def _formal(draft: Draft, name: GraderName, proven_only: bool) -> Decision:
    if draft.problem is not None:
        return Decision(draft, (draft.problem,))
    if proven_only and not _is_proven(draft, name):
        return Decision(draft, (UNPROVEN,))
    try:
        TASKS[name].model_validate(_task(draft.values, name))
    except ValidationError as error:
        return Decision(draft, (explain(error),))
    return Decision(draft)


def _unjudged(drafts: Sequence[Draft]) -> Iterator[Decision]:
    """Only duplicates are found."""
    seen: dict[str, str] = {}
    for draft in drafts:
        first = seen.setdefault(draft.id, draft.where)
        yield Decision(draft, () if first == draft.where else (f"id: the same as at {first}",), ("was not validated",))


def _judged(
    drafts: Sequence[Draft], name: GraderName, grader: Grader, slots: int | None, full_marks: bool
) -> Iterator[Decision]:
    rows = [Row(draft.where, draft.values) for draft in drafts]
    findings = validate(rows, name, grader, slots, ValidationRules(needs_solution=False, full_marks=full_marks))
    unproven = [draft for draft in drafts if not _is_proven(draft, name)]
    stubs = _stub_problems(unproven, name, grader, slots)
    for draft, finding in zip(drafts, findings, strict=True):
        problems, warnings = list(finding.problems), list(finding.warnings)
        if not _is_proven(draft, name):
            warnings.append(UNPROVEN)
            if (problem := next(stubs)) and not problems:
                problems.append(problem)
        yield Decision(draft, tuple(problems), tuple(warnings))


def _stub_problems(
    drafts: Sequence[Draft], name: GraderName, grader: Grader, slots: int | None
) -> Iterator[str | None]:
    """What shows of each draft that its tests do not compile with its stub; None for what does."""
    with_stub = [(draft, made) for draft in drafts if (made := _stub_submission(draft, name)) is not None]
    results = grade_in_order(grader, [made for _, made in with_stub], grader.info().rubrics[0], slots)
    known = {id(draft): result for (draft, _), result in zip(with_stub, results, strict=True)}
    for draft in drafts:
        yield _stub_problem(known.get(id(draft)))


def _stub_problem(result: Graded | Faulted | None) -> str | None:
    if result is None:
        return "has neither a reference answer nor a stub: nothing shows that its tests compile"
    if isinstance(result, Faulted):
        return result.fault.message
    if result.stage is not Stage.TESTS:
        said = "; ".join(diagnostic.message for diagnostic in result.diagnostics)
        return f"its stub does not come to the tests: {said}"
    return None


def _stub_submission(draft: Draft, name: GraderName) -> Submission | None:
    stub = draft.values.get("stub")
    if not isinstance(stub, str) or not stub:
        return None
    asked = {"id": "stub", "completion": fenced(name, stub), "task": _task(draft.values, name)}
    return submission_class(name).model_validate(asked)


def _is_proven(draft: Draft, name: GraderName) -> bool:
    return name == "story" or bool(draft.values.get("solution"))


def _task(values: Mapping[str, Any], name: GraderName) -> dict[str, Any]:
    return {field: values[field] for field in TASKS[name].model_fields if values.get(field)}
