"""Search and polling of run folders. Files are read in chunks, so that requests are answered in
between."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import islice
from pathlib import Path

from services.dashboard.files import ConfinedDirectory
from services.dashboard.run import FollowedRun, State, has_run

MAX_RUNS = 500
MAX_FOLDERS = 20_000  # folders that one search lists
MAX_DEPTH = 3
SEARCH_EVERY_S = 5.0
LOOK_EVERY_S = 1.0


class Runs:
    """The runs below a folder, which may be a run itself."""

    def __init__(self, folder: Path) -> None:
        self.confined = ConfinedDirectory(folder)
        self.left_out = False  # whether there are more than MAX_RUNS runs
        # Number that grows with every change of a run. It starts at the clock, in milliseconds, so
        # that the page of an earlier process is behind.
        self.version = time.time_ns() // 1_000_000
        self._runs: dict[str, FollowedRun] = {}
        self._states: dict[str, State] = {}
        self._searched_at = -SEARCH_EVERY_S

    def list_runs(self) -> list[FollowedRun]:
        return [self._runs[name] for name in sorted(self._runs)]

    def get(self, run_id: str) -> FollowedRun | None:
        return self._runs.get(run_id)

    async def read_changes(self) -> bool:
        """Read new lines of every run, at most a chunk of each file. Returns whether there is more
        to read."""
        if time.monotonic() - self._searched_at >= SEARCH_EVERY_S:
            self._find_runs()
        can_read_on = False
        for run in self.list_runs():
            is_changed, has_more = run.read_changes()
            can_read_on |= has_more
            state, _ = run.get_state(time.time())
            # A run stalls by doing nothing: its state changes though its folder does not.
            if is_changed or self._states.get(run.id) != state:
                self._states[run.id] = state
                self.version += 1
                run.version = self.version
            await asyncio.sleep(0)
        return can_read_on

    @asynccontextmanager
    async def poll_in_background(self) -> AsyncIterator[None]:
        """Poll all runs inside the block, which starts after every run was read once."""
        await self.read_changes()
        task = asyncio.create_task(self._poll())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _poll(self) -> None:
        while True:
            # A long history is read without a pause.
            if not await self.read_changes():
                await asyncio.sleep(LOOK_EVERY_S)

    def _find_runs(self) -> None:
        folders = dict(islice(_iter_run_folders(self.confined.root), MAX_RUNS + 1))
        self.left_out = len(folders) > MAX_RUNS
        previous_runs = self._runs
        self._runs = {}
        for run_id, path in islice(folders.items(), MAX_RUNS):
            self._runs[run_id] = previous_runs.get(run_id) or FollowedRun(
                self.confined, path, run_id
            )
        self._searched_at = time.monotonic()


def _iter_run_folders(root: Path) -> Iterator[tuple[str, Path]]:
    """Yield ids and paths, in order of names. Links to folders are not followed."""
    for path, names, files in islice(os.walk(root), MAX_FOLDERS):
        folder = Path(path)
        is_run = has_run(folder, files)
        if is_run:
            name = root.name if folder == root else folder.relative_to(root).as_posix()
            # Ids are put into addresses, so bytes that are not UTF-8 are replaced.
            yield os.fsencode(name).decode("utf-8", "replace"), folder
        is_deep = len(folder.relative_to(root).parts) == MAX_DEPTH
        if is_deep or (is_run and folder != root):
            names.clear()
        # `os.walk` descends into these folders only. Earlier logs of a run are `previous-N`.
        names[:] = sorted(
            name for name in names if not name.startswith((".", "checkpoint-", "previous-"))
        )
