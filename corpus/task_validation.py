"""Task validation: a task is usable only if its reference answer gets full marks and its stub, or
nothing, does not.

Reads rows and asks a grader; changes no file. Everything found is reported, row by row. What "full
marks" are for stories, and what their texts give away, is in `corpus.story_task_checks`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from corpus.story_task_checks import LAZY, RewardBounds, answers_to, look_at
from gradus.contract import (
    Faulted,
    Graded,
    GraderName,
    StorySubmission,
    Submission,
    submission_class,
)
from gradus.errors import Fault
from gradus.row_reader import Row
from gradus.sprint_datasets import as_task_row, sprint_columns
from gradus.tasks import TASKS
from gradus.tasks.ocaml import OcamlTask
from gradus.validation import explain
from services.graders.base import ChecksTasks, Grader
from services.graders.ocaml.attempt import GradingAttempt
from services.graders.ocaml.grader import OcamlGrader
from services.local_grading import grade_in_order

DESCRIBING = frozenset(
    {
        "difficulty",
        "topics",
        "kind",
        "source",
        "licence",
        "license",
        "tags",
        "title",
        "notes",
        "group",
        "message",
    }
)
EMPTY = ""
UNJUDGED = frozenset({"sprint_name", "num_issues"})
"""Columns of sprint data sets that are no part of a task."""


@dataclass
class Finding:
    """What is wrong with one row; nothing when `problems` is empty."""

    where: str
    task_id: str
    problems: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class ValidationRules:
    """Requirements on code tasks that imports of other people's tasks may relax."""

    needs_solution: bool = True
    full_marks: bool = True
    """Whether the reference answer must earn full marks. If false, it only has to pass all tests,
    in any style."""


STRICT = ValidationRules()


@dataclass(frozen=True, slots=True)
class _Attempt:
    """One answer to one task, and what it must earn: full marks, anything but a pass, or a reward
    within `bounds`."""

    finding: Finding
    which: str
    submission: Submission
    must_pass: bool
    bounds: RewardBounds | None = None
    full_marks: bool = True
    solution: str | None = None
    """The task's reference answer, if it has one."""


def validate(
    rows: Iterable[Row],
    name: GraderName,
    grader: Grader,
    slots: int | None = None,
    rules: ValidationRules = STRICT,
) -> Iterator[Finding]:
    """One finding per row, in order, as they become known."""
    findings: list[Finding] = []
    attempts: list[_Attempt] = []
    seen: dict[str, str] = {}
    for row in rows:
        finding, some = _read(row, name, seen, rules)
        findings.append(finding)
        attempts += some
    results = grade_in_order(
        grader, [attempt.submission for attempt in attempts], grader.info().rubrics[0], slots
    )
    left = Counter(id(attempt.finding) for attempt in attempts)
    last = {id(attempt.finding): attempt for attempt in attempts}
    unproven = {id(finding) for finding in findings} - {
        id(a.finding) for a in attempts if a.must_pass
    }

    def complete(finding: Finding) -> Finding:
        """The finding, with what the grader can say of a task without a reference answer that
        passes."""
        known = last.get(id(finding))
        if (
            known is not None
            and isinstance(grader, ChecksTasks)
            and (finding.problems or id(finding) in unproven)
        ):
            try:
                problem = grader.task_problem(known.submission.task, known.solution)
            except Fault as fault:
                problem = fault.message
            if problem and not any(problem in one for one in finding.problems):
                finding.problems.append(problem)
        return finding

    waiting = iter(findings)
    current = next(waiting, None)
    for attempt, result in zip(attempts, results, strict=True):
        _judge(attempt, result)
        left[id(attempt.finding)] -= 1
        while current is not None and not left[id(current)]:
            yield complete(current)
            current = next(waiting, None)
    while current is not None:
        yield complete(current)
        current = next(waiting, None)


def compared_outside(grader: OcamlGrader, rows: Iterable[Row]) -> tuple[int, int]:
    """Tests of usable OCaml tasks whose expected values stay outside the answer's process, and all
    tests."""
    outside = total = 0
    for row in rows:
        values = as_task_row(row.values, "ocaml")
        fields = {
            key: value for key, value in values.items() if key in OcamlTask.model_fields and value
        }
        task = OcamlTask.model_validate(values.get("task") or fields)
        grader.judged(attempt := GradingAttempt(task, values["solution"], slot=0))
        outside, total = outside + attempt.outside[0], total + attempt.outside[1]
    return outside, total


