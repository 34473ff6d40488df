"""Figures out of the files that commands leave: where a metric stands in a file, and between which
ends it lies.

A path is `measurements[mode=greedy].pass_at.1`: keys with dots between, `[key=value]` for
one of a list. A file of JSON lines is read as a run's metrics: of the lines that have the metric
the last, or what `take` says. A folder is that of lm-eval, whose newest results are read:
`results.mmlu.acc,none`. Nothing is made up: what is missing or no finite number raises, with words
for a table. Decides nothing.
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

from trainer.runs.folder import parse_record

Take = Literal["last", "max", "min", "mean"]
NORMAL_95 = 1.96
"""Standard errors on each side of an interval of 95%."""

_KEY, _PICK = r"[^.\[\]]+", r"\[[^=\[\]]+=[^\[\]]*\]"
PATH = re.compile(rf"{_KEY}(?:\.{_KEY}|{_PICK})*")
STEP = re.compile(r"\[(?P<name>[^=\]]+)=(?P<value>[^\]]*)\]|(?P<key>[^.\[\]]+)")
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


def read_figure(file: Path, metric: str, take: Take = "last") -> Figure:
    """Return the metric in a file. Raises NoFigure when anything on the way is missing, no number,
    or not finite."""
    if file.suffix == ".jsonl":
        return Figure(
            _TAKEN[take](
                [require_finite(line[metric], metric) for line in _read_lines(file, metric)]
            )
        )
    tree = read_json(file)
    entry = resolve_path(tree, metric)
    if isinstance(entry, Mapping):
        ends = (entry.get("low"), entry.get("high"))
        entry = entry.get("value")
    else:
        ends = _compute_ends(tree, metric, entry)
    low, high = (
        None if end is None else require_finite(end, f"an end of {metric}") for end in ends
    )
    return Figure(require_finite(entry, metric), low, high)


def _compute_ends(tree: Any, metric: str, value: Any) -> tuple[float, float] | tuple[None, None]:
    """Return the ends of a metric of lm-eval, which leaves `acc_stderr,none` beside `acc,none`."""
    name, _, metric_filter = metric.rpartition(",")
    try:
        error = require_finite(resolve_path(tree, f"{name}_stderr,{metric_filter}"), metric)
        return require_finite(value, metric) - NORMAL_95 * error, value + NORMAL_95 * error
    except NoFigure:
        return None, None


def read_json(file: Path) -> Any:
    """Return what a JSON file holds, or in a folder the newest results of lm-eval. Raises
    NoFigure."""
    if file.is_dir():  # their names end with the time
        file = max(file.rglob("results_*.json"), key=lambda path: path.name, default=file)
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise NoFigure(f"{file} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise NoFigure(f"{file} is not JSON") from None


def resolve_path(tree: Any, path: str) -> Any:
    """Return what stands at a path. Raises NoFigure where it leads nowhere."""
    if not PATH.fullmatch(path):
        raise NoFigure(f"{path!r} is no path such as measurements[mode=greedy].mean_reward")
    for step in STEP.finditer(path):
        tree = _take_step(tree, step)
    return tree


def _take_step(tree: Any, step: re.Match[str]) -> Any:
    key = step["key"]
    name = step["name"]
    if key is not None and isinstance(tree, Mapping) and key in tree:
        return tree[key]
    if name is not None and isinstance(tree, list):
        matches = []
        for item in tree:
            if isinstance(item, Mapping) and str(item.get(name)) == step["value"]:
                matches.append(item)
        if len(matches) == 1:
            return matches[0]
    raise NoFigure(f"{step.string} is missing: there is no {step[0]}")


def require_finite(value: Any, label: str) -> float:
    """Return a finite number. Raises NoFigure for anything else, `true` included."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise NoFigure(f"{label} is {'missing' if value is None else 'no number'}")
    if not math.isfinite(value):
        raise NoFigure(f"{label} is {value}, which is not finite")
    return float(value)


def _read_lines(file: Path, metric: str) -> list[dict[str, Any]]:
    """Return the lines that have the metric, whatever its value; a line that a crash tore is
    none."""
    try:
        texts = file.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError):
        raise NoFigure(f"{file} cannot be read") from None
    records = map(parse_record, texts)
    matches = []
    for record in records:
        if record is not None and metric in record:
            matches.append(record)
    if not matches:
        raise NoFigure(f"{metric} is missing: no line of {file.name} has it")
    return matches
