"""Harder tests: mutants of a reference answer that pass the tests, and inputs that tell them apart.

The reference answer says what each input must return, so a proposed test is as right as that
answer, and may ask for more than the prompt does: a person reads it before use. What depends on the
kind of task is a `Hook`, one per grader.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from pydantic import ValidationError

from corpus.drafts import Unusable
from corpus.mutation import Mutations
from corpus.repair_tasks import MutationResult, break_tasks
from corpus.task_rows import build_submission, extract_task, replace_task
from gradus.contract import Faulted, Graded, GraderName
from gradus.errors import Fault
from gradus.row_reader import Row
from gradus.validation import explain
from services.graders.base import Grader
from services.local_grading import grade_in_order


@dataclass(frozen=True, slots=True)
class ProposedTest:
    """An input, and what the reference answer makes of it."""

    text: str
    """The test as it is shown to people; two tests with one text are the same."""
    call: Any = field(compare=False, default=None)
    """What is run, in a form of the hook's own."""
    expected: Any = field(compare=False, default=None)


def iter_failed(
    tests: Sequence[ProposedTest], returned: Sequence[str | None]
) -> Iterator[ProposedTest]:
    """Yield tests whose calls returned something else, up to the one that did not end (None)."""
    for test, text in zip(tests, returned, strict=True):
        if text != test.expected:
            yield test
        if text is None:
            return


class Hook(Protocol):
    """What hardening needs to know of one kind of task."""

    @property
    def mutations(self) -> Mutations: ...

    def propose(self, task: Mapping[str, Any], solution: str, seed: str) -> list[ProposedTest]:
        """Return tests that the solution passed once. Raises Unusable where none can be made."""
        ...

    def find_failures(
        self, task: Mapping[str, Any], code: str, tests: Sequence[ProposedTest]
    ) -> Iterable[ProposedTest]:
        """Yield the tests that this code fails."""
        ...

    def add_tests(
        self, task: Mapping[str, Any], tests: Sequence[ProposedTest]
    ) -> Mapping[str, Any]:
        """Return the fields of the task that change with these tests added."""
        ...


@dataclass(slots=True)
class HardeningResult:
    """A row with the tests that were proposed for it."""

    row: Row
    tried: int = 0
    """Mutants that were graded."""
    before: int = 0
    """Mutants that pass the tests of the row."""
    after: int = 0
    """Mutants that do not fail the proposed tests either."""
    tests: list[ProposedTest] = field(default_factory=list)
    problem: str | None = None
    """Why no test is proposed."""


def harden_tasks(
    rows: Sequence[Row],
    name: GraderName,
    grader: Grader,
    hook: Hook,
    *,
    tries: int,
    max_tests: int,
    seed: int,
    slots: int | None,
) -> Iterator[HardeningResult]:
    """Yield one result per row, in order."""
    broken = break_tasks(
        rows, name, grader, hook.mutations, per_task=0, tries=tries, seed=seed, slots=slots
    )
    for row, mutated in zip(rows, broken, strict=True):
        result = HardeningResult(row, tried=mutated.tried, problem=mutated.problem)
        result.before = result.after = len(mutated.survivors)
        if result.problem is None and mutated.survivors:
            _propose(result, name, mutated, hook, max_tests, seed)
        if result.tests:
            _check(result, name, mutated, grader, hook, slots)
        yield result


def _propose(
    result: HardeningResult,
    name: GraderName,
    mutated: MutationResult,
    hook: Hook,
    max_tests: int,
    seed: int,
) -> None:
    task = extract_task(result.row.values, name)
    solution = str(result.row.values["solution"])
    try:
        tests = hook.propose(task, solution, f"{seed}:{mutated.id}")
        # A reference whose answers differ from run to run proves nothing.
        unstable = set(hook.find_failures(task, solution, tests))
        stable = [test for test in tests if test not in unstable]
        kills: dict[ProposedTest, set[int]] = {}
        for number, survivor in enumerate(mutated.survivors):
            for test in hook.find_failures(task, survivor["code"], stable):
                kills.setdefault(test, set()).add(number)
    except Unusable as problem:
        result.problem = str(problem)
    except Fault as fault:
        result.problem = fault.message
    else:
        result.tests = choose_tests(kills, max_tests)


def choose_tests(kills: Mapping[ProposedTest, set[int]], limit: int) -> list[ProposedTest]:
    """Return few tests that kill as many mutants as all of them: the one that kills most of what is
    left, the shortest of equals."""
    chosen: list[ProposedTest] = []
    uncovered: set[int] = set().union(*kills.values())
    while uncovered and len(chosen) < limit:
        best = min(
            kills,
            key=lambda test: (-len(kills[test] & uncovered), len(test.text), test.text),
        )
        chosen.append(best)
        uncovered -= kills[best]
    return chosen


def _check(
    result: HardeningResult,
    name: GraderName,
    mutated: MutationResult,
    grader: Grader,
    hook: Hook,
    slots: int | None,
) -> None:
    """Grade the reference and the survivors with the proposed tests. The tests are kept only if the
    reference passes and a survivor does not."""
    task = extract_task(result.row.values, name)
    changes = hook.add_tests(task, result.tests)
    codes = [str(result.row.values["solution"])]
    codes += [survivor["code"] for survivor in mutated.survivors]
    try:
        submissions = [build_submission(name, code, {**task, **changes}) for code in codes]
    except ValidationError as error:
        result.problem = explain(error)
        result.tests = []
        return
    graded = grade_in_order(grader, submissions, grader.info().rubrics[0], slots)
    reference, *verdicts = graded
    if isinstance(reference, Faulted):
        result.problem = reference.fault.message
    elif not reference.passed:
        result.problem = "its solution does not pass the proposed tests"
    else:
        killed = [each for each in verdicts if isinstance(each, Graded) and not each.passed]
        result.after -= len(killed)
    if result.after == result.before:
        result.tests = []
    else:
        result.row = replace_task(result.row, changes)
