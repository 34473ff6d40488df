"""Geometry of line and area charts: from numbers to SVG paths and labelled ticks, in a square of 1000 by 1000.

Draws nothing and knows no colours: the template stretches the square over the page and sets the labels as text.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from trainer.evaluate.report.words import duration, number, percent, whole_percent, whole_seconds

SIDE = 1000.0
LONE_BAR = 15.0
"""Half the width of an area that stands over one x only."""
MOST_POINTS = 300
"""A longer series is averaged in so many bins; a page shows no more."""

Point = tuple[float, float | None]
"""(x, y); without y the curve has a gap."""
Format = Callable[[float | None], str]
ON_A_SCALE: Mapping[Format, Format] = {percent: whole_percent, duration: whole_seconds}
"""Beside an axis there is no room, and values are round."""


@dataclass(frozen=True, slots=True)
class Curve:
    """One line. `style` names how it is drawn."""

    name: str
    style: str
    points: Sequence[Point]
    in_legend: bool = True
    in_words: bool = True


@dataclass(frozen=True, slots=True)
class Area:
    """What lies between two curves with the same x."""

    name: str
    style: str
    low: Sequence[Point]
    high: Sequence[Point]
    in_words: bool = True

    def heights(self) -> list[Point]:
        """How high the area is at each x; negative where it hangs below zero."""
        heights: list[Point] = []
        for (x, low), (_, high) in zip(self.low, self.high, strict=True):
            if low is None or high is None:
                heights.append((x, None))
            else:
                heights.append((x, high - low if low >= 0 else low - high))
        return heights


@dataclass(frozen=True, slots=True)
class Whisker:
    """A figure with its interval."""

    x: float
    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Shape:
    name: str
    style: str
    path: str


@dataclass(frozen=True, slots=True)
class Tick:
    at: float
    """Percent from the left or from the top."""
    text: str


@dataclass(frozen=True, slots=True)
class Key:
    """One entry of a legend."""

    name: str
    style: str
    shape: str
    """`line`, `area` or `dot`."""


@dataclass(frozen=True, slots=True)
class Chart:
    """Everything that a template needs."""

    title: str
    label: str
    """What the picture shows, for those who cannot see it."""
    x_name: str
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    areas: tuple[Shape, ...]
    lines: tuple[Shape, ...]
    dots: tuple[Shape, ...] = ()
    keys: tuple[Key, ...] = ()
    readout: tuple[tuple[float, str], ...] = ()
    """(percent from the left, what the curves say there)."""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Frame:
    """The ranges that a chart shows."""

    x: tuple[float, float]
    y: tuple[float, float]

    def at(self, x: float, y: float) -> str:
        return f"{self.left(x):.1f} {self.down(y):.1f}"

    def left(self, x: float) -> float:
        return SIDE * _share(x, self.x)

    def down(self, y: float) -> float:
        return SIDE * (1 - min(1.0, max(0.0, _share(y, self.y))))


@dataclass(slots=True)
class Plan:
    """What to draw; `y_range` fixes the vertical range that is otherwise taken from the data, with zero in it."""

    title: str
    curves: Sequence[Curve] = ()
    areas: Sequence[Area] = ()
    whiskers: Sequence[Whisker] = ()
    y_range: tuple[float, float] | None = None
    show: Format = number
    x_name: str = "step"
    note: str = ""


def drawn(plan: Plan) -> Chart | None:
    """The chart, or None when there is not a single point to draw."""
    frame = _frame(plan)
    if frame is None:
        return None
    return Chart(
        title=plan.title,
        label=_label(plan),
        x_name=plan.x_name,
        x_ticks=tuple(Tick(100 * _share(x, frame.x), f"{x:,.0f}") for x in _whole_ticks(*frame.x)),
        y_ticks=tuple(
            Tick(100 - 100 * _share(y, frame.y), ON_A_SCALE.get(plan.show, plan.show)(y)) for y in ticks(*frame.y)
        ),
        areas=tuple(Shape(area.name, area.style, _area_path(area, frame)) for area in plan.areas),
        lines=(
            *(Shape(curve.name, curve.style, path(curve.points, frame)) for curve in plan.curves),
            *(Shape("", "whisker", _whisker_path(whisker, frame)) for whisker in plan.whiskers),
        ),
        dots=tuple(Shape("", "dot", f"M{frame.at(x, y)}h0") for x, y in _alone(plan)),
        keys=tuple(_keys(plan)),
        readout=tuple(_readout(plan, frame)),
        note=plan.note,
    )


# ------------------------------------------------------------------------------------------------------------ paths


def path(points: Sequence[Point], frame: Frame) -> str:
    """The SVG path through the points, broken where a y is missing; points without a neighbour are not in it."""
    runs = [[frame.at(x, y) for x, y in run] for run in _runs(points) if len(run) > 1]
    return "".join(f"M{run[0]}L{' '.join(run[1:])}" for run in runs)


def _alone(plan: Plan) -> Iterator[tuple[float, float]]:
    """What is drawn as a dot: figures with an interval, and points of curves that have no neighbour."""
    yield from ((mark.x, mark.value) for mark in plan.whiskers)
    for curve in plan.curves:
        if curve.in_legend or len(plan.curves) == 1:
            yield from (run[0] for run in _runs(curve.points) if len(run) == 1)


def _area_path(area: Area, frame: Frame) -> str:
    both = [(x, (low, high)) for (x, low), (_, high) in zip(area.low, area.high, strict=True)]
    parts = []
    for run in _runs([(x, None if None in pair else float(n)) for n, (x, pair) in enumerate(both)]):
        indices = [int(n) for _, n in run]
        there = [(frame.left(area.high[n][0]), frame.down(area.high[n][1] or 0.0)) for n in indices]
        back = [(frame.left(area.low[n][0]), frame.down(area.low[n][1] or 0.0)) for n in reversed(indices)]
        corners = _widened(there[0], back[0]) if len(indices) == 1 else [*there, *back]
        parts.append("M" + " ".join(f"{x:.1f} {y:.1f}" for x, y in corners) + "Z")
    return "".join(parts)


def _widened(top: tuple[float, float], bottom: tuple[float, float]) -> list[tuple[float, float]]:
    """A bar around a single x, which an area over it alone would be too thin to see."""
    left, right = max(0.0, top[0] - LONE_BAR), min(SIDE, top[0] + LONE_BAR)
    return [(left, top[1]), (right, top[1]), (right, bottom[1]), (left, bottom[1])]


def _whisker_path(whisker: Whisker, frame: Frame) -> str:
    return f"M{frame.at(whisker.x, whisker.low)}L{frame.at(whisker.x, whisker.high)}"


def _runs(points: Sequence[Point]) -> Iterator[list[tuple[float, float]]]:
    """Stretches without a gap."""
    run: list[tuple[float, float]] = []
    for x, y in points:
        if y is None:
            if run:
                yield run
            run = []
        else:
            run.append((x, y))
    if run:
        yield run


# ------------------------------------------------------------------------------------------------------------ scales


def ticks(low: float, high: float, most: int = 5) -> list[float]:
    """Round numbers from `low` to `high`, at most `most + 1` of them."""
    step = _round_step((high - low) / most)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(n * step, 12) for n in range(first, last + 1)]


def _whole_ticks(low: float, high: float) -> list[float]:
    step = max(1.0, _round_step((high - low) / 6)) if high > low else 1.0
    step = float(math.ceil(step))
    return [n * step for n in range(math.ceil(low / step), math.floor(high / step) + 1)] or [low]


def _round_step(rough: float) -> float:
    """The next number of form 1, 2, 2.5 or 5 times a power of ten."""
    if rough <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(rough))
    return next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough * (1 - 1e-9))


def _share(value: float, span: tuple[float, float]) -> float:
    low, high = span
    return (value - low) / (high - low) if high > low else 0.5


def _frame(plan: Plan) -> Frame | None:
    series = [curve.points for curve in plan.curves]
    series += [points for area in plan.areas for points in (area.low, area.high)]
    series += [[(mark.x, mark.low), (mark.x, mark.high)] for mark in plan.whiskers]
    found = [(x, y) for points in series for x, y in points if y is not None]
    if not found:
        return None
    xs, ys = [x for x, _ in found], [y for _, y in found]
    return Frame((min(xs), max(xs)), plan.y_range or _rounded_range(min(0.0, *ys), max(0.0, *ys)))


def _rounded_range(low: float, high: float) -> tuple[float, float]:
    if high <= low:
        return low, low + 1.0
    step = _round_step((high - low) / 4)
    return math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step


# -------------------------------------------------------------------------------------------------------------- words


def _keys(plan: Plan) -> Iterator[Key]:
    for curve in plan.curves:
        if curve.in_legend:
            yield Key(curve.name, curve.style, "line")
    for area in plan.areas:
        yield Key(area.name, area.style, "area")


def _spoken(plan: Plan) -> Iterator[tuple[str, Sequence[Point]]]:
    """What is put into words: each curve and each area's height."""
    yield from ((curve.name, curve.points) for curve in plan.curves if curve.in_words)
    yield from ((area.name, area.heights()) for area in plan.areas if area.in_words)


