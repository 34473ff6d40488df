"""The graders that live workers announced: cached, with a grace period. The broker is queried at most once a second.

A grader is known once a worker announced it, and stays known while no worker of it lives. Those that the SDK has task
classes for are known from the start.
"""

from __future__ import annotations

import asyncio
import time
from typing import NamedTuple

from gradus.descriptions import GraderDescription, GraderInfo, description_of
from gradus.errors import Misuse, UnknownGrader
from gradus.tasks import TASKS
from services.api.task_schema import TaskSchema, compiled
from services.broker import Broker
from services.broker.workers import recall_description

POLL_S = 0.2


class Known(NamedTuple):
    """What this process knows of a grader."""

    description: GraderDescription
    schema: TaskSchema


def known_by(description: GraderDescription) -> Known:
    return Known(description, compiled(description.task_schema))


class GraderRegistry:
    def __init__(self, broker: Broker, fresh_s: float, grace_s: float) -> None:
        self._broker = broker
        self._fresh_s = fresh_s
        self._grace_s = grace_s
        self._live: list[GraderInfo] = []
        self._asked_at = float("-inf")
        self._absent_since: dict[str, float] = {}
        self._asking: asyncio.Task[None] | None = None
        self._known = {name: known_by(description_of(name)) for name in TASKS}
        self._described: dict[str, GraderDescription] = {}
        """What live workers announced, by name@revision."""

    @property
    def names(self) -> tuple[str, ...]:
        """All known graders."""
        return tuple(self._known)

    async def live(self) -> list[GraderInfo]:
        """What live workers announced. Raises QueueFault when the broker is away."""
        if time.monotonic() - self._asked_at >= self._fresh_s:
            # One query for all who ask now: while the broker is away each of them would else wait in turn.
            if self._asking is None or self._asking.done():
                self._asking = asyncio.create_task(self._ask())
                self._asking.add_done_callback(lambda task: task.cancelled() or task.exception())
            await asyncio.shield(self._asking)
        return self._live

    async def _ask(self) -> None:
        live = await self._broker.graders()
        described = {one.grader: self._described.get(one.grader) for one in live}
        for grader in [grader for grader, description in described.items() if description is None]:
            described[grader] = await recall_description(self._broker, grader)
        self._described = {grader: one for grader, one in described.items() if one is not None}
        for name in {one.name for one in live}:
            self._learn(name, [one for one in live if one.name == name])
        self._live, self._asked_at = live, time.monotonic()
        alive = {info.name for info in live}
        for name in self._known:
            if name in alive:
                self._absent_since.pop(name, None)
            else:
                self._absent_since.setdefault(name, self._asked_at)

    def _learn(self, name: str, infos: list[GraderInfo]) -> None:
        found = self._described.get(_largest(infos).grader)
        if found is not None and (name not in self._known or self._known[name].description is not found):
            self._known[name] = known_by(found)

    def descriptions(self) -> list[GraderDescription]:
        """Descriptions of all known graders."""
        return [known.description for known in self._known.values()]

    async def known(self, name: str) -> Known:
        """What is known of the grader. Raises UnknownGrader, QueueFault."""
        await self.live()
        if name not in self._known:
            raise UnknownGrader(f"there is no grader {name!r}; there are: {', '.join(self._known)}")
        return self._known[name]

    async def description(self, name: str) -> GraderDescription:
        """What live workers announced of the grader. Raises UnknownGrader when no worker of it is alive, QueueFault."""
        await self.known(name)
        infos = [info for info in self._live if info.name == name]
        found = self._described.get(_largest(infos).grader) if infos else None
        if found is None:
            raise UnknownGrader(f"no live worker describes the grader {name!r}: start one with `gradus worker {name}`")
        return found

    async def is_lost(self, name: str) -> bool:
        """No worker of this grader has been seen for the grace period."""
        await self.live()
        since = self._absent_since.get(name)
        return since is not None and time.monotonic() - since >= self._grace_s

    async def is_absent(self, name: str) -> bool:
        """No worker of this grader is alive now."""
        await self.live()
        return name in self._absent_since

    async def find(self, name: str, rubric: str | None, timeout_s: float) -> GraderInfo | None:
        """The live grader to ask; None when there is none within the grace period and `timeout_s`.

        Raises Misuse when live graders of that name offer no such rubric.
        """
        give_up_at = time.monotonic() + timeout_s
        while not (named := [info for info in await self.live() if info.name == name]):
            if await self.is_lost(name) or time.monotonic() >= give_up_at:
                return None
            await asyncio.sleep(min(POLL_S, max(give_up_at - time.monotonic(), 0)))
        fitting = [info for info in named if (rubric in info.rubrics if rubric else info.rubrics)]
        if fitting:
            return _largest(fitting)
        offered = ", ".join(sorted({one for info in named for one in info.rubrics}))
        raise Misuse(f"rubric: the {name} grader offers no such rubric; it offers: {offered}")


def _largest(infos: list[GraderInfo]) -> GraderInfo:
    """During a roll-out two revisions are alive; most of the work goes to the one with more workers."""
    return max(infos, key=lambda info: info.workers)
