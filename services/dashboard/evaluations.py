"""Evaluations of a run folder or of a folder of `gradus eval`, bounded for the page."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gradus.contract import Stage
from services.dashboard.files import ConfinedDirectory, Identity, Json, parse_object, read_identity
from services.dashboard.groups import read_texts
from services.dashboard.series import to_finite

MAX_FILE_BYTES = 32 << 20
MAX_FILES = 1000
MODES = ("sampled", "greedy")
BEFORE, AFTER = "before", "after"
MAX_ITEMS, MAX_CHARS = 500, 500
"""Limits of every list, object and text of a file that is shown."""
OBJECTS = ("pass_at", "stopped_at", "components", "flags", "faults", "details", "turns")
NUMBERS = ("graded", "faulted", "passed", "samples", "temperature")
"""Parts of a measurement that the page takes for objects and for numbers."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One file of figures, as the page shows it."""

    name: str
    created: str
    step: int | None
    """None: after the last step, whichever that is, or not of a training run."""
    figures: tuple[Json, ...]
    """pass@1 with its interval, reward and counts by `mode`, the way of sampling; None is
    unknown."""
    content: Json
    """The whole file, bounded, with counts in place of its tasks."""
    file: Path

    @property
    def completions(self) -> Path:
        """Where its completions lie: beside results.json, or beside the file of its name."""
        prefix = "" if self.file.name == "results.json" else f"{self.file.stem}."
        return self.file.with_name(f"{prefix}completions.jsonl")


class Evaluations:
    """The evaluations below one folder, read again when a file changes."""

    def __init__(self, confined: ConfinedDirectory, folder: Path) -> None:
        self._confined = confined
        self._folder = folder
        self._identities: dict[Path, Identity | None] = {}
        self._evaluations: dict[Path, Evaluation | None] = {}
        """None for those that cannot be read."""

    def read_changes(self) -> bool:
        """Read all files if one is new, changed or gone; whether that is so."""
        identities = {path: read_identity(path) for path in list_figure_files(self._folder)}
        if identities == self._identities:
            return False
        self._evaluations = {path: read_evaluation(self._confined, path) for path in identities}
        self._identities = identities
        return True

    @property
    def unreadable(self) -> list[str]:
        """Paths below the folder."""
        broken = [path for path, evaluation in self._evaluations.items() if evaluation is None]
        return sorted(path.relative_to(self._folder).as_posix() for path in broken)

    def list_by_step(self) -> list[Evaluation]:
        """Return them by step, the one without a step last."""
        return sorted(
            (evaluation for evaluation in self._evaluations.values() if evaluation is not None),
            key=lambda evaluation: (
                evaluation.step is None,
                evaluation.step or 0,
                evaluation.created,
                evaluation.name,
            ),
        )

    def select_before_and_after(self) -> list[Evaluation]:
        """Return the first and the last, or the only one: those of these names where there are
        any."""
        evaluations = self.list_by_step()
        named = {evaluation.name: evaluation for evaluation in evaluations}
        first = named.get(BEFORE) or next(
            (evaluation for evaluation in evaluations if evaluation.name != AFTER), None
        )
        last = named.get(AFTER) or next(
            (evaluation for evaluation in evaluations[::-1] if evaluation is not first), None
        )
        return [evaluation for evaluation in (first, last) if evaluation is not None]


def list_figure_files(folder: Path) -> list[Path]:
    """List files of figures: `results.json` of `gradus eval`, a run's `eval/*.json`, `gradus eval`
    into a run's `eval/`."""
    try:
        inside = sorted((folder / "eval").iterdir())[:MAX_FILES]
    except OSError:
        inside = []
    candidates = [path if path.suffix == ".json" else path / "results.json" for path in inside]
    return [path for path in (folder / "results.json", *candidates) if path.is_file()]


def read_evaluation(confined: ConfinedDirectory, path: Path) -> Evaluation | None:
    """Read a file of figures, bounded; None for one that cannot be read or is no evaluation."""
    name = path.parent.name if path.name == "results.json" else path.stem
    raw = parse_object(confined.read(path, MAX_FILE_BYTES) or b"")
    measured = raw.get("measurements") if raw else None
    if raw is None or not isinstance(measured, list):
        return None
    measured = [
        measurement
        for measurement in measured
        if isinstance(measurement, Mapping) and measurement.get("mode") in MODES
    ]
    if not measured:
        return None
    description = _to_mapping(raw.get("grader_description"))
    own_stages = read_texts(description.get("stages"))
    left_out = ("measurements", "grader_description")
    content = {
        **bound_value({key: value for key, value in raw.items() if key not in left_out}),
        **{key: read_texts(raw.get(key)) for key in ("graders", "rubrics", "toolchains")},
        "machine": bound_value(_to_mapping(raw.get("machine"))),
        "name": name,
        "grader_stages": own_stages,
        "stages": list(dict.fromkeys((*own_stages, *map(str, Stage)))),
        "components": read_texts(description.get("components")),
        "rules": bound_value(_to_mapping(description.get("rates"))),
        "measurements": [_read_measurement(measurement) for measurement in measured],
    }
    created = str(raw.get("created") or "")[:40]
    figures = tuple(_extract_figures(measurement) for measurement in content["measurements"])
    return Evaluation(name, created, parse_step(name), figures, content, path)


def _to_mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def bound_value(value: Any, depth: int = 8) -> Any:
    """Cut long texts, lists and objects in a value of a file, and leave out numbers that are not
    finite."""
    if isinstance(value, str):
        return value[:MAX_CHARS]
    if isinstance(value, Mapping):
        items = list(value.items())[:MAX_ITEMS] if depth else []
        return {str(key)[:MAX_CHARS]: bound_value(part, depth - 1) for key, part in items}
    if isinstance(value, (list, tuple)):
        return [bound_value(part, depth - 1) for part in value[:MAX_ITEMS]] if depth else []
    return value if isinstance(value, bool) or to_finite(value) is not None else None


def _read_measurement(raw: Mapping[str, Any]) -> Json:
    """Bound one way of sampling, with counts in place of its tasks."""
    tasks = raw.get("problems")
    tasks = [task for task in tasks if isinstance(task, Mapping)] if isinstance(tasks, list) else []
    measurement: Json = bound_value({key: value for key, value in raw.items() if key != "problems"})
    for name in (*OBJECTS, "mean_reward"):
        if not isinstance(measurement.get(name), Mapping):
            measurement[name] = None
    for name in NUMBERS:
        measurement[name] = to_finite(measurement.get(name)) or 0
    measurement["tasks"] = len(tasks)
    measurement["unjudged"] = sum(not task.get("graded") for task in tasks)
    return measurement


def parse_step(name: str) -> int | None:
    """Return 0 for `before` and 40 for `step-40`; None for any other name."""
    if name == BEFORE:
        return 0
    match = re.fullmatch(r"step-([0-9]{1,12})", name)
    return int(match[1]) if match else None


def _extract_figures(measurement: Json) -> Json:
    rate = _to_mapping(_to_mapping(measurement["pass_at"]).get("1"))
    return {
        "mode": measurement["mode"],
        "pass_rate": to_finite(rate.get("value")),
        "low": to_finite(rate.get("low")),
        "high": to_finite(rate.get("high")),
        "reward": to_finite(_to_mapping(measurement["mean_reward"]).get("value")),
        "graded": int(measurement["graded"]),
        "faulted": int(measurement["faulted"]),
    }