def _label(plan: Plan) -> str:
    parts = [f"{plan.title} by {plan.x_name}."]
    for name, points in _spoken(plan):
        known = [(x, y) for x, y in points if y is not None]
        if known:
            (first_x, first), (last_x, last) = known[0], known[-1]
            start, end = (f"{plan.show(y)} at {plan.x_name} {x:g}" for x, y in ((first_x, first), (last_x, last)))
            parts.append(f"{name}: {start}, {end}.")
    parts += [f"{plan.show(mark.value)} at {plan.x_name} {mark.x:g}." for mark in plan.whiskers]
    return " ".join(parts)


def _readout(plan: Plan, frame: Frame) -> Iterator[tuple[float, str]]:
    said: dict[float, list[str]] = {}
    for name, points in _spoken(plan):
        for x, y in points:
            if y is not None:
                said.setdefault(x, []).append(f"{name} {plan.show(y)}")
    for mark in plan.whiskers:
        text = f"{plan.show(mark.value)}, 95% interval {plan.show(mark.low)} to {plan.show(mark.high)}"
        said.setdefault(mark.x, []).append(text)
    for x in sorted(said):
        yield round(100 * _share(x, frame.x), 2), f"{plan.x_name} {x:g}: " + ", ".join(said[x])


# ------------------------------------------------------------------------------------------------------------- series