def _read(
    row: Row, name: GraderName, seen: dict[str, str], rules: ValidationRules
) -> tuple[Finding, list[_Attempt]]:
    finding = Finding(row.where, str(row.values.get("id", "")))
    if row.problem is not None:
        finding.problems.append(row.problem)
        return finding, []
    row = Row(row.where, as_task_row(row.values, name))
    finding.task_id = str(row.values.get("id", ""))
    columns = {*TASKS[name].model_fields, *sprint_columns(name)}
    unknown = set(row.values) - DESCRIBING - columns - {"id", "prompt", "solution", "stub", "task"}
    if unknown:
        finding.problems.append(f"unknown fields: {', '.join(sorted(unknown))}")
    _check_texts(row, finding, name, seen, rules)
    task = row.values.get("task") or {
        key: value for key, value in row.values.items() if key in columns and value
    }
    if name == "story":
        return finding, _story_attempts(row, finding, task, seen)
    answers = {
        "solution": row.values.get("solution"),
        "stub": row.values.get("stub"),
        "an empty answer": EMPTY,
    }
    attempts = []
    for which, text in answers.items():
        if isinstance(text, str) and (text or which not in ("solution", "stub")):
            submission = _submission(finding, name, which, text, task)
            if submission is None:
                return finding, []
            must_pass, solution = which == "solution", answers["solution"] or None
            full_marks = rules.full_marks
            attempts.append(
                _Attempt(
                    finding, which, submission, must_pass, full_marks=full_marks, solution=solution
                )
            )
    return finding, attempts + _on_public_tests(finding, name, answers["solution"], task)


def _on_public_tests(
    finding: Finding, name: GraderName, solution: Any, task: Mapping[str, Any]
) -> list[_Attempt]:
    """The reference answer against each public test."""
    attempts = []
    for number, test in enumerate(task.get("public_tests") or (), start=1):
        if str(test).strip() in str(task.get("tests")):
            finding.problems.append(f"public_tests: number {number} is also among the hidden tests")
        submission = _submission(
            finding, name, "solution", str(solution), {**task, "tests": test, "public_tests": []}
        )
        if submission is not None and isinstance(solution, str):
            attempts.append(
                _Attempt(
                    finding, f"public test {number}", submission, must_pass=True, full_marks=False
                )
            )
    return attempts


def _story_attempts(row: Row, finding: Finding, given: Any, seen: dict[str, str]) -> list[_Attempt]:
    task = (
        {key: value for key, value in given.items() if key not in UNJUDGED}
        if isinstance(given, dict)
        else given
    )
    empty = _submission(finding, "story", "an empty answer", EMPTY, task)
    if not isinstance(empty, StorySubmission):
        return []
    problems, warnings = look_at(row.values, empty.task)
    finding.problems += problems
    finding.warnings += warnings
    _check_new(row, finding.warnings, "references", " ".join(sorted(empty.task.references)), seen)
    attempts = [_Attempt(finding, "an empty answer", empty, False, LAZY)]
    for which, text, bounds in answers_to(row.values, empty.task):
        if submission := _submission(finding, "story", which, text, task):
            attempts.append(_Attempt(finding, which, submission, False, bounds))
    return attempts


def _check_texts(
    row: Row, finding: Finding, name: GraderName, seen: dict[str, str], rules: ValidationRules
) -> None:
    values = row.values
    is_code = name != "story"
    for column in (
        ("id", "prompt", "solution") if is_code and rules.needs_solution else ("id", "prompt")
    ):
        if not isinstance(values.get(column), str) or not values[column].strip():
            finding.problems.append(f"{column}: is missing or empty")
    if is_code and not values.get("stub"):
        finding.warnings.append("has no stub, so nothing shows that doing nothing fails")
    if is_code and not values.get("signature") and not values.get("cases"):
        finding.warnings.append("has no signature, so tests see whatever the answer defines")
    for what in ("id", "prompt"):
        if values.get(what):
            _check_new(row, finding.problems, what, str(values[what]), seen)


def _check_new(row: Row, told: list[str], what: str, text: str, seen: dict[str, str]) -> None:
    key = f"{what} {text}"
    if key in seen:
        told.append(f"{what}: the same as at {seen[key]}")
    seen.setdefault(key, row.where)


def _submission(
    finding: Finding, name: GraderName, which: str, text: str, task: Any
) -> Submission | None:
    try:
        return submission_class(name).model_validate(
            {"id": which, "completion": fenced(name, text), "task": task}
        )
    except ValidationError as error:
        finding.problems.append(explain(error))
        return None


def fenced(name: GraderName, code: str) -> str:
    """`code` as a model would write it, behind a fence that is longer than any in the code."""
    if not code:
        return EMPTY
    if name == "story":
        return code
    fence = "`" * (max([2, *map(len, re.findall("`+", code))]) + 1)
    return f"{fence}{name}\n{code}\n{fence}"


def _judge(attempt: _Attempt, result: Graded | Faulted) -> None:
    problems = attempt.finding.problems
    if isinstance(result, Faulted):
        if result.fault.message not in problems:
            problems.append(result.fault.message)
    elif attempt.bounds is not None:
        if problem := attempt.bounds.missed_by(attempt.which, result):
            (problems if attempt.bounds.is_needed else attempt.finding.warnings).append(problem)
    elif attempt.must_pass and (result.reward < 1.0 if attempt.full_marks else not result.passed):
        reasons = "; ".join(diagnostic.message for diagnostic in result.diagnostics) or ", ".join(
            result.flags
        )
        what = "the reference answer" + (
            f", on {attempt.which}," if attempt.which != "solution" else ""
        )
        problems.append(
            f"{what} gets {result.reward:.2f} at stage {result.stage}, not 1.00: {reasons}"
        )
    elif not attempt.must_pass and result.passed:
        problems.append(f"{attempt.which} passes all tests: they prove nothing")
