"""Logged values of a run by step, in bounded memory: means in bins, and the newest values.

A run of a hundred thousand steps takes as much memory and as long to draw as one of a thousand.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from services.dashboard.files import Line

MAX_BINS = 600
MAX_NAMES = 300  # quantities of one run; further names are left out
MAX_NAME_CHARS = 100
MAX_STEP = 10**12


def to_finite(value: Any) -> float | None:
    """Return the value as a float if it is a finite number, else None."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) and abs(number) < 1e300 else None


def to_mapping(value: Any) -> Mapping[str, Any]:
    """Return what should be an object; empty for any other value."""
    if isinstance(value, Mapping):
        return value
    return {}


def to_list(value: Any) -> list[Any]:
    """Return what should be a list; empty for any other value."""
    if isinstance(value, list):
        return value
    return []


def read_numbers(mapping: Any, limit: int = 24) -> dict[str, float]:
    """Return the finite numbers of what should be an object, such as components of a reward."""
    numbers = {}
    for name, value in islice(to_mapping(mapping).items(), limit):
        number = to_finite(value)
        if number is not None:
            numbers[str(name)[:MAX_NAME_CHARS]] = number
    return numbers


def read_step(record: Mapping[str, Any]) -> int | None:
    """Return the step of a record; None for a record without a valid one."""
    step = to_finite(record.get("step"))
    return int(step) if step is not None and 0 <= step <= MAX_STEP else None


@dataclass(slots=True)
class _Bin:
    step: int  # the last step in the bin
    sums: dict[str, list[float]] = field(default_factory=dict)  # sum and count by name

    def add(self, name: str, total: float, count: float) -> None:
        sum_and_count = self.sums.setdefault(name, [0.0, 0.0])
        sum_and_count[0] += total
        sum_and_count[1] += count


class Binned:
    """Sums and counts of many quantities over steps. Bins double in width when there are too many
    of them."""

    def __init__(self) -> None:
        self.names: dict[str, None] = {}
        self.width = 1
        self._bins: dict[int, _Bin] = {}

    def add(self, step: int, values: Mapping[str, float]) -> None:
        step_bin = self._bins.setdefault(step // self.width, _Bin(step))
        step_bin.step = max(step_bin.step, step)
        for name, value in values.items():
            if len(self.names) < MAX_NAMES:
                self.names[name] = None
            if name in self.names:
                step_bin.add(name, value, 1)
        while len(self._bins) > MAX_BINS:
            self._widen()

    def _widen(self) -> None:
        self.width *= 2
        wider: dict[int, _Bin] = {}
        for step_bin in self._bins.values():
            into = wider.setdefault(step_bin.step // self.width, _Bin(step_bin.step))
            into.step = max(into.step, step_bin.step)
            for name, (total, count) in step_bin.sums.items():
                into.add(name, total, count)
        self._bins = wider

    def drop_from(self, step: int) -> None:
        """Drop the bins of this step and later ones, which are logged again."""
        self._bins = {
            index: step_bin for index, step_bin in self._bins.items() if step_bin.step < step
        }

    def list_steps(self) -> list[int]:
        return [step_bin.step for step_bin in self._list_bins()]

    def compute_means(self, name: str) -> list[float | None]:
        """Return the means by bin, in the order of `list_steps`."""
        means: list[float | None] = []
        for step_bin in self._list_bins():
            total, count = step_bin.sums.get(name, (0.0, 0.0))
            means.append(total / count if count else None)
        return means

    def compute_totals(self, name: str) -> list[float]:
        """Return the sums by bin, in the order of `list_steps`."""
        return [step_bin.sums.get(name, (0.0, 0.0))[0] for step_bin in self._list_bins()]

    def _list_bins(self) -> list[_Bin]:
        return [self._bins[index] for index in sorted(self._bins)]


class StepLog:
    """The lines of a `metrics.jsonl`: one per logged step."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.binned = Binned()
        self.step: int | None = None
        self.newest: dict[str, float] = {}  # values that the newest step logged
        # The newest value of each name, whichever step logged it.
        self.latest: dict[str, float] = {}

    def add(self, line: Line) -> None:
        """Add a line; skip one without a step."""
        record = line.record
        step = read_step(record)
        if step is None:
            return
        if self.step is not None and step < self.step:
            self.binned.drop_from(step)
        values = read_numbers(record, MAX_NAMES + 1)
        values.pop("step", None)
        self.binned.add(step, values)
        if step != self.step:
            self.newest = {}
        self.step = step
        for name, value in values.items():
            if name in self.binned.names:
                self.newest[name] = value
                self.latest[name] = value
