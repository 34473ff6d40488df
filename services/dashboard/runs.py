"""Run folders, found, followed and polled. Files are read in chunks, so that requests are answered
in between."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from services.dashboard.files import ConfinedDirectory, Json
from services.dashboard.run import MARKERS, FollowedRun
from services.dashboard.views import summary_of

MAX_RUNS = 500
MAX_ENTRIES = 20_000
"""Folder entries looked at in one search."""
MAX_DEPTH = 3
SEARCH_EVERY_S = 5.0
LOOK_EVERY_S = 1.0
SIGN_OF_LIFE_S = 15.0
MAX_LISTENERS = 64


class PollResult(NamedTuple):
    """What one poll of all runs found."""

    changed: list[FollowedRun]
    gone: list[str]
    """Ids of runs that are no longer there."""
    more: bool
    """There is more to read at once."""


class Runs:
    """The runs below a folder, which may be one itself, and the clients that listen to their
    changes."""

    def __init__(self, folder: Path) -> None:
        self.confined = ConfinedDirectory(folder)
        self.left_out = False
        """There are more runs than are followed."""
        self._runs: dict[str, FollowedRun] = {}
        self._searched_at = -SEARCH_EVERY_S
        self._listeners: set[asyncio.Queue[Json]] = set()
        self._states: dict[str, str] = {}
        self._ends = asyncio.Event()

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

    @asynccontextmanager
    async def looking(self) -> AsyncIterator[None]:
        """Look at everything again and again inside the block; it begins when every run was looked
        at once."""
        await self.look()
        task = asyncio.create_task(self._poll())
        try:
            yield
        finally:
            self.end_streams()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def end_streams(self) -> None:
        """End the event streams, so that the process can end."""
        self._ends.set()
        for listener in self._listeners:
            self._put(listener, {})

    async def _poll(self) -> None:
        while True:
            changed: set[str] = set()
            gone: set[str] = set()
            started, more = time.monotonic(), True
            # A long history is read without a pause, and what is known of it is sent in between.
            while more and time.monotonic() - started < LOOK_EVERY_S:
                look = await self.look()
                changed |= {run.id for run in look.changed}
                gone |= set(look.gone)
                more = look.more
            self._tell_of(changed, gone)
            if not more:
                await asyncio.sleep(LOOK_EVERY_S)

    def _tell_of(self, changed: set[str], gone: set[str]) -> None:
        now, told = time.time(), []
        for run in self.all():
            state = run.state(now)[0].value
            # A run stalls by doing nothing: its state changes though its folder does not.
            if run.id in changed or self._states.get(run.id, state) != state:
                told.append(summary_of(run, now))
            self._states[run.id] = state
        if told or gone:
            for listener in self._listeners:
                self._put(listener, {"runs": told, "gone": sorted(gone)})

    @staticmethod
    def _put(listener: asyncio.Queue[Json], news: Json) -> None:
        # A slow client gets one message to read everything again instead of an ever longer queue.
        if listener.full():
            while not listener.empty():
                listener.get_nowait()
            news = {"all": True} if news else news
        with suppress(asyncio.QueueFull):
            listener.put_nowait(news)

    @property
    def is_full(self) -> bool:
        return len(self._listeners) >= MAX_LISTENERS

    async def news(self) -> AsyncIterator[Json]:
        """What changes, as it does; an empty one at once and from time to time. Ends with the
        process."""
        listener: asyncio.Queue[Json] = asyncio.Queue(maxsize=32)
        self._listeners.add(listener)
        try:
            yield {}
            while not self._ends.is_set():
                try:
                    yield await asyncio.wait_for(listener.get(), SIGN_OF_LIFE_S)
                except TimeoutError:
                    yield {}
        finally:
            self._listeners.discard(listener)

    def _search(self) -> list[str]:
        found: dict[str, Path] = {}
        self.left_out = False
        for run_id, path in _run_folders(self.confined):
            if len(found) == MAX_RUNS:
                self.left_out = True
                break
            found.setdefault(run_id, path)
        gone = [run_id for run_id in self._runs if run_id not in found]
        known = self._runs
        self._runs = {
            one: known.get(one) or FollowedRun(self.confined, path, one)
            for one, path in found.items()
        }
        self._searched_at = time.monotonic()
        return gone


def _run_folders(confined: ConfinedDirectory) -> Iterator[tuple[str, Path]]:
    """Ids and paths, in order of names; links that lead out of the folder or to one that was seen
    are left out."""
    seen: set[tuple[int, int]] = set()
    entries = MAX_ENTRIES
    waiting = [(confined.root, 0)]
    while waiting and entries > 0:
        folder, depth = waiting.pop()
        try:
            status = os.stat(folder)
        except OSError:
            continue
        identity = (status.st_dev, status.st_ino)
        if identity in seen or not confined.holds(folder):
            continue
        seen.add(identity)
        evaluations = (path for path in _entries(folder / "eval") if path.suffix == ".json")
        is_run = any((folder / name).is_file() for name in MARKERS) or any(evaluations)
        if is_run:
            name = (
                confined.root.name
                if folder == confined.root
                else folder.relative_to(confined.root).as_posix()
            )
            # Ids are put into addresses: what is no UTF-8 in them is replaced.
            yield os.fsencode(name).decode("utf-8", "replace"), folder
        if depth < MAX_DEPTH:
            names = (
                path for path in _entries(folder) if not path.name.startswith((".", "checkpoint-"))
            )
            only_set_aside = is_run and folder != confined.root
            inside = [
                path for path in names if path.name.startswith("previous-") or not only_set_aside
            ]
            inside = sorted((path for path in inside if path.is_dir()), reverse=True)
            entries -= len(inside)
            waiting += [(path, depth + 1) for path in inside]


def _entries(folder: Path) -> list[Path]:
    try:
        with os.scandir(folder) as entries:
            return [
                folder / entry.name for _, entry in zip(range(MAX_ENTRIES), entries, strict=False)
            ]
    except OSError:
        return []
