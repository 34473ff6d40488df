"""Evaluations of a run folder or of a folder of `gradus eval`, bounded for the page."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gradus.contract import Stage
from services.dashboard.files import ConfinedDirectory, Identity, Json, identity_of, parsed
from services.dashboard.groups import texts_in
from services.dashboard.series import finite

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
    given: Json
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
        self._seen: dict[Path, Identity | None] = {}
        self._found: dict[Path, Evaluation | None] = {}
        """None for those that cannot be read."""

    def look(self) -> bool:
        """Read all files if one is new, changed or gone; whether that is so."""
        there = {path: identity_of(path) for path in figure_files(self._folder)}
        if there == self._seen:
            return False
        self._found = {path: read_evaluation(self._confined, path) for path in there}
        self._seen = there
        return True

    @property
    def unreadable(self) -> list[str]:
        """Paths below the folder."""
        broken = [path for path, found in self._found.items() if found is None]
        return sorted(path.relative_to(self._folder).as_posix() for path in broken)

    def in_order(self) -> list[Evaluation]:
        """Return them by step, the one without a step last."""
        return sorted(
            (one for one in self._found.values() if one is not None),
            key=lambda one: (one.step is None, one.step or 0, one.created, one.name),
        )

    def before_and_after(self) -> list[Evaluation]:
        """Return the first and the last, or the only one: those of these names where there are
        any."""
        found = self.in_order()
        named = {one.name: one for one in found}
        first = named.get(BEFORE) or next((one for one in found if one.name != AFTER), None)
        last = named.get(AFTER) or next((one for one in found[::-1] if one is not first), None)
        return [one for one in (first, last) if one is not None]


def figure_files(folder: Path) -> list[Path]:
    """List files of figures: `results.json` of `gradus eval`, a run's `eval/*.json`, `gradus eval`
    into a run's `eval/`."""
    try:
        inside = sorted((folder / "eval").iterdir())[:MAX_FILES]
    except OSError:
        inside = []
    found = [path if path.suffix == ".json" else path / "results.json" for path in inside]
    return [path for path in (folder / "results.json", *found) if path.is_file()]


def read_evaluation(confined: ConfinedDirectory, path: Path) -> Evaluation | None:
    """Read a file of figures, bounded; None for one that cannot be read or is no evaluation."""
    name = path.parent.name if path.name == "results.json" else path.stem
    given = parsed(confined.read(path, MAX_FILE_BYTES) or b"")
    measured = given.get("measurements") if given else None
    if given is None or not isinstance(measured, list):
        return None
    measured = [one for one in measured if isinstance(one, Mapping) and one.get("mode") in MODES]
    if not measured:
        return None
    description = _object(given.get("grader_description"))
    own_stages = texts_in(description.get("stages"))
    left_out = ("measurements", "grader_description")
    whole = {
        **bounded({key: value for key, value in given.items() if key not in left_out}),
        **{key: texts_in(given.get(key)) for key in ("graders", "rubrics", "toolchains")},
        "machine": bounded(_object(given.get("machine"))),
        "name": name,
        "grader_stages": own_stages,
        "stages": list(dict.fromkeys((*own_stages, *map(str, Stage)))),
        "components": texts_in(description.get("components")),
        "rules": bounded(_object(description.get("rates"))),
        "measurements": [_measurement(one) for one in measured],
    }
    created = str(given.get("created") or "")[:40]
    figures = tuple(_figures(one) for one in whole["measurements"])
    return Evaluation(name, created, step_of(name), figures, whole, path)


def _object(given: Any) -> Mapping[str, Any]:
    return given if isinstance(given, Mapping) else {}


def bounded(value: Any, depth: int = 8) -> Any:
    """Cut long texts, lists and objects in a value of a file, and leave out numbers that are not
    finite."""
    if isinstance(value, str):
        return value[:MAX_CHARS]
    if isinstance(value, Mapping):
        items = list(value.items())[:MAX_ITEMS] if depth else []
        return {str(key)[:MAX_CHARS]: bounded(part, depth - 1) for key, part in items}
    if isinstance(value, (list, tuple)):
        return [bounded(part, depth - 1) for part in value[:MAX_ITEMS]] if depth else []
    return value if isinstance(value, bool) or finite(value) is not None else None


def _measurement(given: Mapping[str, Any]) -> Json:
    """Bound one way of sampling, with counts in place of its tasks."""
    tasks = given.get("problems")
    tasks = [one for one in tasks if isinstance(one, Mapping)] if isinstance(tasks, list) else []
    kept: Json = bounded({key: value for key, value in given.items() if key != "problems"})
    for name in (*OBJECTS, "mean_reward"):
        if not isinstance(kept.get(name), Mapping):
            kept[name] = None
    for name in NUMBERS:
        kept[name] = finite(kept.get(name)) or 0
    kept["tasks"] = len(tasks)
    kept["unjudged"] = sum(not one.get("graded") for one in tasks)
    return kept


def step_of(name: str) -> int | None:
    """Return 0 for `before` and 40 for `step-40`; None for any other name."""
    if name == BEFORE:
        return 0
    found = re.fullmatch(r"step-([0-9]{1,12})", name)
    return int(found[1]) if found else None


def _figures(measurement: Json) -> Json:
    rate = _object(_object(measurement["pass_at"]).get("1"))
    return {
        "mode": measurement["mode"],
        "pass_rate": finite(rate.get("value")),
        "low": finite(rate.get("low")),
        "high": finite(rate.get("high")),
        "reward": finite(_object(measurement["mean_reward"]).get("value")),
        "graded": int(measurement["graded"]),
        "faulted": int(measurement["faulted"]),
    }
