"""The charts of a run: which series of its metrics are shown together, and how they are called. Draws nothing."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from trainer.evaluate.outcome import Evaluation
from trainer.evaluate.report.charts import (
    Area,
    Chart,
    Curve,
    Format,
    Plan,
    Point,
    Whisker,
    drawn,
    smoothed,
    stacked,
    thinned,
)
from trainer.evaluate.report.history import AFTER, BEFORE, PASSED, Json, Run
from trainer.evaluate.report.words import duration, number, percent
from trainer.evaluate.verdicts import stage_order

FULL = (0.0, 1.0)


@dataclass(frozen=True, slots=True)
class Small:
    """One metric in a small chart of its own."""

    key: str
    title: str
    show: Format = number
    span: tuple[float, float] | None = None
    note: str = ""


SMALL = (
    Small("gradus/passed", "Pass rate in training", percent, FULL, "of the step's completions"),
    Small("entropy", "Entropy", note="how undecided the model is about its next token"),
    Small("completions/mean_length", "Completion length", note="tokens"),
    Small(
        "frac_reward_zero_std", "Groups without signal", percent, FULL, "prompts whose completions all earned the same"
    ),
    Small("completions/clipped_ratio", "Cut off", percent, note="completions that reached the length limit"),
    Small("kl", "KL to the reference"),
    Small("grad_norm", "Gradient norm"),
    Small("rewards/accuracies", "Better answer first", percent, FULL, "of the step's pairs"),
    Small("rewards/margins", "Margin", note="between better and worse answers"),
    Small("accuracy", "Better answer first", percent, FULL, "of the step's pairs"),
    Small("margin", "Margin", note="between the scores of better and worse answers"),
    Small("mean_token_accuracy", "Token accuracy", percent, FULL, "tokens that the model would have written itself"),
    Small("eval_perplexity", "Perplexity", note="on what is held out"),
    Small("length", "Length of blocks", note="tokens"),
    Small("gradus/faulted", "Faulted", percent, note="completions that could not be judged"),
)
SHOWN_ONLY_IF_NOT_ZERO = frozenset({"gradus/faulted", "completions/clipped_ratio", "kl"})
PART_STYLES = tuple(f"part-{n}" for n in range(6))
OUTCOME_STYLES = ("part-2", "part-1", "part-4", "part-3", "part-5", "part-0")
"""From the bottom of the pile to its top: passed, then the grader's stages from the last to the first."""
TIME_PARTS = (("time/generate_s", "generate"), ("time/grade_s", "grade"), ("time/update_s", "update"))


