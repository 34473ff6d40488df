"""Polls run folders, and queues what changed for the clients that listen."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from services.dashboard.jsonl_tail import Json
from services.dashboard.runs import Runs
from services.dashboard.views import summary_of

LOOK_EVERY_S = 1.0
SIGN_OF_LIFE_S = 15.0
MAX_LISTENERS = 64


class LiveState:
    """The current state of runs, and the clients that listen to its changes."""

    def __init__(self, folder: Path) -> None:
        self.runs = Runs(folder)
        self._listeners: set[asyncio.Queue[Json]] = set()
        self._states: dict[str, str] = {}
        self._ends = asyncio.Event()

    @asynccontextmanager
    async def looking(self) -> AsyncIterator[None]:
        """Look at everything again and again inside the block; it begins when every run was looked at once."""
        await self.runs.look()
        task = asyncio.create_task(self._look_at_runs())
        try:
            yield
        finally:
            self.end_streams()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def end_streams(self) -> None:
        """Let those who listen go, so that the process can end."""
        self._ends.set()
        for listener in self._listeners:
            self._put(listener, {})

    async def _look_at_runs(self) -> None:
        while True:
            changed: set[str] = set()
            gone: set[str] = set()
            started, more = time.monotonic(), True
            # A long history is read without a pause, and what is known of it is sent in between.
            while more and time.monotonic() - started < LOOK_EVERY_S:
                look = await self.runs.look()
                changed |= {run.id for run in look.changed}
                gone |= set(look.gone)
                more = look.more
            self._tell_of(changed, gone)
            if not more:
                await asyncio.sleep(LOOK_EVERY_S)

    def _tell_of(self, changed: set[str], gone: set[str]) -> None:
        now, told = time.time(), []
        for run in self.runs.all():
            state = run.state(now)[0].value
            # A run stalls by doing nothing: its state changes though its folder does not.
            if run.id in changed or self._states.get(run.id, state) != state:
                told.append(summary_of(run, now))
            self._states[run.id] = state
        if told or gone:
            self._tell({"runs": told, "gone": sorted(gone)})

    def _tell(self, news: Json) -> None:
        for listener in self._listeners:
            self._put(listener, news)

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
        """What changes, as it does; an empty one at once and from time to time. Ends with the process."""
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
