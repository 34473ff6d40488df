"""Diagnosis of task rows: the state of each, the cause in one line, the test that fails, and a
repair that was tried. Writes no file.

The checks are those of `gradus tasks validate` and `import`. A repair counts only if the row passes
them with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import islice
from typing import Any

from corpus.drafts import Unusable
from corpus.public_tests import SINGLE_TESTS
from corpus.task_repairs import (
    LAST_OCAML_REPAIRS,
    REPAIRS,
    Repair,
    add_id,
    keep_unknown_columns,
    rename_columns,
)
from corpus.task_rows import Finding, build_submission, extract_task
from corpus.task_validation import validate
from gradus.contract import Graded, GraderName
from gradus.row_reader import Row
from services.graders.base import Grader
from services.local_grading import grade_in_order

Show = Callable[[Iterable[Finding], int, str], Iterable[Finding]]
MAX_CAUSE_CHARS = 300


def pass_through(findings: Iterable[Finding], total: int, label: str) -> Iterable[Finding]:
    """Return the findings; nothing is shown."""
    return findings


class RowState(StrEnum):
    USABLE = "usable"
    REPAIRED = "repaired"
    NEEDS_YOU = "needs you"


@dataclass(frozen=True, slots=True)
class FailingTest:
    """A test that the row's own solution fails. For the author: answers never see it."""

    line: int
    """1-based, in the row's `tests`."""
    text: str


@dataclass(frozen=True, slots=True)
class Diagnosis:
    row: Row
    """The row as it was read."""
    state: RowState
    cause: str = ""
    """Why the row as it was read is not usable, in one line."""
    repaired: Row | None = None
    repairs: tuple[str, ...] = ()
    failing: tuple[FailingTest, ...] = ()
    warnings: tuple[str, ...] = ()


def diagnose(
    rows: Sequence[Row],
    name: GraderName,
    grader: Grader | None,
    slots: int | None = None,
    show: Show = pass_through,
) -> Iterator[Diagnosis]:
    """Yield one diagnosis per row, in order. Without a grader, rows are only read.

    `show` is given the findings of each pass over the rows, their number and a label.
    """
    findings = validate(rows, name, grader, slots, needs_solution=False)
    # each pass ends before the next: two of them would use the same slots of the grader
    before = list(show(findings, len(rows), "checking"))
    changed: dict[int, tuple[Row, tuple[str, ...]]] = {}
    for index, finding in enumerate(before):
        if finding.problems:
            repaired, repairs = _repair(rows[index], name)
            if repairs:
                changed[index] = (repaired, repairs)
    final = list(rows)
    for index, (repaired, _) in changed.items():
        final[index] = repaired
    tried = validate([final[index] for index in changed], name, grader, slots, needs_solution=False)
    after = dict(zip(changed, show(tried, len(changed), "repairing"), strict=True))
    # reads only: finds what repaired rows repeat of others
    read = list(validate(final, name, None, needs_solution=False))
    for index, finding in enumerate(before):
        row = rows[index]
        if not finding.problems:
            yield Diagnosis(row, RowState.USABLE, warnings=tuple(finding.warnings))
            continue
        repaired, repairs = changed.get(index, (row, ()))
        last = after.get(index, finding)
        problems = [*last.problems, *read[index].problems]
        if problems:
            yield _diagnose_failing(row, repaired, repairs, problems[0], name, grader, slots)
        else:
            cause = _shorten(finding.problems[0])
            warnings = tuple(last.warnings)
            yield Diagnosis(row, RowState.REPAIRED, cause, repaired, repairs, (), warnings)


def _diagnose_failing(
    row: Row,
    changed: Row,
    repairs: tuple[str, ...],
    problem: str,
    name: GraderName,
    grader: Grader | None,
    slots: int | None,
) -> Diagnosis:
    """Return the diagnosis of a row that the usual repairs do not mend: the last ones are tried,
    and its failing tests are looked for."""
    cause = _shorten(problem)
    if grader is None or changed.problem is not None:
        return Diagnosis(row, RowState.NEEDS_YOU, cause, repairs=repairs)
    failing = _find_failing_tests(changed, name, grader, slots)
    last_values, last_repairs = _apply_last(changed, name)
    if last_repairs:
        last = replace(changed, values=last_values)
        [finding] = validate([last], name, grader, slots, needs_solution=False)
        if not finding.problems:
            every = (*repairs, *last_repairs)
            warnings = tuple(finding.warnings)
            return Diagnosis(row, RowState.REPAIRED, cause, last, every, failing, warnings)
    return Diagnosis(row, RowState.NEEDS_YOU, cause, repairs=repairs, failing=failing)


def _apply_last(row: Row, name: GraderName) -> tuple[dict[str, Any], tuple[str, ...]]:
    values = dict(row.values)
    messages = []
    for make in LAST_OCAML_REPAIRS if name == "ocaml" else ():
        repair = make(values)
        if repair is not None:
            values = repair.values
            messages.append(repair.message)
    return values, tuple(messages)


def _repair(row: Row, name: GraderName) -> tuple[Row, tuple[str, ...]]:
    """Return the row with every repair that has something to do, and their messages."""
    if row.problem is not None:
        return row, ()
    values: dict[str, Any] = dict(row.values)
    messages = []

    def apply(repair: Repair | None) -> None:
        nonlocal values
        if repair is not None:
            values = repair.values
            messages.append(repair.message)

    apply(rename_columns(values, name))
    apply(add_id(values, row.where))
    for make in REPAIRS.get(name, ()):
        apply(make(values))
    # last: repairs may read columns that no task has
    apply(keep_unknown_columns(values, name))
    return replace(row, values=values), tuple(messages)


def _find_failing_tests(
    row: Row, name: GraderName, grader: Grader, slots: int | None
) -> tuple[FailingTest, ...]:
    """Return the tests that the row's solution fails when each runs alone; none where the tests
    cannot be split."""
    task = extract_task(row.values, name)
    tests = task.get("tests")
    solution = row.values.get("solution")
    if name not in SINGLE_TESTS or not isinstance(tests, str) or not isinstance(solution, str):
        return ()
    try:
        single = SINGLE_TESTS[name](tests)
    except Unusable:
        return ()
    submissions = [build_submission(name, solution, {**task, "tests": test}) for test in single]
    results = grade_in_order(grader, submissions, grader.info().rubrics[0], slots)
    failing = []
    searched_from = 0
    for test, result in zip(single, islice(results, len(single)), strict=True):
        body = _get_body(test)
        start = max(tests.find(body, searched_from), 0)
        searched_from = start + len(body)
        if not (isinstance(result, Graded) and result.passed):
            failing.append(FailingTest(tests.count("\n", 0, start) + 1, body))
    return tuple(failing)


def _get_body(test: str) -> str:
    """Return a single test without what was put before it to run it alone."""
    return test[test.index("#[test]") :] if "#[test]" in test else test.removeprefix("let () = ")


def _shorten(problem: str) -> str:
    return " ".join(problem.split())[:MAX_CAUSE_CHARS]