def thinned(points: Sequence[Point], most: int = MOST_POINTS) -> list[Point]:
    """The series averaged in at most `most` bins of neighbours."""
    if len(points) <= most:
        return list(points)
    edges = [round(n * len(points) / most) for n in range(most + 1)]
    return [_averaged(points[start:end]) for start, end in zip(edges, edges[1:], strict=False)]


def _averaged(points: Sequence[Point]) -> Point:
    ys = [y for _, y in points if y is not None]
    return points[-1][0], sum(ys) / len(ys) if ys else None


def smoothed(points: Sequence[Point], window: int) -> list[Point]:
    """The mean of each point and those before it, `window` in all."""
    return [(points[n][0], _averaged(points[max(0, n + 1 - window) : n + 1])[1]) for n in range(len(points))]


def stacked(
    names: Sequence[str], rows: Sequence[tuple[float, dict[str, float]]]
) -> list[tuple[str, list[Point], list[Point]]]:
    """(name, lower edge, upper edge) of each part: what adds is piled up from zero, what takes away hangs below it."""
    parts: dict[str, tuple[list[Point], list[Point]]] = {name: ([], []) for name in names}
    for x, values in rows:
        above = below = 0.0
        for name in names:
            value = values.get(name, 0.0)
            start = above if value >= 0 else below
            above, below = (above + value, below) if value >= 0 else (above, below + value)
            parts[name][0].append((x, min(start, start + value)))
            parts[name][1].append((x, max(start, start + value)))
    return [(name, low, high) for name, (low, high) in parts.items()]
