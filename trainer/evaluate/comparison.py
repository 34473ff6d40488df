"""Two evaluations of the same tasks against each other, task by task.

What changed, how surely, and where answers stop. Only tasks that were judged both times are
compared. With one completion per task a task passes or does not; with many it has a share, and its
stage is the one of its middle completion.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain
from statistics import fmean
from typing import Any, Literal, get_args

from pydantic import Field

from gradus.errors import Misuse
from trainer.evaluate.intervals import (
    Part,
    Rate,
    compute_mcnemar_p,
    compute_paired_change,
    compute_sign_flip_p,
)
from trainer.evaluate.plan import Mode
from trainer.evaluate.results import Evaluation, Measurement, ProblemFigures, find_mismatches
from trainer.evaluate.verdicts import get_stage_rank

MODES: tuple[Mode, ...] = ("sampled", "greedy")
FROZEN_BELOW = 0.05
"""A task that failed both times at the same stage is frozen when its reward moved by less."""
ROUNDING = 1e-9

Record = Mapping[str, Any]


Turn = Literal["improved", "regressed", "both pass", "both fail", "unchanged"]
"""What became of one task; unchanged: the same share of its completions passed, neither all nor
none."""


class Side(Part):
    """One evaluation."""

    name: str
    created: str
    model: str
    graders: tuple[str, ...]
    temperature: float
    samples: int


class Change(Part):
    """One task."""

    id: str
    kind: str | None
    difficulty: str | None
    turn: Turn
    pass_change: float
    reward_change: float
    frozen: bool
    before: ProblemFigures
    after: ProblemFigures


class Difference(Part):
    before: float
    after: float
    change: Rate


class Test(Part):
    """How likely so uneven a change is if neither side were better."""

    __test__ = False  # not a test class, whatever pytest thinks of its name
    method: Literal["exact McNemar", "sign flips over tasks"]
    p_value: float
    gained: int | None
    """Tasks that were wrong before and right after; None with several completions per task."""
    lost: int | None


class Comparison(Part):
    schema_: Literal["gradus/comparison@1"] = Field("gradus/comparison@1", alias="schema")
    mode: Mode
    before: Side
    after: Side
    warnings: tuple[str, ...]
    tasks: int
    """Judged both times."""
    only_before: int
    only_after: int
    pass_rate: Difference
    reward: Difference
    test: Test
    turns: dict[str, int]
    migration: dict[str, dict[str, int]]
    """Tasks by the stage before and the stage after."""
    frozen: tuple[str, ...]
    problems: tuple[Change, ...]
    """The largest gains first, the largest losses last."""


def compare(
    before: Evaluation,
    after: Evaluation,
    *,
    mode: Mode | None = None,
    anyway: bool = False,
) -> Comparison:
    """Compare in one mode, by default the first that both have.

    Raises Misuse when there is no such mode, no task was judged both times, or a difference could
    come from other tasks, another revision of the grader or another rubric, unless it is wanted
    `anyway`.
    """
    refused, warnings = find_mismatches(before, after)
    if refused and not anyway:
        raise Misuse(
            f"{before.name} and {after.name} were measured with {' and with '.join(refused)}, so a"
            " difference says nothing about the models. Evaluate both alike, or compare"
            " --allow-mismatch"
        )
    first, last = _select_measurements(before, after, MODES if mode is None else (mode,))
    later = {problem.id: problem for problem in last.problems}
    changes = []
    for problem in first.problems:
        other = later.get(problem.id)
        if other is not None and problem.graded and other.graded:
            changes.append(_build_change(problem, other))
    if not changes:
        raise Misuse(f"{before.name} and {after.name}: no task was judged both times")
    turns = dict.fromkeys(get_args(Turn), 0) | Counter(change.turn for change in changes)
    return Comparison(
        mode=first.mode,
        before=_build_side(before, first),
        after=_build_side(after, last),
        warnings=(*refused, *warnings),
        tasks=len(changes),
        only_before=len(first.problems) - first.unjudged - len(changes),
        only_after=len(last.problems) - last.unjudged - len(changes),
        **_compute_differences(changes),
        test=_run_test(changes),
        turns=turns,
        migration=_count_migration(changes, after.grader_description.stages),
        frozen=tuple(change.id for change in changes if change.frozen),
        problems=tuple(
            sorted(changes, key=lambda task: (-task.pass_change, -task.reward_change, task.id))
        ),
    )


def _select_measurements(
    before: Evaluation, after: Evaluation, modes: Sequence[Mode]
) -> tuple[Measurement, Measurement]:
    """Return the first way of sampling that both have. Raises Misuse where there is none."""
    for mode in modes:
        first = before.get_measurement(mode)
        last = after.get_measurement(mode)
        if first is not None and last is not None:
            return first, last
    if len(modes) == 1:
        sampling = f"{modes[0]} completions"
    else:
        sampling = "way of sampling that both have"
    raise Misuse(f"{before.name} and {after.name}: there is no {sampling} to compare")


def _count_migration(changes: Sequence[Change], stages: Sequence[str]) -> dict[str, dict[str, int]]:
    counts = Counter((str(change.before.stage), str(change.after.stage)) for change in changes)
    order = sorted(set(chain(*counts)), key=lambda stage: get_stage_rank(stage, stages))
    migration: dict[str, dict[str, int]] = {}
    for first in order:
        migration[first] = {last: counts[first, last] for last in order}
    return migration


def _build_side(evaluation: Evaluation, measurement: Measurement) -> Side:
    fields = {**dict(evaluation), **dict(measurement)}
    return Side(**{name: fields[name] for name in Side.model_fields})


def _compute_differences(changes: Sequence[Change]) -> dict[str, Difference]:
    """Return the fields `pass_rate` and `reward` of a comparison."""
    differences = {}
    for name, column in (("pass_rate", "pass_rate"), ("reward", "mean_reward")):
        before = [getattr(task.before, column) for task in changes]
        after = [getattr(task.after, column) for task in changes]
        change = compute_paired_change(before, after)
        assert change is not None
        differences[name] = Difference(before=fmean(before), after=fmean(after), change=change)
    return differences


def _run_test(changes: Sequence[Change]) -> Test:
    if all(change.before.graded == change.after.graded == 1 for change in changes):
        gained = sum(change.pass_change == 1 for change in changes)
        lost = sum(change.pass_change == -1 for change in changes)
        return Test(
            method="exact McNemar",
            p_value=compute_mcnemar_p(gained, lost),
            gained=gained,
            lost=lost,
        )
    p_value = compute_sign_flip_p([change.pass_change for change in changes])
    return Test(method="sign flips over tasks", p_value=p_value, gained=None, lost=None)


def _build_change(first: ProblemFigures, last: ProblemFigures) -> Change:
    pass_change = last.pass_rate - first.pass_rate
    reward_change = (last.mean_reward or 0.0) - (first.mean_reward or 0.0)
    turn: Turn = "unchanged"
    if abs(pass_change) > ROUNDING:
        turn = "improved" if pass_change > 0 else "regressed"
    elif first.pass_rate in (0, 1):
        turn = "both pass" if first.pass_rate else "both fail"
    is_still = first.stage == last.stage and abs(reward_change) < FROZEN_BELOW - ROUNDING
    return Change(
        id=first.id,
        kind=first.kind,
        difficulty=first.difficulty,
        turn=turn,
        pass_change=pass_change,
        reward_change=reward_change,
        frozen=turn == "both fail" and is_still,
        before=first,
        after=last,
    )