def reward_chart(metrics: Sequence[Json]) -> Chart | None:
    """The mean reward of each step, the spread of its completions, and a running mean."""
    means = thinned(_series(metrics, "reward"))
    spreads = dict(thinned(_series(metrics, "reward_std")))
    window = max(1, len(means) // 10)
    curves = [
        Curve("reward", "raw", means),
        Curve("spread", "unseen", [(x, spreads.get(x)) for x, _ in means], in_legend=False),
    ]
    if window > 1:
        curves.append(Curve(f"mean of the last {window} points", "bold", smoothed(means, window), in_words=False))
    low, high = zip(*(_around(point, spreads.get(point[0])) for point in means), strict=True) if means else ((), ())
    band = Area("± one standard deviation within the step", "band", low, high, in_words=False)
    return drawn(Plan("Reward", curves, [band] if any(spreads.values()) else [], y_range=FULL))


def loss_chart(metrics: Sequence[Json]) -> Chart | None:
    """The loss in training and on what is held out, for stages that earn no reward."""
    curves = [
        Curve(name, style, thinned([point for point in _series(metrics, key) if point[1] is not None]))
        for key, name, style in (("loss", "in training", "raw"), ("eval_loss", "held out", "bold"))
    ]
    return drawn(Plan("Loss", [curve for curve in curves if curve.points]))


def _around(point: Point, spread: float | None) -> tuple[Point, Point]:
    x, y = point
    if y is None or spread is None:
        return (x, None), (x, None)
    return (x, max(0.0, y - spread)), (x, min(1.0, y + spread))


def component_chart(run: Run) -> Chart | None:
    """What the mean reward of each step is made of; None for a single part, which is the reward itself."""
    rows = [
        (float(step), {name: total / sums.graded for name, total in sums.components.items()})
        for step, sums in sorted(run.training.steps.items())
    ] or list(_component_metrics(run.metrics))
    names = dict.fromkeys(name for _, parts in rows for name in parts)
    return _stack("Parts of the reward", rows, number) if len(names) > 1 else None


def outcome_chart(run: Run) -> Chart | None:
    """How far the answers of each training step come, as shares of its verdicts."""
    rows = [
        (float(step), {name: count / sums.graded for name, count in sums.outcomes.items()})
        for step, sums in sorted(run.training.steps.items())
    ]
    seen = {name for _, parts in rows for name in parts}
    pile = (PASSED, *reversed(stage_order(run.description.stages)))
    shown = {name: style for name, style in zip(pile, itertools.cycle(OUTCOME_STYLES), strict=False) if name in seen}
    shown |= dict.fromkeys(sorted(seen - set(shown)), "part-0")
    named = [
        (x, {f"stopped at {name}" if name != PASSED else name: parts.get(name, 0.0) for name in shown})
        for x, parts in rows
    ]
    return _stack("Where answers stop", named, percent, list(shown.values()), FULL)


def _component_metrics(metrics: Sequence[Json]) -> Iterator[tuple[float, dict[str, float]]]:
    prefix = "gradus/component/"
    for line in metrics:
        parts = {name.removeprefix(prefix): v for name, v in line.items() if name.startswith(prefix) and v is not None}
        if parts:
            yield float(line["step"]), parts


def time_chart(metrics: Sequence[Json]) -> Chart | None:
    """Where the time of a step goes; as one line where the parts were not measured."""
    rows = [
        (float(line["step"]), parts)
        for line in metrics
        if (parts := {name: line[key] for key, name in TIME_PARTS if line.get(key) is not None})
    ]
    if rows:
        return _stack("Time per step", rows, duration)
    return _small(Small("step_time", "Time per step", duration), metrics)


def _stack(
    title: str,
    rows: Sequence[tuple[float, dict[str, float]]],
    show: Format,
    styles: Sequence[str] = PART_STYLES,
    span: tuple[float, float] | None = None,
) -> Chart | None:
    names = list(dict.fromkeys(name for _, parts in rows for name in parts))
    by_name = {name: thinned([(x, parts.get(name, 0.0)) for x, parts in rows]) for name in names}
    xs = [x for x, _ in next(iter(by_name.values()), [])]
    thin = [(x, {name: series[n][1] or 0.0 for name, series in by_name.items()}) for n, x in enumerate(xs)]
    piles = zip(stacked(names, thin), itertools.cycle(styles), strict=False)
    areas = [Area(name, style, low, high) for (name, low, high), style in piles]
    return drawn(Plan(title, areas=areas, show=show, y_range=span))


def small_charts(metrics: Sequence[Json]) -> list[Chart]:
    """One small chart for each metric that was logged and has something to say."""
    found = (_small(spec, metrics) for spec in SMALL)
    return [chart for chart in found if chart is not None]


def _small(spec: Small, metrics: Sequence[Json]) -> Chart | None:
    series = thinned(_series(metrics, spec.key))
    if spec.key in SHOWN_ONLY_IF_NOT_ZERO and not any(y for _, y in series):
        return None
    curve = Curve(spec.title.lower(), "raw", series, in_legend=False)
    return drawn(Plan(spec.title, [curve], show=spec.show, y_range=spec.span, note=spec.note))


def held_out_chart(run: Run) -> Chart | None:
    """The pass rate on held-out tasks over the training, if it was measured on the way."""
    marks = []
    last_step = float(run.metrics[-1]["step"]) if run.metrics else 0.0
    for name, evaluation in run.evaluations.items():
        step = {BEFORE: 0.0, AFTER: last_step}.get(name, _step_of(name))
        if step is not None and (mark := _whisker(step, evaluation)) is not None:
            marks.append(mark)
    if len(marks) < 3:
        return None
    marks.sort(key=lambda mark: mark.x)
    line = Curve("pass rate", "raw", [(mark.x, mark.value) for mark in marks], in_legend=False, in_words=False)
    return drawn(Plan("Held-out pass rate on the way", [line], whiskers=marks, y_range=FULL, show=percent))


def _step_of(name: str) -> float | None:
    number_text = name.removeprefix("step-")
    return float(number_text) if number_text != name and number_text.isdigit() else None


def _whisker(step: float, evaluation: Evaluation) -> Whisker | None:
    found = evaluation.measured("sampled") or evaluation.measured("greedy")
    rate = found.pass_at.get(1) if found else None
    return Whisker(step, rate.value, rate.low, rate.high) if rate else None


def _series(metrics: Sequence[Json], key: str) -> list[Point]:
    return [(float(line["step"]), line.get(key)) for line in metrics]
