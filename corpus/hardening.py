"""Harder tests: mutants of a reference answer that pass the tests, and inputs that tell them apart.

The reference answer says what each input must return, so a proposed test is as right as that
answer, and may ask for more than the prompt does: a person reads it before use.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from corpus.ocaml_inputs import OcamlRuns, Type, Values, draw_calls, find_functions
from corpus.repair_tasks import MutationResult, break_tasks, create_mutations
from corpus.task_rows import build_submission, extract_task, replace_task
from gradus.contract import Faulted, Graded
from gradus.row_reader import Row
from services.graders.ocaml.grader import OcamlGrader
from services.local_grading import grade_in_order

HEADING = "(* proposed by `gradus tasks harden` *)"
CALLS = 60
"""Calls of each function that are tried."""


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
    tests: list[str] = field(default_factory=list)
    problem: str | None = None
    """Why no test is proposed."""


def harden_tasks(
    rows: Sequence[Row],
    grader: OcamlGrader,
    *,
    tries: int,
    max_tests: int,
    seed: int,
    slots: int | None,
) -> Iterator[HardeningResult]:
    """Yield one result per row, in order."""
    runs = OcamlRuns(grader.toolchain, grader.sandbox)
    broken = break_tasks(
        rows,
        "ocaml",
        grader,
        create_mutations(grader),
        per_task=0,
        tries=tries,
        seed=seed,
        slots=slots,
    )
    for row, mutated in zip(rows, broken, strict=True):
        result = HardeningResult(row, tried=mutated.tried, problem=mutated.problem)
        result.before = result.after = len(mutated.survivors)
        if result.problem is None and mutated.survivors:
            _propose(result, mutated, runs, max_tests, seed)
        if result.tests:
            _check(result, mutated, grader, slots)
        yield result


def _propose(
    result: HardeningResult, mutated: MutationResult, runs: OcamlRuns, max_tests: int, seed: int
) -> None:
    task = extract_task(result.row.values, "ocaml")
    functions = find_functions(str(task.get("signature") or ""))
    if task.get("framework") == "ounit2" or "OUnit" in str(task.get("tests")):
        result.problem = "tests of OUnit are not extended"
    elif task.get("packages") or task.get("files"):
        result.problem = "tasks with packages or files are not run on inputs"
    elif not functions:
        result.problem = "its signature has no function of base types, lists, options and the like"
    else:
        solution = str(result.row.values["solution"])
        values = Values(str(task["tests"]), solution, f"{seed}:{mutated.id}")
        calls = draw_calls(functions, values, CALLS)
        returned = runs.run(solution, calls)
        kills: dict[str, set[int]] = {}
        for number, survivor in enumerate(mutated.survivors):
            for test in _find_kills(calls, returned, runs.run(survivor["code"], calls)):
                kills.setdefault(test, set()).add(number)
        result.tests = choose_tests(kills, max_tests)


def _find_kills(
    calls: Sequence[tuple[str, Type]],
    expected: Sequence[str | None],
    returned: Sequence[str | None],
) -> Iterator[str]:
    """Yield a test for each call that tells a mutant from the reference, up to the call at which
    the mutant does not end. Calls for which the reference raises are no tests: they may break what
    the prompt promises."""
    for (call, _), right, actual in zip(calls, expected, returned, strict=True):
        if right is not None and not right.startswith("!") and right != actual:
            yield f"let () = assert ({call} = {right})"
        if actual is None:
            return


def choose_tests(kills: dict[str, set[int]], limit: int) -> list[str]:
    """Return few tests that kill as many mutants as all of them: the one that kills most of what is
    left, the shortest of equals."""
    chosen: list[str] = []
    uncovered: set[int] = set().union(*kills.values())
    while uncovered and len(chosen) < limit:
        best = min(kills, key=lambda test: (-len(kills[test] & uncovered), len(test), test))
        chosen.append(best)
        uncovered -= kills[best]
    return chosen


def _check(
    result: HardeningResult, mutated: MutationResult, grader: OcamlGrader, slots: int | None
) -> None:
    """Grade the reference and the survivors with the proposed tests, and keep the tests only where
    the reference passes."""
    task: dict[str, Any] = extract_task(result.row.values, "ocaml")
    tests = "\n".join([str(task["tests"]).rstrip(), HEADING, *result.tests, ""])
    hardened = replace_task(result.row, {"tests": tests})
    codes = [str(result.row.values["solution"])]
    codes += [survivor["code"] for survivor in mutated.survivors]
    submissions = []
    for code in codes:
        submissions.append(build_submission("ocaml", code, {**task, "tests": tests}))
    graded = grade_in_order(grader, submissions, grader.info().rubrics[0], slots)
    reference, *verdicts = graded
    if isinstance(reference, Faulted):
        result.problem = reference.fault.message
    elif not reference.passed:
        result.problem = "its solution does not pass the proposed tests"
    if result.problem is not None:
        result.tests = []
        return
    result.row = hardened
    for verdict in verdicts:
        if isinstance(verdict, Graded) and not verdict.passed:
            result.after -= 1
