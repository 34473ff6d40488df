"""The measurements on held-out tasks of a run, `eval/*.json`, as far as the page shows them. Judges no difference."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from services.dashboard.confined_files import ConfinedDirectory
from services.dashboard.jsonl_tail import Json, parsed
from services.dashboard.series import finite

MAX_FILE_BYTES = 32 << 20
MAX_FILES = 1000
FILES_AT_ONCE = 5
MODES = ("sampled", "greedy")


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

    def of(self, mode: str) -> Figures | None:
        return next((one for one in self.figures if one.mode == mode), None)


class Evaluations:
    """The files of one `eval/`, read again when they change."""

    def __init__(self, confined: ConfinedDirectory, folder: Path) -> None:
        self._confined = confined
        self._folder = folder
        self._seen: dict[str, tuple[int, ...]] = {}
        self._found: dict[str, Evaluation] = {}
        self.unreadable: set[str] = set()

    def look(self) -> tuple[bool, bool]:
        """Read a few files that are new or changed; whether anything changed, and whether there are more to read."""
        there = dict(self._there())
        gone = self._seen.keys() - there.keys()
        for name in gone:
            self._forget(name)
        changed = [name for name, seen in there.items() if self._seen.get(name) != seen]
        for name in changed[:FILES_AT_ONCE]:
            self._read(name)
            self._seen[name] = there[name]
        return bool(gone or changed), len(changed) > FILES_AT_ONCE

    def in_order(self) -> list[Evaluation]:
        """By step, the one without a step last."""
        return sorted(self._found.values(), key=lambda one: (one.step is None, one.step or 0, one.created))

    def _there(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        try:
            with os.scandir(self._folder) as entries:
                names = sorted(entry.name for entry in entries if entry.name.endswith(".json"))
        except OSError:
            return
        for name in names[:MAX_FILES]:
            try:
                status = os.stat(self._folder / name)
            except OSError:
                continue
            yield name, (status.st_ino, status.st_size, status.st_mtime_ns)

    def _forget(self, name: str) -> None:
        self._seen.pop(name, None)
        self._found.pop(name, None)
        self.unreadable.discard(name)

    def _read(self, name: str) -> None:
        data = self._confined.read(self._folder / name, MAX_FILE_BYTES)
        evaluation = evaluation_of(name.removesuffix(".json"), parsed(data)) if data is not None else None
        self._forget(name)
        if evaluation is None:
            self.unreadable.add(name)
        else:
            self._found[name] = evaluation


def evaluation_of(name: str, given: Json | None) -> Evaluation | None:
    """What a file says; None for one that is no evaluation."""
    measured = given.get("measurements") if given else None
    if given is None or not isinstance(measured, list):
        return None
    figures = tuple(_figures(one) for one in measured if isinstance(one, Mapping) and one.get("mode") in MODES)
    if not figures:
        return None
    return Evaluation(name, str(given.get("created") or "")[:40], step_of(name), figures)


def step_of(name: str) -> int | None:
    """`before` is step 0, `step-40` is 40; None for any other name."""
    if name == "before":
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
