"""Evaluations of a run folder or of a folder of `gradus eval`, bounded for the page."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gradus.contract import Stage
from gradus.descriptions import description_of
from services.dashboard.files import ConfinedDirectory, Json, parsed
from services.dashboard.groups import texts_in
from services.dashboard.series import finite

MAX_FILE_BYTES = 32 << 20
MAX_FILES = 1000
FILES_AT_ONCE = 5
MODES = ("sampled", "greedy")
BEFORE, AFTER = "before", "after"
MAX_ITEMS, MAX_CHARS = 500, 500
"""Limits of every list, object and text of a file that is shown."""


@dataclass(frozen=True, slots=True)
class Figures:
    """One way of sampling in one evaluation; None is unknown."""

    mode: str
    pass_rate: float | None
    low: float | None
    high: float | None
    reward: float | None
    graded: int
    faulted: int


@dataclass(frozen=True, slots=True)
class Evaluation:
    name: str
    created: str
    step: int | None
    """None: after the last step, whichever that is, or not of a training run."""
    figures: tuple[Figures, ...]
    given: Json = field(default_factory=dict)
    """The whole file, bounded, with counts in place of its tasks."""
    file: Path | None = None

    def of(self, mode: str) -> Figures | None:
        return next((one for one in self.figures if one.mode == mode), None)

    @property
    def completions(self) -> Path | None:
        """Where its completions lie: beside results.json, or beside the file of its name."""
        if self.file is None:
            return None
        prefix = "" if self.file.name == "results.json" else f"{self.file.stem}."
        return self.file.with_name(f"{prefix}completions.jsonl")

    @property
    def stages(self) -> list[str]:
        return [str(stage) for stage in self.given.get("stages", [])]


class Evaluations:
    """The evaluations below one folder, read again when their files change."""

    def __init__(self, confined: ConfinedDirectory, folder: Path) -> None:
        self._confined = confined
        self._folder = folder
        self._seen: dict[str, tuple[int, ...]] = {}
        self._found: dict[str, Evaluation] = {}
        self.unreadable: set[str] = set()
        """Paths below the folder."""

    def look(self) -> tuple[bool, bool]:
        """Read a few files that are new or changed; whether anything changed, and whether there are
        more to read."""
        there: dict[str, tuple[int, ...]] = {}
        for path in figure_files(self._folder):
            with suppress(OSError):
                status = os.stat(path)
                there[path.relative_to(self._folder).as_posix()] = (
                    status.st_ino,
                    status.st_size,
                    status.st_mtime_ns,
                )
        gone = self._seen.keys() - there.keys()
        changed = [name for name, seen in there.items() if self._seen.get(name) != seen]
        for name in [*gone, *changed[:FILES_AT_ONCE]]:
            self._seen.pop(name, None)
            self._found.pop(name, None)
            self.unreadable.discard(name)
        for name in changed[:FILES_AT_ONCE]:
            self._seen[name] = there[name]
            path = self._folder / name
            data = self._confined.read(path, MAX_FILE_BYTES)
            title = path.parent.name if path.name == "results.json" else path.stem
            evaluation = evaluation_of(title, parsed(data), path) if data is not None else None
            if evaluation is None:
                self.unreadable.add(name)
            else:
                self._found[name] = evaluation
        return bool(gone or changed), len(changed) > FILES_AT_ONCE

    def in_order(self) -> list[Evaluation]:
        """By step, the one without a step last."""
        return sorted(
            self._found.values(),
            key=lambda one: (one.step is None, one.step or 0, one.created, one.name),
        )

    def before_and_after(self) -> list[Evaluation]:
        """The first and the last, or the only one: those of these names where there are any."""
        found = self.in_order()
        before = next((one for one in found if one.name == BEFORE), None)
        after = next((one for one in found if one.name == AFTER), None)
        others = [one for one in found if one not in (before, after)]
        before = before or (others[0] if others and len(found) > 1 else None)
        after = after or (others[-1] if others and others[-1] is not before else None)
        return [one for one in (before, after) if one is not None]


def figure_files(folder: Path) -> list[Path]:
    """Files of figures: `results.json` of `gradus eval`, a run's `eval/*.json`, `gradus eval` into
    a run's `eval/`."""
    try:
        inside = sorted((folder / "eval").iterdir())[:MAX_FILES]
    except OSError:
        inside = []
    found = [path for path in inside if path.suffix == ".json"] + [
        path / "results.json" for path in inside
    ]
    return [path for path in (folder / "results.json", *found) if path.is_file()]


