"""One queue over several Redis servers, its shards, for more jobs than one Redis carries.

Each job lies in one shard, from `submit` to `finish`: the one that the hash of its id chooses among
those with live workers of its grader, in proportion to their slots. Each worker serves one shard,
which the hash of its name chooses. So an operator starts workers as before, and identical work
meets in one place while the shares of the shards stand.

A shard that does not answer for `LOOK_S` seconds is down: its part of new jobs goes to the others,
its workers serve them until it is back, and after `MOVE_AFTER_S` seconds jobs that wait in it are
submitted to the others as well.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeVar

from gradus.descriptions import GraderInfo
from gradus.errors import QueueFault
from services.broker import (
    DEFAULT_FAIR_SHARE,
    BrokerSettings,
    Claim,
    DeadLetter,
    FairShare,
    Job,
    QueueFull,
    QueueState,
    QueueStats,
    UnfinishedJob,
)
from services.broker.jobs import grader_of
from services.broker.streams import StreamsBroker
from services.broker.waiters import ResultWaiters
from services.broker.workers import summarize_workers

LOOK_S = 1.0
LOOK_AROUND_S = 2.0
MOVE_AFTER_S = 5.0
T = TypeVar("T")


class _Shard:
    """One Redis, and whether it answered last."""

    def __init__(self, number: int, broker: StreamsBroker) -> None:
        self.number = number
        self.broker = broker
        self.infos: list[GraderInfo] = []
        """Graders of its live workers, when it was last asked."""
        self.fault: QueueFault | None = None
        self.down_since = 0.0
        """Time of `time.monotonic`; inf once its jobs were moved."""
        self._look: asyncio.Task[None] | None = None

    def look(self, ask: Callable[[], Awaitable[object]]) -> asyncio.Task[None]:
        """Find whether it answers: one task at a time, which never raises."""
        if self._look is None or self._look.done():
            self._look = asyncio.create_task(self._answers(ask))
        return self._look

    async def _answers(self, ask: Callable[[], Awaitable[object]]) -> None:
        try:
            await ask()
            self.fault = None
        except QueueFault as fault:
            self.is_down(fault)

    async def list_graders(self) -> None:
        self.infos = await self.broker.graders()

    def is_down(self, fault: QueueFault) -> None:
        if self.fault is None:
            self.down_since = time.monotonic()
        self.fault, self.infos = fault, []

    def distance(self, name: str, weight: float) -> float:
        """The shard with the least distance has the job: of equal weights each is the nearest for
        as many names."""
        digest = hashlib.blake2b(f"{self.number} {name}".encode(), digest_size=7).digest()
        return -math.log((int.from_bytes(digest) + 1) / 2**56) / weight

    async def close(self) -> None:
        if self._look is not None:
            self._look.cancel()
        await self.broker.close()


class ShardedBroker:
    """See `services.broker.Broker`. Every process must have the same `urls` in the same order."""

    def __init__(self, urls: Sequence[str], settings: BrokerSettings | None = None) -> None:
        """Raises ValueError when one is no Redis URL."""
        self._waiters = ResultWaiters()
        brokers = [StreamsBroker(url, settings, waiters=self._waiters) for url in urls]
        self._shards = [_Shard(number, broker) for number, broker in enumerate(brokers)]
        self.lease_s = brokers[0].lease_s
        self._holders: dict[Claim, _Shard] = {}
        self._look_around_at: dict[str, float] = {}
        """Time of `time.monotonic`, by worker."""

    async def close(self) -> None:
        await asyncio.gather(*(shard.close() for shard in self._shards))

    def _up(self) -> list[_Shard]:
        """The shards that answered last. Raises the fault of one when all are down."""
        up = [shard for shard in self._shards if shard.fault is None]
        if not up and (fault := self._shards[0].fault):
            raise fault
        return up

    async def _each(self, ask: Callable[[StreamsBroker], Awaitable[T]]) -> list[T]:
        """The replies of the shards that answer. Raises the fault of one when none does."""
        shards = self._up()
        replies = await asyncio.gather(
            *(ask(shard.broker) for shard in shards), return_exceptions=True
        )
        for shard, reply in zip(shards, replies, strict=True):
            if isinstance(reply, QueueFault):
                shard.is_down(reply)
            elif isinstance(reply, BaseException):
                raise reply
        self._up()
        return [reply for reply in replies if not isinstance(reply, BaseException)]

    # ------------------------------------------------------------------------------------ producer

    async def graders(self) -> list[GraderInfo]:
        """See `Broker.graders`. Those of the shards that answer within `LOOK_S` seconds."""
        looks = [(shard, shard.look(shard.list_graders)) for shard in self._shards]
        await asyncio.wait(
            [look for shard, look in looks if shard.fault is None] or [look for _, look in looks],
            timeout=LOOK_S,
        )
        for shard, look in looks:
            if not look.done():
                shard.is_down(
                    QueueFault(
                        f"shard {shard.number + 1} of the queue did not answer within {LOOK_S} s"
                    )
                )
        shards = self._up()
        await self._move_jobs()
        return summarize_workers(
            (f"{shard.number}", info) for shard in shards for info in shard.infos
        )

    async def _move_jobs(self) -> None:
        """Submit what waits in shards that are down to the others too; the first result of each job
        counts."""
        for shard in self._shards:
            if shard.fault is not None and time.monotonic() - shard.down_since > MOVE_AFTER_S:
                shard.down_since = math.inf
                waiting: dict[tuple[str, FairShare], list[Job]] = {}
                for pending in shard.broker.pending.values():
                    waiting.setdefault((pending.job.grader, pending.fair_share), []).append(
                        pending.job
                    )
                for (_, fair_share), jobs in waiting.items():
                    with suppress(
                        QueueFull, QueueFault
                    ):  # the request waits until its deadline, as for any fault
                        await self.submit(jobs, fair_share)

    async def submit(
        self, jobs: Sequence[Job], fair_share: FairShare = DEFAULT_FAIR_SHARE
    ) -> dict[str, str]:
        """See `Broker.submit`. The bound of the queue holds for each shard."""
        answered: dict[str, str] = {}
        left = list(jobs)
        try:
            while left:
                parts = await self._placed(left)
                asked = (shard.broker.submit(part, fair_share) for shard, part in parts)
                replies = await asyncio.gather(*asked, return_exceptions=True)
                left = []
                for (shard, part), reply in zip(parts, replies, strict=True):
                    if isinstance(reply, QueueFault):
                        shard.is_down(reply)
                        left += part
                    elif isinstance(reply, BaseException):
                        raise reply
                    else:
                        answered |= reply
        except (QueueFull, QueueFault):
            with suppress(QueueFault):
                await self.cancel(grader_of(jobs), [job.id for job in jobs])
            raise
        return answered

    async def _placed(self, jobs: Sequence[Job]) -> list[tuple[_Shard, list[Job]]]:
        """The jobs (at least one) of each shard. Raises QueueFault when all are down."""
        grader = grader_of(jobs)
        if not any(shard.infos for shard in self._shards):
            await self.graders()
        up = self._up()
        slots = {
            shard: sum(info.slots for info in shard.infos if info.name == grader) for shard in up
        }
        weights = {shard: number for shard, number in slots.items() if number} or dict.fromkeys(
            up, 1
        )
        parts: dict[_Shard, list[Job]] = {}
        for job in jobs:
            parts.setdefault(
                min(weights, key=lambda shard: shard.distance(job.id, weights[shard])), []
            ).append(job)
        return list(parts.items())

    async def cancel(self, grader: str, job_ids: Iterable[str]) -> None:
        ids = list(job_ids)
        parts = [
            (shard, [one for one in ids if one in shard.broker.pending]) for shard in self._shards
        ]
        asked = (shard.broker.cancel(grader, part) for shard, part in parts if part)
        for reply in await asyncio.gather(*asked, return_exceptions=True):
            if isinstance(reply, BaseException):
                raise reply

    def wait(self, job_ids: Iterable[str], timeout_s: float) -> AsyncIterator[tuple[str, str]]:
        return self._waiters.wait(job_ids, timeout_s, self._deliver_stored)

    async def _deliver_stored(self, job_ids: list[str]) -> None:
        if unknown := [
            one for one in job_ids if not any(one in shard.broker.pending for shard in self._shards)
        ]:
            await self._each(lambda broker: broker.deliver_stored(unknown))

    async def results(self, job_ids: Sequence[str]) -> dict[str, str]:
        found: dict[str, str] = {}
        for texts in await self._each(lambda broker: broker.results(job_ids)):
            found |= texts
        return found

    async def put_note(self, key: str, text: str, ttl_s: float, *, replace: bool = True) -> None:
        """See `Broker.put_note`. In every shard that answers, so that any of the others may be
        lost."""
        await self._each(lambda broker: broker.put_note(key, text, ttl_s, replace=replace))

    async def get_notes(self, keys: Sequence[str]) -> dict[str, str]:
        found: dict[str, str] = {}
        for texts in await self._each(lambda broker: broker.get_notes(keys)):
            found |= texts
        return found

    # ------------------------------------------------------------------------------------ consumer

    def _near(self, grader: str, worker: str) -> list[_Shard]:
        """The shards that answered last, the worker's own first; all of them when none did."""
        near = sorted(self._shards, key=lambda shard: shard.distance(worker, 1))
        for shard in near:
            if shard.fault is not None:
                shard.look(partial(shard.broker.depth, grader))
        return [shard for shard in near if shard.fault is None] or near

    async def claim(self, grader: str, worker: str, limit: int, wait_s: float) -> list[Claim]:
        """See `Broker.claim`. Jobs of the worker's own shard; every `LOOK_AROUND_S` seconds first
        of the others.

        So no job stays in a shard without workers. What must run alone does so among the jobs of
        its shard only.
        """
        own, *others = self._near(grader, worker)
        if time.monotonic() >= self._look_around_at.get(worker, 0.0):
            self._look_around_at[worker] = time.monotonic() + LOOK_AROUND_S
            for shard in others:
                if claims := await self._claim(shard, grader, worker, limit, 0.0):
                    return claims
        return await self._claim(own, grader, worker, limit, wait_s)

    async def _claim(
        self, shard: _Shard, grader: str, worker: str, limit: int, wait_s: float
    ) -> list[Claim]:
        try:
            claims = await shard.broker.claim(grader, worker, limit, wait_s)
        except QueueFault as fault:
            shard.is_down(fault)
            raise
        self._holders.update((claim, shard) for claim in claims)
        return claims

    async def renew(self, claims: Sequence[Claim]) -> list[Claim]:
        parts: dict[_Shard, list[Claim]] = {}
        for claim in claims:
            if shard := self._holders.get(claim):  # not finished meanwhile
                parts.setdefault(shard, []).append(claim)
        asked = (shard.broker.renew(part) for shard, part in parts.items())
        replies = await asyncio.gather(*asked, return_exceptions=True)
        for reply in replies:
            if isinstance(reply, BaseException) and (
                len(replies) == 1 or not isinstance(reply, QueueFault)
            ):
                raise reply
        return [
            claim for reply in replies if not isinstance(reply, BaseException) for claim in reply
        ]

    async def finish(
        self, claim: Claim, result: str, *, cache: bool, dead_letter: bool = False
    ) -> bool:
        if claim not in self._holders:  # finished already
            return False
        shard, is_first = self._holders[claim], False
        try:
            is_first = await shard.broker.finish(
                claim, result, cache=cache, dead_letter=dead_letter
            )
        except QueueFault as fault:
            shard.is_down(fault)
            if time.monotonic() - shard.down_since < self.lease_s:
                # past the lease the job is another worker's, and the slot is needed for the other
                # shards
                raise
        self._holders.pop(claim, None)
        return is_first

    async def release(self, claim: Claim, *, put_off: bool = False) -> None:
        if claim in self._holders:
            await self._holders[claim].broker.release(claim, put_off=put_off)
            self._holders.pop(claim, None)

    async def heartbeat(self, worker: str, info: GraderInfo, ttl_s: float) -> None:
        await self._near(info.name, worker)[0].broker.heartbeat(worker, info, ttl_s)

    # ----------------------------------------------------------------------------------- operators

    async def depth(self, grader: str) -> int:
        return sum(await self._each(lambda broker: broker.depth(grader)))

    async def queue_stats(self, grader: str) -> QueueStats:
        found = await self._each(lambda broker: broker.queue_stats(grader))
        return QueueStats(
            sum(one.queued for one in found),
            sum(one.running for one in found),
            sum(one.restarted for one in found),
            sum(one.dead_letters for one in found),
        )

    async def memory_fill(self) -> float:
        return max(await self._each(lambda broker: broker.memory_fill()))

    async def unfinished(self, grader: str, limit: int | None = None) -> list[UnfinishedJob]:
        found = await self._each(lambda broker: broker.unfinished(grader, limit))
        jobs = [job for part in found for job in part]
        return [job for is_running in (True, False) for job in jobs if job.is_running is is_running]

    async def revoke(self, grader: str, job_ids: Iterable[str], run: str = "") -> int:
        ids = list(job_ids)
        return sum(await self._each(lambda broker: broker.revoke(grader, ids, run)))

    async def dead_letters(self, grader: str) -> list[DeadLetter]:
        return [
            one
            for letters in await self._each(lambda broker: broker.dead_letters(grader))
            for one in letters
        ]

    async def remove_dead_letters(self, grader: str, job_ids: Iterable[str]) -> None:
        ids = list(job_ids)
        await self._each(lambda broker: broker.remove_dead_letters(grader, ids))

    async def queue_state(self, grader: str) -> QueueState:
        states = await self._each(lambda broker: broker.queue_state(grader))
        return next((state for state in states if state is not QueueState.OPEN), QueueState.OPEN)

    async def set_queue_state(self, grader: str, state: QueueState) -> None:
        """See `Broker.set_queue_state`. Raises QueueFault when a shard cannot be told."""
        await asyncio.gather(
            *(shard.broker.set_queue_state(grader, state) for shard in self._shards)
        )
