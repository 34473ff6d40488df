"""What was logged step by step, in a bounded space: means in bins, the last steps, the newest
values.

A run of a hundred thousand steps takes as much memory and as long to draw as one of a thousand.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

MAX_BINS = 600
MAX_NAMES = 300
"""Quantities of one run; further names are left out."""
MAX_NAME_CHARS = 100
MAX_STEP = 10**12
WINDOW = 20
"""Logged steps that are averaged where one is compared with what was before."""

Row = tuple[int, dict[str, float]]


def finite(value: Any) -> float | None:
    """The value as a float if it is a finite number, else None."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) and abs(number) < 1e300 else None


def step_in(record: Mapping[str, Any]) -> int | None:
    """The step that a record is of; None where it names none that could be one."""
    step = finite(record.get("step"))
    return int(step) if step is not None and 0 <= step <= MAX_STEP else None


@dataclass(slots=True)
class _Bin:
    step: int
    """The last step in the bin."""
    sums: dict[str, list[float]] = field(default_factory=dict)
    """Sum and count by name."""

    def add(self, name: str, total: float, count: float) -> None:
        found = self.sums.setdefault(name, [0.0, 0.0])
        found[0] += total
        found[1] += count


class Binned:
    """Sums and counts of many quantities over steps. Bins double in width when there are too many
    of them."""

    def __init__(self) -> None:
        self.names: dict[str, None] = {}
        self.width = 1
        self._bins: dict[int, _Bin] = {}

    def add(self, step: int, values: Mapping[str, float]) -> None:
        """Add one value of each name at a step."""
        found = self._bins.setdefault(step // self.width, _Bin(step))
        found.step = max(found.step, step)
        for name, value in values.items():
            if (
                name not in self.names
                and len(self.names) < MAX_NAMES
                and len(name) <= MAX_NAME_CHARS
            ):
                self.names[name] = None
            if name in self.names:
                found.add(name, value, 1)
        while len(self._bins) > MAX_BINS:
            self.width *= 2
            wider: dict[int, _Bin] = {}
            for one in self._bins.values():
                into = wider.setdefault(one.step // self.width, _Bin(one.step))
                into.step = max(into.step, one.step)
                for name, (total, count) in one.sums.items():
                    into.add(name, total, count)
            self._bins = wider

    def forget_from(self, step: int) -> None:
        """Drop what is known of this step and later ones, which are done again."""
        self._bins = {index: one for index, one in self._bins.items() if one.step < step}

    def steps(self) -> list[int]:
        return [one.step for one in self._ordered()]

    def means(self, name: str) -> list[float | None]:
        """By bin, in the order of `steps`."""
        return [
            sums[0] / sums[1] if (sums := one.sums.get(name)) else None for one in self._ordered()
        ]

    def totals(self, name: str) -> list[float]:
        """By bin, in the order of `steps`."""
        return [one.sums[name][0] if name in one.sums else 0.0 for one in self._ordered()]

    def _ordered(self) -> list[_Bin]:
        return [self._bins[index] for index in sorted(self._bins)]


class StepLog:
    """The lines of a `metrics.jsonl`: one per logged step."""

    def __init__(self) -> None:
        self.binned = Binned()
        self.recent: deque[Row] = deque(maxlen=2 * WINDOW)
        self.latest: dict[str, float] = {}
        """The newest value of each name, whichever step logged it."""
        self.logged = 0

    def add(self, record: Mapping[str, Any]) -> None:
        """Take a line in. One without a step, or without a finite number, is passed over."""
        step = step_in(record)
        if step is None:
            return
        values = {
            name: number for name, value in record.items() if (number := finite(value)) is not None
        }
        values.pop("step", None)
        if self.recent and step < self.recent[-1][0]:
            self.binned.forget_from(step)
            self.recent = deque((row for row in self.recent if row[0] < step), maxlen=2 * WINDOW)
        self.logged += 1
        self.binned.add(step, values)
        kept = {name: value for name, value in values.items() if name in self.binned.names}
        if self.step == step:
            self.newest.update(kept)
        else:
            self.recent.append((step, kept))
        self.latest.update(kept)

    @property
    def step(self) -> int | None:
        """The newest one."""
        return self.recent[-1][0] if self.recent else None

    @property
    def newest(self) -> dict[str, float]:
        """What the newest step logged."""
        return self.recent[-1][1] if self.recent else {}

    def last_rows(self, count: int = WINDOW, before: int = 0) -> list[Row]:
        """Up to `count` of the newest rows, those `before` the very newest ones left out; oldest
        first."""
        rows = list(self.recent)
        end = len(rows) - before
        return rows[max(0, end - count) : max(0, end)]


def mean_of(rows: list[Row], name: str) -> float | None:
    """Over the rows that have it; None if none has."""
    found = [values[name] for _, values in rows if name in values]
    return fmean(found) if found else None


def share_of(rows: list[Row], name: str) -> float:
    """The mean of what is only logged where it is not zero."""
    return math.fsum(values.get(name, 0.0) for _, values in rows) / len(rows) if rows else 0.0
