"""Figures out of the files that commands leave: where a metric stands in a file, and between which
ends it lies.

A path is `measurements[mode=greedy].pass_at.1`: keys with dots between, `[key=value]` or `[0]` for
one of a list. A file of JSON lines is read as a run's metrics: of the lines that have the metric
the last, or what `take` says. Nothing is made up: what is missing or no finite number raises, with
words for a table. Decides nothing.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

from trainer.runs.folder import record_of

Take = Literal["last", "max", "min", "mean"]
MAX_FILE_MB = 256

_KEY, _PICK = r"[^.\[\]]+", r"\[[^\[\]]+\]"
PATH = re.compile(rf"{_KEY}(?:\.{_KEY}|{_PICK})*")
STEP = re.compile(
    r"\[(?P<index>[0-9]+)\]|\[(?P<name>[^=\]]+)=(?P<value>[^\]]*)\]|(?P<key>[^.\[\]]+)"
)
_TAKEN: Mapping[Take, Callable[[Sequence[float]], float]] = {
    "last": lambda values: values[-1],
    "max": max,
    "min": min,
    "mean": fmean,
}


class NoFigure(Exception):
    """There is no usable number; the message says why."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A number and, where the file tells them, the ends of its confidence interval."""

    value: float
    low: float | None = None
    high: float | None = None


def read_figure(
    file: Path, metric: str, interval: str | None = None, take: Take = "last"
) -> Figure:
    """The metric in a file; `interval` is the path of a pair of ends where they do not stand beside
    the value.

    Raises NoFigure when anything on the way is missing, no number, or not finite.
    """
    if file.suffix == ".jsonl":
        return Figure(_TAKEN[take]([finite(line[metric], metric) for line in _lines(file, metric)]))
    tree = read_json(file)
    found = at(tree, metric)
    if isinstance(found, Mapping):
        value = finite(found.get("value"), metric)
        low, high = (
            finite(found[name], name) if name in found else None for name in ("low", "high")
        )
    else:
        ends = at(tree, interval) if interval is not None else (None, None)
        if not isinstance(ends, list | tuple) or len(ends) != 2:
            raise NoFigure(f"{interval} is no pair of numbers")
        low, high = (None if end is None else finite(end, str(interval)) for end in ends)
        value = finite(found, metric)
    slack = 1e-9 * max(1.0, abs(value))
    if low is not None and high is not None and not low - slack <= value <= high + slack:
        raise NoFigure(
            f"{metric} is {value:g}, which its interval {low:g} to {high:g} does not hold"
        )
    return Figure(value, low, high)


def read_json(file: Path) -> Any:
    """What a JSON file holds. Raises NoFigure."""
    try:
        if file.stat().st_size > MAX_FILE_MB * 2**20:
            raise NoFigure(f"{file} is larger than {MAX_FILE_MB} MiB")
        return json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise NoFigure(f"{file} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise NoFigure(f"{file} is not JSON") from None


def at(tree: Any, path: str, inside: Callable[[Any, re.Match[str]], Any] | None = None) -> Any:
    """What stands at a path; `inside` takes a step of another kind of tree. Raises NoFigure where
    it leads nowhere."""
    if not PATH.fullmatch(path):
        raise NoFigure(f"{path!r} is no path such as measurements[mode=greedy].mean_reward")
    for step in STEP.finditer(path):
        tree = (inside or _inside)(tree, step)
    return tree


def _inside(tree: Any, step: re.Match[str]) -> Any:
    key, name, index = step["key"], step["name"], step["index"]
    if key is not None and isinstance(tree, Mapping) and key in tree:
        return tree[key]
    if index is not None and isinstance(tree, list) and int(index) < len(tree):
        return tree[int(index)]
    if name is not None and isinstance(tree, list):
        found = [
            item
            for item in tree
            if isinstance(item, Mapping) and str(item.get(name)) == step["value"]
        ]
        if len(found) == 1:
            return found[0]
    raise NoFigure(f"{step.string} is missing: there is no {step[0]}")


def finite(value: Any, what: str) -> float:
    """A finite number. Raises NoFigure for anything else, `true` included."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise NoFigure(f"{what} is {'missing' if value is None else 'no number'}")
    if not math.isfinite(value):
        raise NoFigure(f"{what} is {value}, which is not finite")
    return float(value)


def _lines(file: Path, metric: str) -> list[dict[str, Any]]:
    """The lines that have the metric, whatever its value; a line that a crash tore is none."""
    try:
        texts = file.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError):
        raise NoFigure(f"{file} cannot be read") from None
    found = [
        record for text in texts if (record := record_of(text)) is not None and metric in record
    ]
    if not found:
        raise NoFigure(f"{metric} is missing: no line of {file.name} has it")
    return found
