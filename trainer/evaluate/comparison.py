"""Two evaluations of the same tasks against each other, task by task.

What changed, how surely, and where answers stop. Only tasks that were judged both times are
compared. With one completion per task a task passes or does not; with many it has a share, and its
stage is the one of its middle completion.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from enum import StrEnum
from statistics import fmean
from typing import Any, Literal

from pydantic import Field

from gradus.errors import Misuse
from gradus.languages import language_of
from trainer.evaluate.breakdowns import group_columns
from trainer.evaluate.intervals import Part, Rate, by_task, mcnemar, paired_difference, sign_flip
from trainer.evaluate.plan import Mode
from trainer.evaluate.results import Evaluation, Measurement, ProblemFigures, incomparable
from trainer.evaluate.verdicts import PASSED, code_of, rank_of, typical_of

MODES: tuple[Mode, ...] = ("sampled", "greedy")
FROZEN_BELOW = 0.05
"""A task that failed both times at the same stage is frozen when its reward moved by less."""
ROUNDING = 1e-9

Record = Mapping[str, Any]


class Turn(StrEnum):
    """What became of one task."""

    IMPROVED = "improved"
    REGRESSED = "regressed"
    BOTH_PASS = "both pass"
    BOTH_FAIL = "both fail"
    UNCHANGED = "unchanged"
    """Passed by the same share of completions, neither all nor none."""


class Side(Part):
    """One evaluation."""

    name: str
    model: str
    created: str
    tasks: str
    tasks_sha256: str
    graders: tuple[str, ...]
    rubrics: tuple[str, ...]
    temperature: float
    samples: int
    graded: int
    faulted: int
    not_written: int


class Answer(Part):
    """What one side has for one task."""

    graded: int
    passed: int
    reward: float
    stage: str
    cause: str | None
    completion: str | None = None
    """The middle completion, of tasks that changed and where completions were read."""

    @property
    def rate(self) -> float:
        return self.passed / self.graded


class Change(Part):
    """One task."""

    id: str
    kind: str | None
    difficulty: str | None
    turn: Turn
    pass_change: float
    reward_change: float
    frozen: bool
    before: Answer
    after: Answer


class Difference(Part):
    before: float
    after: float
    change: Rate


class GroupChange(Part):
    tasks: int
    pass_rate: Difference
    reward: Difference


class Test(Part):
    """How likely so uneven a change is if neither side were better."""

    __test__ = False  # not a test class, whatever pytest thinks of its name
    method: Literal["exact McNemar", "sign flips over tasks"]
    p_value: float
    gained: int | None
    """Tasks that were wrong before and right after; None with several completions per task."""
    lost: int | None


class Shift(Part):
    """Tasks by whether their middle completion assigns or loops, before and after."""

    both: int
    gained: int
    lost: int
    neither: int


class Comparison(Part):
    schema_: Literal["gradus/comparison@1"] = Field("gradus/comparison@1", alias="schema")
    mode: Mode
    before: Side
    after: Side
    warnings: tuple[str, ...]
    """What differs beside the model."""
    tasks: int
    """Judged both times."""
    only_before: int
    only_after: int
    pass_rate: Difference
    reward: Difference
    test: Test
    turns: dict[str, int]
    net: int
    """Improved less regressed."""
    migration: dict[str, dict[str, int]]
    """Tasks by the stage before and the stage after."""
    progression: dict[str, tuple[int, int]]
    """Tasks at each stage before and after, from the earliest to `passed`."""
    causes: dict[str, tuple[int, int]]
    """Tasks by what stopped them, before and after."""
    frozen: tuple[str, ...]
    groups: dict[str, dict[str, GroupChange]]
    imperative: Shift | None
    problems: tuple[Change, ...]
    """The largest gains first, the largest losses last."""


def compare(
    before: Evaluation,
    after: Evaluation,
    *,
    mode: Mode | None = None,
    anyway: bool = False,
    records: tuple[Sequence[Record], Sequence[Record]] = ((), ()),
    seed: int = 0,
) -> Comparison:
    """Compare in one mode, by default the first that both have. `records` lend the texts of
    completions.

    Raises Misuse when there is no such mode, no task was judged both times, or a difference could
    come from other tasks, another revision of the grader or another rubric, unless it is wanted
    `anyway`.
    """
    reasons = list(incomparable(before, after))
    refused = [reason.text for reason in reasons if reason.is_fatal]
    if refused and not anyway:
        raise Misuse(
            f"{before.name} and {after.name} were measured with {' and with '.join(refused)}, so a"
            " difference says nothing about the models. Evaluate both alike, or compare"
            " --allow-mismatch"
        )
    measured = [
        (before.measured(one), after.measured(one)) for one in (MODES if mode is None else (mode,))
    ]
    first, last = next((both for both in measured if None not in both), (None, None))
    if first is None or last is None:
        wanted = f"{mode} completions" if mode else "way of sampling that both have"
        raise Misuse(f"{before.name} and {after.name}: there is no {wanted} to compare")
    later = {problem.id: problem for problem in last.problems if problem.graded}
    pairs = [(one, later[one.id]) for one in first.problems if one.graded and one.id in later]
    if not pairs:
        raise Misuse(f"{before.name} and {after.name}: no task was judged both times")
    is_same = before.grader == after.grader
    stages = after.description.stages if is_same else ()
    texts = (
        _typical(records[0], first.mode, before.description.stages),
        _typical(records[1], first.mode, after.description.stages),
    )
    changes = [_change(pair, texts) for pair in pairs]
    counts = Counter((change.before.stage, change.after.stage) for change in changes)
    order = sorted(
        {stage for both in counts for stage in both}, key=lambda stage: rank_of(stage, stages)
    )
    return Comparison(
        mode=first.mode,
        before=_side(before, first),
        after=_side(after, last),
        warnings=tuple(reason.text for reason in reasons),
        tasks=len(changes),
        only_before=len(first.problems) - first.unjudged - len(changes),
        only_after=len(last.problems) - last.unjudged - len(changes),
        **_differences(changes, seed),
        test=_test(changes, seed),
        turns={turn.value: sum(change.turn is turn for change in changes) for turn in Turn},
        net=sum({Turn.IMPROVED: 1, Turn.REGRESSED: -1}.get(change.turn, 0) for change in changes),
        migration={stage: {last: counts[stage, last] for last in order} for stage in order},
        progression={
            stage: (
                sum(counts[stage, last] for last in order),
                sum(counts[first, stage] for first in order),
            )
            for stage in order
        },
        causes=_causes(changes),
        frozen=tuple(change.id for change in changes if change.frozen),
        groups={
            column: _groups(changes, column, seed)
            for column in group_columns([vars(one) for one in changes])
        },
        imperative=_shift(*texts, changes, after) if is_same else None,
        problems=tuple(
            sorted(changes, key=lambda one: (-one.pass_change, -one.reward_change, one.id))
        ),
    )


def _side(evaluation: Evaluation, found: Measurement) -> Side:
    known = {**dict(evaluation), **dict(found), "not_written": found.unwritten}
    return Side(**{name: known[name] for name in Side.model_fields})


def _differences(changes: Sequence[Change], seed: int) -> dict[str, Difference]:
    """The fields `pass_rate` and `reward` of a comparison and of a group."""
    found = {}
    for name, column in (("pass_rate", "rate"), ("reward", "reward")):
        before, after = (
            [getattr(getattr(one, side), column) for one in changes] for side in ("before", "after")
        )
        change = paired_difference(before, after, seed=seed)
        assert change is not None
        found[name] = Difference(before=fmean(before), after=fmean(after), change=change)
    return found


def _test(changes: Sequence[Change], seed: int) -> Test:
    if all(one.before.graded == one.after.graded == 1 for one in changes):
        gained, lost = (sum(one.pass_change == change for one in changes) for change in (1, -1))
        return Test(method="exact McNemar", p_value=mcnemar(gained, lost), gained=gained, lost=lost)
    p_value = sign_flip([one.pass_change for one in changes], seed=seed)
    return Test(method="sign flips over tasks", p_value=p_value, gained=None, lost=None)


def _change(
    pair: tuple[ProblemFigures, ProblemFigures], texts: Sequence[Mapping[str, Record]]
) -> Change:
    before, after = (
        Answer(
            graded=side.graded,
            passed=side.passed,
            reward=side.mean_reward or 0.0,
            # Files of earlier versions only know whether it passed.
            stage=side.stage or (PASSED if side.passed == side.graded else "unknown"),
            cause=side.cause,
            completion=str(middle["completion"]) if (middle := some.get(side.id)) else None,
        )
        for side, some in zip(pair, texts, strict=True)
    )
    turn = {1.0: Turn.BOTH_PASS, 0.0: Turn.BOTH_FAIL}.get(before.rate, Turn.UNCHANGED)
    pass_change, reward_change = after.rate - before.rate, after.reward - before.reward
    if abs(pass_change) > ROUNDING:
        turn = Turn.IMPROVED if pass_change > 0 else Turn.REGRESSED
    if turn not in (Turn.IMPROVED, Turn.REGRESSED) and abs(reward_change) < FROZEN_BELOW:
        before, after = (side.model_copy(update={"completion": None}) for side in (before, after))
    is_still = before.stage == after.stage and abs(reward_change) < FROZEN_BELOW - ROUNDING
    return Change(
        **{name: getattr(pair[0], name) for name in ("id", "kind", "difficulty")},
        turn=turn,
        pass_change=pass_change,
        reward_change=reward_change,
        frozen=turn is Turn.BOTH_FAIL and is_still,
        before=before,
        after=after,
    )


def _causes(changes: Sequence[Change]) -> dict[str, tuple[int, int]]:
    before, after = (
        Counter(
            cause
            for change in changes
            if (cause := getattr(change, side).cause) not in (None, PASSED)
        )
        for side in ("before", "after")
    )
    return {cause: (before[cause], after[cause]) for cause, _ in (before + after).most_common()}


def _groups(changes: Sequence[Change], column: str, seed: int) -> dict[str, GroupChange]:
    by_value: dict[str, list[Change]] = {}
    for change in changes:
        if (value := getattr(change, column)) is not None:
            by_value.setdefault(value, []).append(change)
    return {
        value: GroupChange(tasks=len(found), **_differences(found, seed))
        for value, found in sorted(by_value.items())
    }


def _typical(records: Sequence[Record], mode: Mode, stages: Sequence[str]) -> dict[str, Record]:
    """The middle completion of each task."""
    judged = [one for one in records if one.get("mode") == mode and one.get("status") == "graded"]
    return {
        str(group[0]["prompt_id"]): found
        for group in by_task(judged)
        if (found := typical_of(group, stages))
    }


def _shift(
    before: Mapping[str, Record],
    after: Mapping[str, Record],
    changes: Sequence[Change],
    evaluation: Evaluation,
) -> Shift | None:
    is_imperative, fences = (
        language_of(evaluation.grader).is_imperative,
        evaluation.description.fences,
    )
    ids = [change.id for change in changes if change.id in before and change.id in after]
    if is_imperative is None or not ids:
        return None
    counts = Counter(
        tuple(
            is_imperative(code_of(str(side[task]["completion"]), fences))
            for side in (before, after)
        )
        for task in ids
    )
    return Shift(
        both=counts[True, True],
        gained=counts[False, True],
        lost=counts[True, False],
        neither=counts[False, False],
    )
