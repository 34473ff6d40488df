"""Evaluations of a run folder or of a folder of `gradus eval`, bounded for the page."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from gradus.contract import Stage
from gradus.tasks import get_task_class
from services.dashboard.files import ConfinedDirectory, Identity, Json, parse_object, read_identity
from services.dashboard.groups import read_texts
from services.dashboard.series import to_finite, to_list, to_mapping

MAX_FILE_BYTES = 32 << 20
MAX_FILES = 1000
MODES = ("sampled", "greedy")
BEFORE, AFTER = "before", "after"
MAX_ITEMS = MAX_CHARS = 500  # limits of every list, object and text of a file that is shown
# Parts of a measurement that the page takes for objects and for numbers.
OBJECTS = ("pass_at", "stopped_at", "components", "flags", "faults", "details", "turns")
NUMBERS = ("graded", "faulted", "passed", "samples", "temperature")


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One file of figures, as the page shows it."""

    name: str
    created: str
    step: int | None
    """None: measured after the last step, or outside a training run."""
    figures: tuple[Json, ...]
    """pass@1 with its interval, reward and counts, for each `mode` of sampling; None is unknown."""
    content: Json
    """The whole file, bounded, with counts in place of its tasks."""
    file: Path

    @property
    def completions(self) -> Path:
        """The file of its completions, beside its file of figures."""
        if self.file.name == "results.json":
            return self.file.with_name("completions.jsonl")
        return self.file.with_name(f"{self.file.stem}.completions.jsonl")


class Evaluations:
    """The evaluations below one folder, read again when a file changes."""

    def __init__(self, confined: ConfinedDirectory, folder: Path) -> None:
        self._confined = confined
        self._folder = folder
        self._identities: dict[Path, Identity | None] = {}
        self._evaluations: dict[Path, Evaluation | None] = {}  # None for unreadable files

    def read_changes(self) -> bool:
        """Read all files if one is new, changed or gone. Returns whether one is."""
        identities = {path: read_identity(path) for path in list_figure_files(self._folder)}
        if identities == self._identities:
            return False
        self._evaluations = {path: read_evaluation(self._confined, path) for path in identities}
        self._identities = identities
        return True

    @property
    def unreadable(self) -> list[str]:
        """Paths of files that cannot be read, below the folder."""
        broken = [path for path, evaluation in self._evaluations.items() if evaluation is None]
        return sorted(path.relative_to(self._folder).as_posix() for path in broken)

    def list_by_step(self) -> list[Evaluation]:
        """Return the evaluations by step, those without a step last."""
        return sorted(
            filter(None, self._evaluations.values()),
            key=lambda evaluation: (
                evaluation.step is None,
                evaluation.step or 0,
                evaluation.created,
                evaluation.name,
            ),
        )

    def select_before_and_after(self) -> list[Evaluation]:
        """Return the evaluations named so; without such names the first and the last, or the only
        one."""
        ranks = {BEFORE: 0, AFTER: 2}
        evaluations = self.list_by_step()
        evaluations.sort(key=lambda evaluation: ranks.get(evaluation.name, 1))
        return evaluations[:1] + evaluations[1:][-1:]


def list_figure_files(folder: Path) -> list[Path]:
    """List files of figures: `results.json` of `gradus eval`, a run's `eval/*.json`, `gradus eval`
    into a run's `eval/`."""
    inside = folder / "eval"
    candidates = sorted([*inside.glob("*.json"), *inside.glob("*/results.json")])[:MAX_FILES]
    return list(filter(Path.is_file, [folder / "results.json", *candidates]))


def read_evaluation(confined: ConfinedDirectory, path: Path) -> Evaluation | None:
    """Read a file of figures, bounded; None for one that cannot be read or is no evaluation."""
    name = path.parent.name if path.name == "results.json" else path.stem
    raw = parse_object(confined.read(path, MAX_FILE_BYTES) or b"") or {}
    measurements = []
    for measurement in to_list(raw.pop("measurements", None)):
        if to_mapping(measurement).get("mode") in MODES:
            measurements.append(_read_measurement(measurement))
    if not measurements:
        return None
    description = to_mapping(raw.pop("grader_description", None))
    own_stages = read_texts(description.get("stages"))
    content = {
        **bound_value(raw),
        "graders": read_texts(raw.get("graders")),
        "rubrics": read_texts(raw.get("rubrics")),
        "toolchains": read_texts(raw.get("toolchains")),
        "machine": bound_value(to_mapping(raw.get("machine"))),
        "name": name,
        "headline": get_task_class(str(raw.get("grader"))).HEADLINE,
        "grader_stages": own_stages,
        "stages": list(dict.fromkeys((*own_stages, *map(str, Stage)))),
        "components": read_texts(description.get("components")),
        "rules": bound_value(to_mapping(description.get("rates"))),
        "measurements": measurements,
    }
    created = str(raw.get("created") or "")[:40]
    figures = tuple(map(_extract_figures, measurements))
    return Evaluation(name, created, parse_step(name), figures, content, path)


def bound_value(value: Any, depth: int = 8) -> Any:
    """Cut long texts, lists and objects in a value of a file, and leave out numbers that are not
    finite."""
    if isinstance(value, str):
        return value[:MAX_CHARS]
    limit = MAX_ITEMS if depth else 0
    if isinstance(value, Mapping):
        items = islice(value.items(), limit)
        return {str(key)[:MAX_CHARS]: bound_value(part, depth - 1) for key, part in items}
    if isinstance(value, (list, tuple)):
        return [bound_value(part, depth - 1) for part in value[:limit]]
    if isinstance(value, bool) or to_finite(value) is not None:
        return value
    return None


def _read_measurement(raw: Json) -> Json:
    """Return the measurement of one way of sampling, bounded, with counts in place of its tasks."""
    tasks = [task for task in to_list(raw.pop("problems", None)) if isinstance(task, Mapping)]
    measurement: Json = bound_value(raw)
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
    rate = to_mapping(to_mapping(measurement["pass_at"]).get("1"))
    reward = to_mapping(measurement["mean_reward"])
    return {
        "mode": measurement["mode"],
        "pass_rate": to_finite(rate.get("value")),
        "low": to_finite(rate.get("low")),
        "high": to_finite(rate.get("high")),
        "reward": to_finite(reward.get("value")),
        "reward_low": to_finite(reward.get("low")),
        "reward_high": to_finite(reward.get("high")),
        "graded": int(measurement["graded"]),
        "faulted": int(measurement["faulted"]),
    }