def evaluation_of(name: str, given: Json | None, file: Path | None = None) -> Evaluation | None:
    """What a file says; None for one that is no evaluation."""
    measured = given.get("measurements") if given else None
    if given is None or not isinstance(measured, list):
        return None
    measured = [one for one in measured if isinstance(one, Mapping) and one.get("mode") in MODES]
    if not measured:
        return None
    description = given.get("grader_description")
    if not isinstance(description, Mapping):
        description = description_of(str(given.get("grader"))).model_dump(mode="json")
    stages = [str(stage) for stage in description.get("stages") or ()]
    whole = {
        **bounded(
            {
                key: value
                for key, value in given.items()
                if key not in ("measurements", "grader_description")
            }
        ),
        **{key: texts_in(given.get(key)) for key in ("graders", "rubrics", "toolchains")},
        "machine": bounded(machine) if isinstance(machine := given.get("machine"), Mapping) else {},
        "name": name,
        "step": step_of(name),
        "grader_stages": stages,
        "stages": list(dict.fromkeys((*stages, *map(str, Stage)))),
        "components": bounded(list(description.get("components") or ())),
        "rules": bounded(dict(description.get("rates") or {})),
        "measurements": [_measurement(one) for one in measured],
    }
    created = str(given.get("created") or "")[:40]
    return Evaluation(
        name, created, step_of(name), tuple(_figures(one) for one in measured), whole, file
    )


def bounded(value: Any, depth: int = 8) -> Any:
    """A value of a file, with long texts, lists and objects cut and numbers that are not finite
    left out."""
    if isinstance(value, str):
        return value[:MAX_CHARS]
    if isinstance(value, Mapping):
        items = list(value.items())[:MAX_ITEMS] if depth else []
        return {str(key)[:MAX_CHARS]: bounded(part, depth - 1) for key, part in items}
    if isinstance(value, (list, tuple)):
        return [bounded(part, depth - 1) for part in value[:MAX_ITEMS]] if depth else []
    return value if isinstance(value, bool) or finite(value) is not None else None


def _measurement(given: Mapping[str, Any]) -> Json:
    """One way of sampling, with counts in place of its tasks."""
    tasks = given.get("problems")
    tasks = [one for one in tasks if isinstance(one, Mapping)] if isinstance(tasks, list) else []
    kept = bounded({key: value for key, value in given.items() if key != "problems"})
    objects = (
        "pass_at",
        "stopped_at",
        "components",
        "flags",
        "faults",
        "details",
        "turns",
        "mean_reward",
    )
    kept |= {name: None for name in objects if not isinstance(kept.get(name), Mapping)}
    kept |= {
        name: finite(kept.get(name)) or 0
        for name in ("graded", "faulted", "passed", "samples", "temperature")
    }
    # Counts by kind of task, for files of earlier versions.
    kinds: dict[str, Counter[str]] = {}
    for one in tasks:
        if one.get("kind") is not None and len(kinds) < MAX_ITEMS:
            counts = {name: int(finite(one.get(name)) or 0) for name in ("graded", "passed")}
            kinds.setdefault(str(one["kind"])[:MAX_CHARS], Counter()).update({"tasks": 1, **counts})
    return {
        **kept,
        "tasks": len(tasks),
        "unjudged": sum(not one.get("graded") for one in tasks),
        "kinds": {kind: dict(counts) for kind, counts in kinds.items()},
    }


def step_of(name: str) -> int | None:
    """`before` is step 0, `step-40` is 40; None for any other name."""
    if name == BEFORE:
        return 0
    found = re.fullmatch(r"step-([0-9]{1,12})", name)
    return int(found[1]) if found else None


def _figures(given: Mapping[str, Any]) -> Figures:
    rates = given.get("pass_at")
    rate = rates.get("1") if isinstance(rates, Mapping) else None
    rate = rate if isinstance(rate, Mapping) else {}
    reward = given.get("mean_reward")
    return Figures(
        mode=str(given["mode"]),
        pass_rate=finite(rate.get("value")),
        low=finite(rate.get("low")),
        high=finite(rate.get("high")),
        reward=finite(reward.get("value")) if isinstance(reward, Mapping) else None,
        graded=int(finite(given.get("graded")) or 0),
        faulted=int(finite(given.get("faulted")) or 0),
    )
