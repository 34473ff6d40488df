"""Alerts of a run: rules over its metrics. The text of an alert names the values that were
compared."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import fmean

from services.dashboard.evaluations import MODES, Evaluation
from services.dashboard.series import WINDOW, Row, StepLog, mean_of, share_of

SHORT = 5
"""Logged steps that are averaged for a level."""
FLAG, REWARD, ENTROPY = "gradus/flag/", "reward", "entropy"


class Rule(StrEnum):
    ZERO_SPREAD = "zero_spread"
    CLIPPED = "clipped"
    ENTROPY_FALLS = "entropy_falls"
    FLAG_DOUBLES = "flag_doubles"
    FAULTS = "faults"
    HELD_OUT_FLAT = "held_out_flat"


@dataclass(frozen=True, slots=True)
class RunAlert:
    rule: Rule
    title: str
    detail: str


LEVELS = (
    (
        Rule.ZERO_SPREAD,
        "frac_reward_zero_std",
        0.8,
        "Most groups carry no signal",
        (
            "In {level} of the groups all completions earned the same, so nothing can be learned"
            " from them ({basis}). Tasks are too easy or too hard, or sampling is too cold."
        ),
    ),
    (
        Rule.CLIPPED,
        "completions/clipped_ratio",
        0.2,
        "Completions are cut off",
        (
            "{level} of the completions reached the length limit ({basis}). Raise"
            " max_completion_length, or find out why the model does not end."
        ),
    ),
    (
        Rule.FAULTS,
        "gradus/faulted",
        0.05,
        "Completions are not graded",
        (
            "{level} of the completions could not be judged ({basis}). That is the graders'"
            " failure: look at them, not at the model."
        ),
    ),
)
"""Rules that compare the mean of the last few logged steps with a limit: rule, metric, limit,
title, detail."""


def alerts_of(log: StepLog, evaluations: Sequence[Evaluation]) -> list[RunAlert]:
    """The alarms that hold now, in the order of the rules."""
    found = [*_entropy_falls(log), *_flags_double(log), *_held_out_flat(log, evaluations)]
    for rule, name, limit, title, detail in LEVELS:
        level = mean_of(log.last_rows(SHORT), name)
        if level is not None and level > limit:
            basis = f"mean of the last {SHORT} logged steps; limit {limit:.0%}"
            found.append(RunAlert(rule, title, detail.format(level=f"{level:.0%}", basis=basis)))
    return sorted(found, key=lambda alert: list(Rule).index(alert.rule))


def _halves(log: StepLog) -> tuple[list[Row], list[Row]] | None:
    """The rows before the newest window, and that window; None before there are two of the same
    length."""
    count = min(WINDOW, len(log.recent) // 2)
    if count < SHORT:
        return None
    return log.last_rows(count, before=count), log.last_rows(count)


def _entropy_falls(log: StepLog) -> Iterator[RunAlert]:
    halves = _halves(log)
    if halves is None:
        return
    (before, now), (earned, earns) = (
        [mean_of(half, name) for half in halves] for name in (ENTROPY, REWARD)
    )
    if before is None or now is None or earned is None or earns is None:
        return
    if now < 0.5 * before and earns > earned + 0.02:
        detail = (
            f"Entropy fell from {before:.3g} to {now:.3g} while the reward rose from {earned:.3g}"
            f" to {earns:.3g} (the last {len(halves[1])} logged steps against as many before). The"
            " model narrows to few answers; watch what it writes, and the held-out tasks."
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
                f"{now:.1%} of the verdicts carry the flag {name.removeprefix(FLAG)}, {before:.1%}"
                f" did before (the last {len(halves[1])} logged steps against as many before). The"
                " model may have found something out."
            )
            yield RunAlert(Rule.FLAG_DOUBLES, f"A flag doubles: {name.removeprefix(FLAG)}", detail)


def _held_out_flat(log: StepLog, evaluations: Sequence[Evaluation]) -> Iterator[RunAlert]:
    for mode in MODES:
        rates = [(one, found.pass_rate) for one in evaluations if (found := one.of(mode))]
        rated = [(one, rate) for one, rate in rates if rate is not None][-2:]
        if len(rated) < 2:
            continue
        (first, before), (second, after) = rated
        earned, earns = (_reward_near(log, one.step) for one in (first, second))
        if (
            earned is not None
            and earns is not None
            and earns > earned + 0.05
            and after < before + 0.01
        ):
            detail = (
                f"From “{first.name}” to “{second.name}” the reward in training rose from"
                f" {earned:.3g} to {earns:.3g}, and the pass rate on held-out tasks went from"
                f" {before:.1%} to {after:.1%}. What is learned does not carry over, or earns"
                " reward without being right."
            )
            yield RunAlert(Rule.HELD_OUT_FLAT, "Reward rises, held-out tasks do not", detail)
        return


def _reward_near(log: StepLog, step: int | None) -> float | None:
    """The reward in training around a step: of the few points nearest to it."""
    steps, means = log.binned.steps(), log.binned.means(REWARD)
    known = [(at, mean) for at, mean in zip(steps, means, strict=True) if mean is not None]
    if not known:
        return None
    wanted = known[-1][0] if step is None else step
    return fmean(
        mean for _, mean in sorted(known, key=lambda point: abs(point[0] - wanted))[:SHORT]
    )
