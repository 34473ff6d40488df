"""Which graders are alive, asked of the broker at most once a second. Starts no worker and judges no health."""

from __future__ import annotations

import asyncio
import time

from gradus.contract import GraderInfo, GraderName
from gradus.errors import Misuse
from services.broker import Broker

POLL_S = 0.2


class Roster:
    def __init__(self, broker: Broker, fresh_s: float, grace_s: float) -> None:
        self._broker = broker
        self._fresh_s = fresh_s
        self._grace_s = grace_s
        self._live: list[GraderInfo] = []
        self._asked_at = float("-inf")
        self._absent_since: dict[GraderName, float] = {}
        self._asking: asyncio.Task[None] | None = None

    async def live(self) -> list[GraderInfo]:
        """What live workers announced. Raises QueueFault when the broker is away."""
        if time.monotonic() - self._asked_at >= self._fresh_s:
            # One question for all who ask now: while the broker is away each of them would else wait in turn.
            if self._asking is None or self._asking.done():
                self._asking = asyncio.create_task(self._ask())
                self._asking.add_done_callback(lambda task: task.cancelled() or task.exception())
            await asyncio.shield(self._asking)
        return self._live

    async def _ask(self) -> None:
        self._note(await self._broker.graders())

    def _note(self, live: list[GraderInfo]) -> None:
        self._live, self._asked_at = live, time.monotonic()
        alive = {info.name for info in live}
        for name in GraderName:
            if name in alive:
                self._absent_since.pop(name, None)
            else:
                self._absent_since.setdefault(name, self._asked_at)

    async def is_lost(self, name: GraderName) -> bool:
        """No worker of this grader has been seen for the grace period."""
        await self.live()
        since = self._absent_since.get(name)
        return since is not None and time.monotonic() - since >= self._grace_s

    async def is_absent(self, name: GraderName) -> bool:
        """No worker of this grader is alive now."""
        await self.live()
        return name in self._absent_since

    async def find(self, name: GraderName, rubric: str | None, timeout_s: float) -> GraderInfo | None:
        """The live grader to ask; None when there is none within the grace period and `timeout_s`.

        Raises Misuse when live graders of that name offer no such rubric.
        """
        give_up_at = time.monotonic() + timeout_s
        while not (named := [info for info in await self.live() if info.name is name]):
            if await self.is_lost(name) or time.monotonic() >= give_up_at:
                return None
            await asyncio.sleep(min(POLL_S, max(give_up_at - time.monotonic(), 0)))
        return _offering(named, rubric)


def _offering(infos: list[GraderInfo], rubric: str | None) -> GraderInfo:
    # During a roll-out two revisions are alive; most of the work goes to the one with more workers.
    fitting = [info for info in infos if (rubric in info.rubrics if rubric else info.rubrics)]
    if fitting:
        return max(fitting, key=lambda info: info.workers)
    offered = ", ".join(sorted({name for info in infos for name in info.rubrics}))
    raise Misuse(f"rubric: the {infos[0].name} grader offers no such rubric; it offers: {offered}")
