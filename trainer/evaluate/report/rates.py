"""The figures of the evaluations in words: the headline and one panel for each way of sampling. Draws nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from trainer.evaluate.intervals import Discordance, Quantiles, Rate
from trainer.evaluate.outcome import Evaluation, Measurement
from trainer.evaluate.plan import Mode
from trainer.evaluate.report.comparison import Difference, difference
from trainer.evaluate.report.words import NOTHING, counted, number, percent, points, signed

MODES: tuple[Mode, ...] = ("sampled", "greedy")
STYLES = ("before", "after")
DASH = "\u2060–\u2060"
"""Between the ends of an interval that must not be torn apart at the end of a line."""


@dataclass(frozen=True, slots=True)
class Headline:
    """The answer to: did it work?"""

    text: str
    detail: str
    tone: str
    """`up`, `down`, `flat`, or `none` where nothing can be compared."""


@dataclass(frozen=True, slots=True)
class Bar:
    """A rate with its interval; `at`, `low` and `high` are percent of the axis."""

    name: str
    style: str
    value: str
    interval: str
    at: float
    low: float
    high: float
    basis: str


@dataclass(frozen=True, slots=True)
class Change:
    text: str
    interval: str
    tone: str


@dataclass(frozen=True, slots=True)
class Panel:
    """One way of sampling."""

    title: str
    bars: tuple[Bar, ...]
    change: Change | None
    others: tuple[tuple[str, ...], ...]
    """Further figures: a name and one text per bar."""
    pairs: Discordance | None
    p_value: str


def headline_of(evaluations: Sequence[Evaluation]) -> Headline:
    """The change in the first mode that was measured both times, or what else can be said."""
    if len(evaluations) == 2:
        for mode in MODES:
            found = difference(evaluations[0], evaluations[1], mode)
            if found is not None and found.change is not None:
                return _headline_of_change(found, found.change)
    for mode in MODES:
        measured = evaluations[-1].measured(mode) if evaluations else None
        rate = measured.pass_at.get(1) if measured else None
        if measured is not None and rate is not None:
            text = f"The model passes {percent(rate.value)} of {counted(len(measured.problems), 'held-out task')}."
            return Headline(text, f"95% interval {interval(rate)}. {described(measured)}.", "none")
    return Headline("What the model can do on held-out tasks was not measured.", "", "none")


def _headline_of_change(found: Difference, change: Rate) -> Headline:
    rates = [measurement.pass_at.get(1) for measurement in (found.before, found.after)]
    first, last = (percent(rate.value) if rate else NOTHING for rate in rates)
    on = f"on {counted(found.tasks, 'held-out task')}"
    text = {
        "up": f"The pass rate {on} rose from {first} to {last}.",
        "down": f"The pass rate {on} fell from {first} to {last}.",
        "flat": f"The pass rate {on} did not change measurably: {first} before, {last} after.",
    }[tone_of(change)]
    return Headline(
        text, f"{change_text(change)}, 95% interval {change_interval(change)}. {_basis(found)}", tone_of(change)
    )


def _basis(found: Difference) -> str:
    method = "Newcombe" if found.change and found.change.method == "newcombe" else "paired bootstrap over tasks"
    return f"{described(found.after)}; {method}."


def tone_of(change: Rate) -> str:
    """A change counts only when its whole interval lies on one side of zero."""
    return "up" if change.low > 0 else "down" if change.high < 0 else "flat"


def described(measurement: Measurement) -> str:
    """How completions were made."""
    if measurement.mode == "greedy":
        return "Greedy, one completion per task"
    return f"{counted(measurement.samples, 'completion')} per task at temperature {measurement.temperature:g}"


def interval(rate: Rate) -> str:
    return f"{_end(rate.low)}% to {_end(rate.high)}%"


def rate_in_words(rate: Rate | None) -> str:
    """A share with its interval."""
    return f"{percent(rate.value)} ({interval(rate)})" if rate else NOTHING


def spread(found: Quantiles | None) -> str:
    """A mean and quantiles."""
    if found is None:
        return NOTHING
    return f"{number(found.mean)} ({number(found.p50)} · {number(found.p90)} · {number(found.p99)})"


def change_text(change: Rate) -> str:
    return f"{points(change.value)} percentage points"


def change_interval(change: Rate) -> str:
    return f"{points(change.low)} to {points(change.high)}"


# ------------------------------------------------------------------------------------------------------------ panels


def panels_of(evaluations: Sequence[Evaluation]) -> list[Panel]:
    """A panel for each mode that any of the evaluations has."""
    return [panel for mode in MODES if (panel := _panel(evaluations, mode)) is not None]


def _panel(evaluations: Sequence[Evaluation], mode: Mode) -> Panel | None:
    measured = [(evaluation.name, one) for evaluation in evaluations if (one := evaluation.measured(mode))]
    if not measured:
        return None
    found = difference(evaluations[0], evaluations[1], mode) if len(evaluations) == 2 else None
    change = found.change if found else None
    return Panel(
        title=described(measured[-1][1]),
        bars=tuple(_bars(measured)),
        change=Change(points(change.value), change_interval(change), tone_of(change)) if change else None,
        others=tuple(_others([measurement for _, measurement in measured])),
        pairs=found.pairs if found else None,
        p_value=_p_value(found.pairs) if found and found.pairs else "",
    )


def _bars(measured: Sequence[tuple[str, Measurement]]) -> Iterator[Bar]:
    for (name, found), style in zip(measured, STYLES[-len(measured) :], strict=True):
        rate = found.pass_at.get(1)
        yield Bar(
            name=name,
            style=style,
            value=percent(rate.value) if rate else NOTHING,
            interval=interval(rate) if rate else "nothing was graded",
            at=100 * rate.value if rate else 0,
            low=100 * rate.low if rate else 0,
            high=100 * rate.high if rate else 0,
            basis=f"{found.passed:,} of {counted(found.graded, 'verdict')} passed",
        )


def _others(measured: Sequence[Measurement]) -> Iterator[tuple[str, ...]]:
    ks = sorted({k for found in measured for k in found.pass_at if k > 1})
    for k in ks:
        rates = [found.pass_at.get(k) for found in measured]
        yield (f"pass@{k}", *(_compact(rate) if rate else NOTHING for rate in rates))
    rewards = [found.mean_reward for found in measured]
    yield ("mean reward", *(_reward(rate) if rate else NOTHING for rate in rewards))
    yield ("faults, left out of all rates", *(f"{found.faulted:,}" for found in measured))
    if any(found.unjudged for found in measured):
        yield ("tasks without a verdict", *(f"{found.unjudged:,}" for found in measured))


def _compact(rate: Rate) -> str:
    return f"{percent(rate.value)} ({_end(rate.low)}{DASH}{_end(rate.high)})"


def _end(share: float) -> str:
    """One end of an interval, in percent; like `percent`, it is 0 or 100 only when it is just that."""
    return f"{100 * share if share in (0, 1) else min(99.9, max(0.1, 100 * share)):.1f}"


def _reward(rate: Rate) -> str:
    if rate.low == rate.high:
        # Resampling values that are all alike shows no spread, and says nothing about how sure one can be.
        return f"{rate.value:.3f} (all alike)"
    return f"{rate.value:.3f} ({rate.low:.3f}{DASH}{rate.high:.3f})"


def _p_value(pairs: Discordance) -> str:
    return "p < 0.001" if pairs.p_value < 0.001 else f"p = {signed(pairs.p_value, 3).removeprefix('+')}"
