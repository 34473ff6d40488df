"""The graders that live workers announced: cached, with a grace period.

A grader is known once a worker announced it, and stays known while no worker of it lives. Those
that the SDK has task classes for are known from the start.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable

from gradus.descriptions import GraderInfo, describe_offline
from gradus.errors import Misuse, UnknownGrader
from gradus.tasks import TASKS
from services.api.problems import MAX_NAME_CHARS
from services.api.validate import KnownGrader
from services.broker import Broker
from services.broker.workers import DeathLog, find_description

POLL_S = 0.2


class GraderRegistry:
    """`fresh_s`: seconds between queries to the broker. `grace_s`: seconds without a worker after
    which one is lost."""

    def __init__(self, broker: Broker, fresh_s: float, grace_s: float) -> None:
        self._broker = broker
        self._fresh_s = fresh_s
        self.grace_s = grace_s
        # All known graders, by name.
        self.known = {name: KnownGrader(describe_offline(name)) for name in TASKS}
        self._live: list[GraderInfo] = []
        self._fetched_at = float("-inf")
        self._absent_since: dict[str, float] = {}
        self._refresh: asyncio.Task[None] | None = None
        self._death_log = DeathLog()

    async def list_live(self) -> list[GraderInfo]:
        """Return the announcements of live workers. Raises QueueFault without a broker."""
        if time.monotonic() - self._fetched_at >= self._fresh_s:
            # One query for all concurrent requests: without a broker, each would wait in turn.
            if self._refresh is None or self._refresh.done():
                self._refresh = asyncio.create_task(self._fetch_live())
                self._refresh.add_done_callback(lambda task: task.cancelled() or task.exception())
            await asyncio.shield(self._refresh)
        return self._live

    async def _fetch_live(self) -> None:
        live = await self._broker.graders()
        names = {info.name for info in live}
        for name in names:
            info = select_largest(info for info in live if info.name == name)
            description = await find_description(self._broker, info.grader)
            if description is not None and (
                name not in self.known or self.known[name].description != description
            ):
                self.known[name] = KnownGrader(description)
        self._live = live
        self._fetched_at = time.monotonic()
        absent = self.known.keys() - names
        self._absent_since = {
            name: self._absent_since.get(name, self._fetched_at) for name in absent
        }
        await self._death_log.look(self._broker)

    async def find_known(self, name: str) -> KnownGrader:
        """Return a known grader. Raises UnknownGrader, QueueFault."""
        await self.list_live()
        if name not in self.known:
            raise UnknownGrader(
                f"there is no grader {name[:MAX_NAME_CHARS]!r}; there are: {', '.join(self.known)}"
            )
        return self.known[name]

    async def is_absent(self, name: str, for_s: float = 0.0) -> bool:
        """Return whether no worker of this grader is alive, and none was for `for_s` seconds."""
        await self.list_live()
        since = self._absent_since.get(name)
        return since is not None and time.monotonic() - since >= for_s

    async def find(self, name: str, rubric: str | None, timeout_s: float) -> GraderInfo | None:
        """Return the live grader to ask; None when there is none within the grace period and
        `timeout_s`.

        Raises Misuse when live graders of that name offer no such rubric.
        """
        give_up_at = time.monotonic() + timeout_s
        while not (named := [info for info in await self.list_live() if info.name == name]):
            if await self.is_absent(name, self.grace_s) or time.monotonic() >= give_up_at:
                return None
            await asyncio.sleep(min(POLL_S, max(give_up_at - time.monotonic(), 0)))
        fitting = [info for info in named if (rubric in info.rubrics if rubric else info.rubrics)]
        if fitting:
            return select_largest(fitting)
        offered = ", ".join(sorted({rubric_name for info in named for rubric_name in info.rubrics}))
        raise Misuse(f"rubric: the {name} grader offers no such rubric; it offers: {offered}")


def select_largest(infos: Iterable[GraderInfo]) -> GraderInfo:
    """During a roll-out two revisions are alive; most of the work goes to the one with more
    workers."""
    return max(infos, key=lambda info: info.workers)
