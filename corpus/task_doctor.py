"""Diagnosis of task rows: the state of each, the cause in one line, the test that fails, and a
repair that was tried. Writes no file.

The checks are those of `gradus tasks validate` and `import`. A repair counts only if the row passes
them with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from itertools import islice

from corpus.drafts import Unusable
from corpus.public_tests import SINGLE_TESTS
from corpus.repair_tasks import break_tasks, create_mutations
from corpus.rust_repairs import (
    add_dependencies,
    advise_on_crates,
    flatten_files,
    read_edition,
    record_output,
    show_broken_code,
    split_tests,
)
from corpus.story_repairs import (
    join_references,
    leave_out_copies,
    split_story_lines,
    take_aims_as_references,
    write_sprint_prompt,
)
from corpus.task_repairs import (
    OCAML_REPAIRS,
    Repair,
    Values,
    add_id,
    add_tolerance,
    close_brackets,
    keep_unknown_columns,
    raise_cpu_limit,
    rename_columns,
    rename_tested_value,
)
from corpus.task_rows import Finding, build_submission, extract_task
from corpus.task_validation import NO_SIGNATURE, NO_STUB, validate
from gradus.contract import Graded, GraderName
from gradus.row_reader import Row
from services.graders.base import Grader
from services.graders.ocaml.grader import OcamlGrader
from services.graders.program.grader import ProgramGrader
from services.graders.rust.grader import RustGrader
from services.local_grading import grade_in_order

Show = Callable[[Iterable[Finding], int, str], Iterable[Finding]]
REPAIRS: Mapping[str, tuple[Callable[[Values], Repair | None], ...]] = {
    "ocaml": OCAML_REPAIRS,
    "rust": (flatten_files, read_edition, split_tests, show_broken_code),
    "story": (split_story_lines, take_aims_as_references, write_sprint_prompt),
}
"""By grader, in this order: later ones read what earlier ones wrote."""
LAST_REPAIRS: Mapping[str, tuple[Callable[[Values], Repair | None], ...]] = {
    "ocaml": (close_brackets, rename_tested_value, add_tolerance),
    "story": (leave_out_copies,),
}
"""By grader; tried only where a row with all other repairs fails the checks."""
ROUTINE = frozenset({NO_STUB, NO_SIGNATURE})
"""Warnings about most rows that people bring, which hide the others."""
JOINED_CAUSE = "other rows ask the same"
SLOW = "of CPU time"
"""What verdicts on answers that were too slow say."""
MAX_CAUSE_CHARS = 300


def pass_through(findings: Iterable[Finding], total: int, label: str) -> Iterable[Finding]:
    """Return the findings; nothing is shown."""
    return findings


class RowState(StrEnum):
    USABLE = "usable"
    REPAIRED = "repaired"
    NEEDS_YOU = "needs you"


check_leniently = partial(validate, needs_solution=False, full_marks=False)
"""The checks of a row as people bring it: with or without a solution, in any style."""


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
    advice: str = ""
    """What the author can do where no repair was found."""
    joined_to: str = ""
    """Place of the row whose task has this row's references; this one is no task of its own."""

    @property
    def task(self) -> Row | None:
        """The row to train on; None where there is none of its own."""
        if self.state is RowState.NEEDS_YOU or self.joined_to:
            return None
        return self.repaired or self.row


@dataclass(slots=True)
class _Proposal:
    """A row with its repairs, before the checks."""

    row: Row
    repairs: tuple[str, ...] = ()
    joined_to: int | None = None
    """Index of the row that asks the same."""


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
    findings = check_leniently(rows, name, grader, slots)
    # each pass ends before the next: two of them would use the same slots of the grader
    before = list(show(findings, len(rows), "checking"))
    proposals = []
    for row, finding in zip(rows, before, strict=True):
        proposals.append(_repair(row, name, grader) if finding.problems else _Proposal(row))
    if name == "story":
        _join_rows_of_one_prompt(proposals)
    remaining = [index for index, proposal in enumerate(proposals) if proposal.joined_to is None]
    changed = [index for index in remaining if proposals[index].repairs]
    tried = check_leniently([proposals[index].row for index in changed], name, grader, slots)
    after = dict(zip(changed, show(tried, len(changed), "repairing"), strict=True))
    # reads only: finds what repaired rows repeat of others
    read = check_leniently([proposals[index].row for index in remaining], name, None)
    repeats = dict(zip(remaining, read, strict=True))
    done: list[Diagnosis] = []
    for index, finding in enumerate(before):
        proposal = proposals[index]
        if proposal.joined_to is not None:
            diagnosis = _diagnose_joined(rows[index], done[proposal.joined_to])
        else:
            last = after.get(index, finding)
            problems = [*last.problems, *repeats[index].problems]
            diagnosis = _diagnose(finding, proposal, last, problems, name, grader, slots)
        done.append(diagnosis)
        yield diagnosis


def _diagnose(
    before: Finding,
    proposal: _Proposal,
    last: Finding,
    problems: Sequence[str],
    name: GraderName,
    grader: Grader | None,
    slots: int | None,
) -> Diagnosis:
    """Return the diagnosis of a row: `before` is of the row as it was read, `last` with its
    repairs."""
    warnings = _select_warnings(last)
    if problems:
        return _diagnose_failing(before.row, proposal, problems[0], name, grader, slots)
    if not proposal.repairs:
        return Diagnosis(before.row, RowState.USABLE, warnings=warnings)
    cause = _shorten(before.problems[0]) if before.problems else JOINED_CAUSE
    return Diagnosis(
        before.row, RowState.REPAIRED, cause, proposal.row, proposal.repairs, (), warnings
    )


