"""Every run below one folder, found and followed. Reads in small pieces, so that others here get their turn."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from services.dashboard.confined_files import ConfinedDirectory
from services.dashboard.run import MARKERS, FollowedRun

MAX_RUNS = 500
MAX_ENTRIES = 20_000
"""Folder entries looked at in one search."""
MAX_DEPTH = 3
SEARCH_EVERY_S = 5.0


class PollResult(NamedTuple):
    """What one poll of all runs found."""

    changed: list[FollowedRun]
    gone: list[str]
    """Ids of runs that are no longer there."""
    more: bool
    """There is more to read at once."""


class Runs:
    """The runs below a folder; one that is itself a run is found too."""

    def __init__(self, folder: Path) -> None:
        self.confined = ConfinedDirectory(folder)
        self.left_out = False
        """There are more runs than are followed."""
        self._runs: dict[str, FollowedRun] = {}
        self._searched_at = -SEARCH_EVERY_S

    def all(self) -> list[FollowedRun]:
        """In the order of their names."""
        return [self._runs[name] for name in sorted(self._runs)]

    def get(self, run_id: str) -> FollowedRun | None:
        return self._runs.get(run_id)

    async def look(self) -> PollResult:
        """Read on in every run, at most a chunk of each of its files."""
        gone = self._search() if time.monotonic() - self._searched_at >= SEARCH_EVERY_S else []
        changed, more = [], False
        for run in self.all():
            is_changed, has_more = run.look()
            if is_changed:
                changed.append(run)
            more |= has_more
            await asyncio.sleep(0)
        return PollResult(changed, gone, more)

    def _search(self) -> list[str]:
        found: dict[str, Path] = {}
        self.left_out = False
        for run_id, path in _run_folders(self.confined):
            if len(found) == MAX_RUNS:
                self.left_out = True
                break
            found.setdefault(run_id, path)
        gone = [run_id for run_id in self._runs if run_id not in found]
        for run_id in gone:
            del self._runs[run_id]
        for run_id, path in found.items():
            if run_id not in self._runs:
                self._runs[run_id] = FollowedRun(self.confined, path, run_id)
        self._searched_at = time.monotonic()
        return gone


def _run_folders(confined: ConfinedDirectory) -> Iterator[tuple[str, Path]]:
    """Ids and paths, in order of names; links that lead out of the folder or to one that was seen are left out."""
    seen: set[tuple[int, int]] = set()
    entries = MAX_ENTRIES
    waiting = [(confined.root, 0)]
    while waiting and entries > 0:
        folder, depth = waiting.pop()
        identity = _identity(folder)
        if identity is None or identity in seen or not confined.holds(folder):
            continue
        seen.add(identity)
        is_run = _is_run(folder)
        if is_run:
            yield _id_of(confined.root, folder), folder
        if depth < MAX_DEPTH:
            inside = sorted(_folders_in(folder, only_set_aside=is_run and folder != confined.root), reverse=True)
            entries -= len(inside)
            waiting += [(path, depth + 1) for path in inside]


def _is_run(folder: Path) -> bool:
    if any((folder / name).is_file() for name in MARKERS):
        return True
    return any(name.suffix == ".json" for name in _entries(folder / "eval"))


def _entries(folder: Path) -> list[Path]:
    try:
        with os.scandir(folder) as entries:
            return [folder / entry.name for _, entry in zip(range(MAX_ENTRIES), entries, strict=False)]
    except OSError:
        return []


def _folders_in(folder: Path, *, only_set_aside: bool) -> Iterator[Path]:
    for path in _entries(folder):
        wanted = path.name.startswith("previous-") if only_set_aside else not path.name.startswith((".", "checkpoint-"))
        if wanted and path.is_dir():
            yield path


def _identity(folder: Path) -> tuple[int, int] | None:
    try:
        status = os.stat(folder)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _id_of(root: Path, folder: Path) -> str:
    """Its path below the root. What is no UTF-8 in it is replaced: ids are put into addresses."""
    name = folder.relative_to(root).as_posix()
    return os.fsencode(root.name if name == "." else name).decode("utf-8", "replace")
