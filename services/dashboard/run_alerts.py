"""Alerts of a run: rules over its metrics. The text of an alert names the values that were compared."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from services.dashboard.evaluations import MODES, Evaluation
from services.dashboard.series import WINDOW, Row, StepLog, mean_of, share_of

SHORT = 5
"""Logged steps that are averaged for a level."""
FLAG, REWARD, ENTROPY = "gradus/flag/", "reward", "entropy"


class Rule(StrEnum):
    ZERO_SPREAD = "zero_spread"
    CLIPPED = "clipped"
    ENTROPY_FALLS = "entropy_falls"
    HELD_OUT_FLAT = "held_out_flat"
    FLAG_DOUBLES = "flag_doubles"
    FAULTS = "faults"


@dataclass(frozen=True, slots=True)
class RunAlert:
    rule: Rule
    title: str
    detail: str


def alerts_of(log: StepLog, evaluations: Sequence[Evaluation]) -> list[RunAlert]:
    """The alarms that hold now, in the order of the rules."""
    found: list[RunAlert] = []
    for rule in (_zero_spread, _clipped, _entropy_falls, _flags_double, _faults):
        found += rule(log)
    return [*found, *_held_out_flat(log, evaluations)]


def _level(log: StepLog, name: str, limit: float) -> float | None:
    """The mean over the last few logged steps, if it is above the limit."""
    level = mean_of(log.last_rows(SHORT), name)
    return level if level is not None and level > limit else None


def _zero_spread(log: StepLog) -> Iterator[RunAlert]:
    level = _level(log, "frac_reward_zero_std", 0.8)
    if level is not None:
        detail = (
            f"In {level:.0%} of the groups all completions earned the same, so nothing can be learned from them "
            f"(mean of the last {SHORT} logged steps; limit 80%). Tasks are too easy or too hard, or sampling is too "
            "cold."
        )
        yield RunAlert(Rule.ZERO_SPREAD, "Most groups carry no signal", detail)


def _clipped(log: StepLog) -> Iterator[RunAlert]:
    level = _level(log, "completions/clipped_ratio", 0.2)
    if level is not None:
        detail = (
            f"{level:.0%} of the completions reached the length limit (mean of the last {SHORT} logged steps; "
            "limit 20%). Raise max_completion_length, or find out why the model does not end."
        )
        yield RunAlert(Rule.CLIPPED, "Completions are cut off", detail)


def _faults(log: StepLog) -> Iterator[RunAlert]:
    level = _level(log, "gradus/faulted", 0.05)
    if level is not None:
        detail = (
            f"{level:.0%} of the completions could not be judged (mean of the last {SHORT} logged steps; limit 5%). "
            "That is the graders' failure: look at them, not at the model."
        )
        yield RunAlert(Rule.FAULTS, "Completions are not graded", detail)


def _halves(log: StepLog) -> tuple[list[Row], list[Row]] | None:
    """The rows before the newest window, and that window; None before there are two of the same length."""
    count = min(WINDOW, len(log.recent) // 2)
    if count < SHORT:
        return None
    return log.last_rows(count, before=count), log.last_rows(count)


def _entropy_falls(log: StepLog) -> Iterator[RunAlert]:
    halves = _halves(log)
    if halves is None:
        return
    (before, now), (earned, earns) = ([mean_of(half, name) for half in halves] for name in (ENTROPY, REWARD))
    if before is None or now is None or earned is None or earns is None:
        return
    if now < 0.5 * before and earns > earned + 0.02:
        detail = (
            f"Entropy fell from {before:.3g} to {now:.3g} while the reward rose from {earned:.3g} to {earns:.3g} "
            f"(the last {len(halves[1])} logged steps against as many before). The model narrows to few answers; watch "
            "what it writes, and the held-out tasks."
        )
        yield RunAlert(Rule.ENTROPY_FALLS, "Entropy falls while the reward rises", detail)


def _flags_double(log: StepLog) -> Iterator[RunAlert]:
    halves = _halves(log)
    if halves is None:
        return
    for name in log.binned.names:
        if not name.startswith(FLAG):
            continue
        before, now = (share_of(half, name) for half in halves)
        if now >= 0.02 and now >= 2 * before:
            detail = (
                f"{now:.1%} of the verdicts carry the flag {name.removeprefix(FLAG)}, {before:.1%} did before (the "
                f"last {len(halves[1])} logged steps against as many before). The model may have found something out."
            )
            yield RunAlert(Rule.FLAG_DOUBLES, f"A flag doubles: {name.removeprefix(FLAG)}", detail)


def _held_out_flat(log: StepLog, evaluations: Sequence[Evaluation]) -> Iterator[RunAlert]:
    for mode in MODES:
        rated = [one for one in evaluations if (found := one.of(mode)) and found.pass_rate is not None]
        if len(rated) >= 2:
            yield from _flat_between(log, rated[-2], rated[-1], mode)
            return


def _flat_between(log: StepLog, first: Evaluation, second: Evaluation, mode: str) -> Iterator[RunAlert]:
    earned, earns = (_reward_near(log, one.step) for one in (first, second))
    rates = [found.pass_rate for one in (first, second) if (found := one.of(mode)) is not None]
    if earned is None or earns is None or rates[0] is None or rates[1] is None:
        return
    if earns > earned + 0.05 and rates[1] < rates[0] + 0.01:
        detail = (
            f"From “{first.name}” to “{second.name}” the reward in training rose from {earned:.3g} to {earns:.3g}, and "
            f"the pass rate on held-out tasks went from {rates[0]:.1%} to {rates[1]:.1%}. What is learned does not "
            "carry over, or earns reward without being right."
        )
        yield RunAlert(Rule.HELD_OUT_FLAT, "Reward rises, held-out tasks do not", detail)


def _reward_near(log: StepLog, step: int | None) -> float | None:
    """The reward in training around a step: of the few points nearest to it."""
    steps, means = log.binned.steps(), log.binned.means(REWARD)
    known: list[tuple[int, float]] = [(at, mean) for at, mean in zip(steps, means, strict=True) if mean is not None]
    if not known:
        return None
    wanted = known[-1][0] if step is None else step
    distance: Callable[[tuple[int, float]], int] = lambda point: abs(point[0] - wanted)  # noqa: E731
    nearest = sorted(known, key=distance)[:SHORT]
    return sum(mean for _, mean in nearest) / len(nearest)