def _join_rows_of_one_prompt(proposals: Sequence[_Proposal]) -> None:
    """Give the first of the rows with one prompt the references of all."""
    by_prompt: dict[str, list[int]] = {}
    for index, proposal in enumerate(proposals):
        prompt = proposal.row.values.get("prompt")
        if proposal.row.problem is None and prompt and proposal.row.values.get("references"):
            by_prompt.setdefault(str(prompt), []).append(index)
    for first, *repeats in by_prompt.values():
        if not repeats:
            continue
        keeper = proposals[first]
        joined = [proposals[index] for index in repeats]
        values = join_references(keeper.row.values, [each.row.values for each in joined])
        places = ", ".join(each.row.where for each in joined)
        keeper.row = replace(keeper.row, values=values)
        keeper.repairs = (*keeper.repairs, f"take the references of {places}, which ask the same")
        for each in joined:
            each.joined_to = first


def _diagnose_joined(row: Row, keeper: Diagnosis) -> Diagnosis:
    place = keeper.row.where
    cause = f"prompt: the same as at {place}"
    if keeper.state is RowState.NEEDS_YOU:
        return Diagnosis(row, RowState.NEEDS_YOU, f"{cause}, which needs you")
    repairs = (f"join with {place}: one task has the references of both",)
    return Diagnosis(row, RowState.REPAIRED, cause, repairs=repairs, joined_to=place)


def _diagnose_failing(
    row: Row,
    proposal: _Proposal,
    problem: str,
    name: GraderName,
    grader: Grader | None,
    slots: int | None,
) -> Diagnosis:
    """Return the diagnosis of a row that the usual repairs do not mend: the last ones are tried,
    and its failing tests are looked for."""
    cause = _shorten(problem)
    changed, repairs = proposal.row, proposal.repairs
    if grader is None or changed.problem is not None:
        return Diagnosis(row, RowState.NEEDS_YOU, cause, repairs=repairs)
    failing = _find_failing_tests(changed, name, grader, slots)
    makes = list(LAST_REPAIRS.get(name, ()))
    advice = ""
    if SLOW in problem:
        makes.append(raise_cpu_limit)
    if isinstance(grader, RustGrader):
        listed = grader.crates.externs
        makes.append(partial(add_dependencies, problem=problem, listed=listed))
        advice = advise_on_crates(problem, listed, str(row.values.get("cargo_toml") or ""))
    last, last_repairs = _apply(makes, changed)
    if last_repairs:
        [finding] = check_leniently([last], name, grader, slots)
        if not finding.problems:
            every = (*repairs, *last_repairs)
            warnings = _select_warnings(finding)
            return Diagnosis(row, RowState.REPAIRED, cause, last, every, failing, warnings)
    return Diagnosis(
        row, RowState.NEEDS_YOU, cause, repairs=repairs, failing=failing, advice=advice
    )


def _select_warnings(finding: Finding) -> tuple[str, ...]:
    return tuple(warning for warning in finding.warnings if warning not in ROUTINE)


def _repair(row: Row, name: GraderName, grader: Grader | None) -> _Proposal:
    """Return the row with every repair that has something to do, and their messages."""
    if row.problem is not None:
        return _Proposal(row)
    repairs: list[Callable[[Values], Repair | None]] = [
        partial(rename_columns, name=name),
        partial(add_id, where=row.where),
        *REPAIRS.get(name, ()),
    ]
    if isinstance(grader, RustGrader):
        repairs.append(partial(record_output, grader=grader))
    # last: repairs may read columns that no task has
    repairs.append(partial(keep_unknown_columns, name=name))
    return _Proposal(*_apply(repairs, row))


def _apply(
    repairs: Iterable[Callable[[Values], Repair | None]], row: Row
) -> tuple[Row, tuple[str, ...]]:
    """Return the row after the repairs, each of which reads what earlier ones wrote, and their
    messages."""
    values = row.values
    messages = []
    for make in repairs:
        repair = make(values)
        if repair is not None:
            values = repair.values
            messages.append(repair.message)
    return replace(row, values=values), tuple(messages)


def find_weak_tests(
    diagnoses: Sequence[Diagnosis],
    name: GraderName,
    grader: Grader | None,
    mutants: int,
    slots: int | None = None,
) -> Iterator[str]:
    """Yield for each row how many of `mutants` broken solutions pass its tests, and one of them;
    an empty text where none does, or where none can be made."""
    tasks = [diagnosis.task for diagnosis in diagnoses]
    if not mutants or not isinstance(grader, OcamlGrader | ProgramGrader | RustGrader):
        yield from ("" for _ in tasks)
        return
    tried = [row for row in tasks if row is not None and row.values.get("solution")]
    mutations = create_mutations(grader)
    results = break_tasks(tried, name, grader, mutations, per_task=0, tries=mutants, slots=slots)
    for row in tasks:
        if row is None or not row.values.get("solution"):
            yield ""
            continue
        result = next(results)
        if not result.survivors:
            yield ""
            continue
        first = result.survivors[0]
        edit = f"line {first['line']} with `{first['with']}` for `{first['replaced']}`"
        count = f"{len(result.survivors)} of {result.tried} broken solutions"
        yield f"{count} pass all tests, such as {edit}"


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
