"""Task validation: a task is usable only if its reference answer gets full marks and its stub, or
nothing, does not.

Reads rows and asks a grader; changes no file. Everything found is reported, row by row. What "full
marks" are for stories, and what their texts give away, is in `corpus.story_task_checks`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import ValidationError

from corpus.story_task_checks import LAZY, RewardBounds, check_references, generate_answers
from corpus.task_rows import Finding, build_submission, extract_task, find_task_class, list_columns
from gradus.contract import Faulted, Graded, GraderName, Stage, Submission
from gradus.errors import Fault
from gradus.row_reader import Row
from gradus.tasks.ocaml import OcamlTask
from gradus.tasks.program import ProgramTask
from gradus.validation import explain
from services.graders.base import ChecksTasks, Grader
from services.graders.ocaml.attempt import GradingAttempt
from services.graders.ocaml.grader import OcamlGrader
from services.graders.rust.grader import RustGrader
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
ANSWER = "the reference answer"
NO_STUB = "has no stub, so nothing shows that doing nothing fails"
NO_SIGNATURE = "has no signature, so tests see whatever the answer defines"
REFERENCE_COLUMNS = frozenset({"references", "formatted_issues"})
NO_REFERENCES = (
    "references: has no reference stories, with which answers are compared; write them, or train on"
    " prompts alone with the grader `preference`"
)


@dataclass(frozen=True, slots=True)
class _Attempt:
    """One answer to one task, and what it must earn or reach. A stub fails the tests, and where no
    answer proves the task, it has to compile with them."""

    which: str
    submission: Submission
    expected: Literal["full marks", "a pass", "no pass", "the tests"] | RewardBounds


def validate(
    rows: Sequence[Row],
    name: GraderName,
    grader: Grader | None,
    slots: int | None = None,
    *,
    needs_solution: bool = True,
    full_marks: bool = True,
) -> Iterator[Finding]:
    """Yield one finding per row, in order, as they become known. Without a grader, nothing is
    graded.

    Without `full_marks`, the reference answer of a code task only has to pass all tests, in any
    style.
    """
    first_places: dict[str, str] = {}
    readings = [_read_row(row, name, first_places, needs_solution, full_marks) for row in rows]
    if grader is None:
        for finding, _ in readings:
            yield finding
        return
    submissions = [attempt.submission for _, attempts in readings for attempt in attempts]
    results = grade_in_order(grader, submissions, grader.info().rubrics[0], slots)
    for row, (finding, attempts) in zip(rows, readings, strict=True):
        for attempt in attempts:
            _check_result(finding, attempt, next(results))
        is_proven = any(attempt.which == ANSWER for attempt in attempts)
        is_doubtful = bool(finding.problems) or not is_proven
        if attempts and is_doubtful and isinstance(grader, ChecksTasks):
            try:
                solution = row.values.get("solution") or None
                problem = grader.task_problem(attempts[0].submission.task, solution)
            except Fault as fault:
                problem = fault.message
            if problem and not any(problem in message for message in finding.problems):
                finding.problems.append(problem)
        if isinstance(grader, OcamlGrader) and is_proven and not finding.problems:
            task = OcamlTask.model_validate(attempts[0].submission.task)
            finding.warnings += grader.find_task_warnings(task, row.values["solution"])
        yield finding


def count_outside_tests(grader: OcamlGrader | RustGrader, rows: Iterable[Row]) -> tuple[int, int]:
    """Return the tests of usable tasks whose expected values stay outside the answer's process, and
    all tests."""
    outside = 0
    total = 0
    for row in rows:
        if isinstance(grader, RustGrader):
            submission = build_submission(
                "rust", row.values["solution"], extract_task(row.values, "rust")
            )
            counted = grader.count_outside_tests(submission)
            outside += counted[0]
            total += counted[1]
            continue
        task = OcamlTask.model_validate(extract_task(row.values, "ocaml"))
        grader.collect_facts(attempt := GradingAttempt(task, row.values["solution"], slot=0))
        outside += attempt.outside[0]
        total += attempt.outside[1]
    return outside, total


def _read_row(
    row: Row, name: GraderName, first_places: dict[str, str], needs_solution: bool, full_marks: bool
) -> tuple[Finding, list[_Attempt]]:
    """Return what the row itself shows, and what to grade: nothing where it holds no task."""
    if row.problem is not None:
        return Finding(row, [row.problem]), []
    values = row.values
    finding = Finding(row)
    unknown = set(values) - DESCRIBING - list_columns(name)
    if unknown:
        finding.problems.append(f"unknown fields: {', '.join(sorted(unknown))}")
    task = values.get("task") or extract_task(values, name)
    if name == "story" and isinstance(task, dict) and not task.keys() & REFERENCE_COLUMNS:
        finding.problems.append(NO_REFERENCES)
        return finding, []
    _check_texts(finding, name, first_places, needs_solution)
    try:
        if name == "story":
            return finding, _build_story_attempts(finding, task, first_places)
        return finding, _build_code_attempts(finding, name, task, full_marks)
    except ValidationError as error:
        finding.problems.append(explain(error))
        return finding, []


def _build_code_attempts(
    finding: Finding, name: GraderName, task: Any, full_marks: bool
) -> list[_Attempt]:
    values = finding.row.values
    solution, stub = values.get("solution"), values.get("stub")
    attempts = []
    if isinstance(solution, str) and solution:
        expected: Literal["full marks", "a pass"] = "full marks" if full_marks else "a pass"
        attempts.append(_Attempt(ANSWER, build_submission(name, solution, task), expected))
    if isinstance(stub, str) and stub:
        submission = build_submission(name, stub, task)
        attempts.append(_Attempt("stub", submission, "no pass" if attempts else "the tests"))
    empty = build_submission(name, "", task)
    attempts.append(_Attempt("an empty answer", empty, "no pass"))
    for number, test in enumerate(getattr(empty.task, "public_tests", ()), start=1):
        if test.strip() in str(task.get("tests")):
            finding.problems.append(f"public_tests: number {number} is also among the hidden tests")
        if isinstance(solution, str) and solution:
            which = f"{ANSWER}, on public test {number},"
            alone = build_submission(name, solution, {**task, "tests": test, "public_tests": []})
            attempts.append(_Attempt(which, alone, "a pass"))
    if isinstance(empty.task, ProgramTask) and empty.task.public_cases:
        hidden = {case.model_dump_json() for case in empty.task.cases}
        for number, case in enumerate(empty.task.public_cases, start=1):
            if case.model_dump_json() in hidden:
                finding.problems.append(
                    f"public_cases: number {number} is also among the hidden cases"
                )
        if isinstance(solution, str) and solution:
            shown = {**task, "cases": task["public_cases"], "public_cases": [], "points": {}}
            public = build_submission(name, solution, shown)
            attempts.append(_Attempt(f"{ANSWER}, on its public cases,", public, "a pass"))
    return attempts


def _build_story_attempts(
    finding: Finding, task: Any, first_places: dict[str, str]
) -> list[_Attempt]:
    row = finding.row
    empty = build_submission("story", "", task)
    problems, warnings = check_references(row.values, empty.task)
    finding.problems += problems
    finding.warnings += warnings
    _check_new(
        row, finding.warnings, "references", " ".join(sorted(empty.task.references)), first_places
    )
    attempts = [_Attempt("an empty answer", empty, LAZY)]
    for which, text, bounds in generate_answers(row.values, empty.task):
        attempts.append(_Attempt(which, build_submission("story", text, task), bounds))
    return attempts


def _check_texts(
    finding: Finding, name: GraderName, first_places: dict[str, str], needs_solution: bool
) -> None:
    values = finding.row.values
    is_code = name != "story"
    needed = ["id", "prompt"]
    if is_code and needs_solution:
        needed.append("solution")
    for column in needed:
        if not isinstance(values.get(column), str) or not values[column].strip():
            finding.problems.append(f"{column}: is missing or empty")
    if is_code and not (needs_solution or values.get("stub") or values.get("solution")):
        finding.problems.append(
            "has neither a reference answer nor a stub: nothing shows that its tests compile;"
            " add a `solution`, or a `stub` that fails them"
        )
    elif is_code and not values.get("stub"):
        finding.warnings.append(NO_STUB)
    has_signature = "signature" in find_task_class(name).model_fields
    if has_signature and not values.get("signature") and not values.get("cases"):
        finding.warnings.append(NO_SIGNATURE)
    for key in ("id", "prompt"):
        if values.get(key):
            _check_new(finding.row, finding.problems, key, str(values[key]), first_places)


def _check_new(
    row: Row, messages: list[str], key: str, text: str, first_places: dict[str, str]
) -> None:
    first = first_places.setdefault(f"{key} {text}", row.where)
    if first != row.where:
        messages.append(f"{key}: the same as at {first}")


def _check_result(finding: Finding, attempt: _Attempt, result: Graded | Faulted) -> None:
    problems = finding.problems
    if isinstance(result, Faulted):
        if result.fault.message not in problems:
            problems.append(result.fault.message)
    elif isinstance(attempt.expected, RewardBounds):
        if problem := attempt.expected.describe_miss(attempt.which, result):
            problems.append(problem)
    elif attempt.expected in ("no pass", "the tests"):
        if result.passed:
            problems.append(f"{attempt.which} passes all tests: they prove nothing")
        elif attempt.expected == "the tests" and result.stage is not Stage.TESTS:
            problems.append(f"its stub does not come to the tests: {render_reasons(result)}")
    elif not result.passed or (attempt.expected == "full marks" and result.reward < 1.0):
        problems.append(
            f"{attempt.which} gets {result.reward:.2f} at stage {result.stage}, not 1.00:"
            f" {render_reasons(result)}"
        )
    elif attempt.which == ANSWER and result.reward < 1.0:
        finding.warnings.append(
            f"{ANSWER} passes with {result.reward:.2f}: {render_reasons(result)}"
        )


def render_reasons(result: Graded) -> str:
    """Return the messages of a verdict; its flags where it has none."""
    messages = "; ".join(diagnostic.message for diagnostic in result.diagnostics)
    return messages or ", ".join(result.flags)
