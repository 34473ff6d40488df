"""Validation of imported drafts: which become tasks, and the findings on each. Writes nothing.

A draft without a reference answer is unproven: that its tests can be passed, nothing shows. What
can be shown is: its stub compiles, the tests compile against it, and it does not pass them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import ValidationError

from corpus.drafts import Draft
from corpus.story_task_checks import look_at
from corpus.task_validation import ValidationRules, fenced, validate
from gradus.contract import Faulted, Graded, GraderName, Stage, submission_class
from gradus.row_reader import Row
from gradus.tasks import TASKS
from gradus.tasks.story import StoryTask
from gradus.validation import explain
from services.graders.base import Grader
from services.local_grading import grade_in_order

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
    drop_failing: bool = False,
) -> Iterator[Decision]:
    """One decision per draft, in order. Without a grader, of rows only their form, and of stories
    their texts.

    `drop_failing`: a reference answer that does not pass counts as absent, and as the stub of a
    task without one.
    """
    early = [_formal(draft, name, proven_only) for draft in drafts]
    asked = [decision.draft for decision in early if not decision.problems]
    judged = iter(()) if grader is None else _judged(asked, name, grader, slots, full_marks)
    if drop_failing and grader is not None:
        judged = _again_without_solution([*judged], name, grader, slots, full_marks)
    seen: dict[str, str] = {}
    for decision in early:
        draft = decision.draft
        if decision.problems:
            yield decision
        elif grader is not None:
            yield next(judged)
        else:
            first = seen.setdefault(draft.id, draft.where)
            problems = [] if first == draft.where else [f"id: the same as at {first}"]
            if name == "story":
                problems += look_at(
                    draft.values, StoryTask.model_validate(_task(draft.values, name))
                )[0]
            yield Decision(
                draft, tuple(problems), (UNGRADED if name == "story" else "was not validated",)
            )


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


def _again_without_solution(
    decisions: Sequence[Decision],
    name: GraderName,
    grader: Grader,
    slots: int | None,
    full_marks: bool,
) -> Iterator[Decision]:
    failing = {
        id(one): one.draft for one in decisions if one.problems and _is_proven(one.draft, name)
    }
    drafts = [
        replace(draft, values={"stub": draft.values["solution"], **draft.values, "solution": None})
        for draft in failing.values()
    ]
    again = _judged(drafts, name, grader, slots, full_marks)
    for decision in decisions:
        if id(decision) in failing:
            decision = next(again)
            decision = replace(decision, warnings=(*decision.warnings, DROPPED))
        yield decision


def _judged(
    drafts: Sequence[Draft], name: GraderName, grader: Grader, slots: int | None, full_marks: bool
) -> Iterator[Decision]:
    rows = [Row(draft.where, draft.values) for draft in drafts]
    findings = validate(
        rows, name, grader, slots, ValidationRules(needs_solution=False, full_marks=full_marks)
    )
    unproven = [draft for draft in drafts if not _is_proven(draft, name)]
    with_stub = [
        draft
        for draft in unproven
        if isinstance(draft.values.get("stub"), str) and draft.values["stub"]
    ]
    asked = [
        {
            "id": "stub",
            "completion": fenced(name, draft.values["stub"]),
            "task": _task(draft.values, name),
        }
        for draft in with_stub
    ]
    submissions = [submission_class(name).model_validate(one) for one in asked]
    results = grade_in_order(grader, submissions, grader.info().rubrics[0], slots)
    stubs = {id(draft): result for draft, result in zip(with_stub, results, strict=True)}
    for draft, finding in zip(drafts, findings, strict=True):
        problems, warnings = list(finding.problems), list(finding.warnings)
        if not _is_proven(draft, name):
            warnings.append(UNPROVEN)
            if (problem := _stub_problem(stubs.get(id(draft)))) and not problems:
                problems.append(problem)
        yield Decision(draft, tuple(problems), tuple(warnings))


def _stub_problem(result: Graded | Faulted | None) -> str | None:
    """What shows that the tests do not compile with the stub; None when they do."""
    if result is None:
        return "has neither a reference answer nor a stub: nothing shows that its tests compile"
    if isinstance(result, Faulted):
        return result.fault.message
    if result.stage is not Stage.TESTS:
        said = "; ".join(diagnostic.message for diagnostic in result.diagnostics)
        return f"its stub does not come to the tests: {said}"
    return None


def _is_proven(draft: Draft, name: GraderName) -> bool:
    return name == "story" or bool(draft.values.get("solution"))


def _task(values: Mapping[str, Any], name: GraderName) -> dict[str, Any]:
    return {field: values[field] for field in TASKS[name].model_fields if values.get(field)}
