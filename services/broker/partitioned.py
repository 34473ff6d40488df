"""The queue in a Redis Cluster: partitions, each a `StreamsBroker` with all its keys in one slot.

Job and notes lie in the partition of their id. Registrations lie in all partitions. Bounds are
divided by the number of partitions; turns and priorities are each partition's own.

A partition whose master is away delays no other: workers leave it alone until it answers again.
"""

from __future__ import annotations

import asyncio
import time
import zlib
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import astuple, replace
from itertools import chain
from math import ceil
from operator import methodcaller
from typing import Any, TypeVar

from gradus.descriptions import GraderInfo
from gradus.errors import QueueFault
from services.broker import (
    RENEW_S,
    BrokerSettings,
    DeadLetter,
    QueueState,
    QueueStats,
    UnfinishedJob,
)
from services.broker.jobs import DEFAULT_FAIR_SHARE, Claim, FairShare, Job, QueueFull
from services.broker.streams import LISTEN_S, StreamsBroker
from services.broker.streams.cluster import split_cluster_url

AWAY_PAUSE_S = 0.1
"""Seconds between looks whether one of several partitions that are all away is back."""
RESERVED_PAUSE_S = 0.1
"""Seconds between looks of a worker that takes nothing new: a job must run alone."""

Reply = TypeVar("Reply")
Item = TypeVar("Item", Job, Claim, str)


class PartitionedBroker:
    """See `services.broker.Broker`. Belongs to one event loop; connects when first used."""

    def __init__(
        self,
        url: str,
        settings: BrokerSettings | None = None,
        *,
        prefix: str = "gradus:",
        patience_s: float = 5.0,
    ) -> None:
        """See `StreamsBroker`. All processes must name the same number of partitions."""
        settings = settings or BrokerSettings()
        number = split_cluster_url(url).partitions
        part = replace(
            settings,
            max_depth=ceil(settings.max_depth / number),
            max_note_bytes=ceil(settings.max_note_bytes / number),
            max_dead_letters=ceil(settings.max_dead_letters / number),
        )
        siblings: dict[tuple[str, str], list[Any]] = {}
        self.lease_s = settings.lease_s
        self._patience_s = patience_s
        self._partitions = [
            StreamsBroker(
                url, part, prefix=f"{prefix}{{{n}}}:", patience_s=patience_s, siblings=siblings
            )
            for n in range(number)
        ]
        self._first = 0
        """Partition where the next look for jobs begins."""
        self._probes: dict[int, asyncio.Task[None]] = {}
        """By number of a partition that is away: ends when it answers again."""
        self._fault = QueueFault("no partition answers")
        """What the last partition that went away raised."""
        self._bells: dict[tuple[str, int], asyncio.Task[None]] = {}
        """Waits for wake-up tokens, by grader and partition. They outlast a claim: a cancelled read
        would cost its connection."""

    async def close(self) -> None:
        tasks = [*self._probes.values(), *self._bells.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._ask_all(StreamsBroker.close)

    # ------------------------------------------------------------------------------ partitions

    def _find(self, name: str) -> int:
        """Return the partition of a job's id, or of another text."""
        return zlib.crc32(name.encode()) % len(self._partitions)

    def _find_note(self, key: str) -> int:
        """`job:ID` and `done:ID` of an asynchronous job lie together."""
        return self._find(key.partition(":")[2])

    def _split(
        self, items: Iterable[Item], find: Callable[[Item], int]
    ) -> Iterable[tuple[int, list[Item]]]:
        """Return each partition's number with its part of `items`."""
        parts: dict[int, list[Item]] = defaultdict(list)
        for item in items:
            parts[find(item)].append(item)
        return parts.items()

    async def _ask_parts(
        self,
        names: Iterable[str],
        act: Callable[[StreamsBroker, list[str]], Awaitable[Reply]],
        find: Callable[[str], int] | None = None,
    ) -> list[Reply]:
        """Return what `act` returns for each partition with its part of `names`."""
        parts = self._split(names, find or self._find)
        return await asyncio.gather(*(act(self._partitions[n], part) for n, part in parts))

    async def _ask_all(self, act: Callable[[StreamsBroker], Awaitable[Reply]]) -> list[Reply]:
        return await asyncio.gather(*map(act, self._partitions))

    async def _ask(
        self, number: int, act: Callable[[StreamsBroker], Awaitable[Reply]]
    ) -> list[Reply]:
        """Return the reply of a partition; none where it is away, or does not answer within
        `RENEW_S`."""
        if number in self._probes:
            return []
        try:
            async with asyncio.timeout(RENEW_S):
                return [await act(self._partitions[number])]
        except TimeoutError:
            self._fault = QueueFault(f"partition {number} of Redis does not answer in time")
        except QueueFault as fault:
            self._fault = fault
        if number not in self._probes:  # else another call has noticed it meanwhile
            self._probes[number] = asyncio.create_task(self._probe(number))
        return []

    async def _ask_present(self, act: Callable[[StreamsBroker], Awaitable[Reply]]) -> list[Reply]:
        """Return the replies of all partitions that are not away. Raises QueueFault where all stay
        away."""
        give_up_at = time.monotonic() + self._patience_s
        while True:
            numbers = range(len(self._partitions))
            replies = await asyncio.gather(*(self._ask(number, act) for number in numbers))
            if any(replies):
                return list(chain.from_iterable(replies))
            if time.monotonic() > give_up_at:
                raise self._fault
            await asyncio.sleep(AWAY_PAUSE_S)

    async def _probe(self, number: int) -> None:
        while True:
            with suppress(QueueFault):
                await self._partitions[number].probe()
                del self._probes[number]
                return

    # ------------------------------------------------------------------------------------ jobs

    async def submit(
        self, jobs: Sequence[Job], fair_share: FairShare = DEFAULT_FAIR_SHARE
    ) -> dict[str, str]:
        """See `Broker.submit`. The partitions are asked one after the other: processes that submit
        at the same moment can be refused where one of them would have fitted."""
        answered: dict[str, str] = {}
        accepted: list[tuple[StreamsBroker, list[str]]] = []
        try:
            for number, part in self._split(jobs, lambda job: self._find(job.id)):
                partition = self._partitions[number]
                answered |= await partition.submit(part, fair_share)
                accepted.append((partition, [job.id for job in part if job.id not in answered]))
        except QueueFull:
            for partition, job_ids in accepted:
                await partition.cancel(jobs[0].grader, job_ids)
            raise
        except (QueueFault, asyncio.CancelledError):
            for partition, job_ids in accepted:
                partition.withdraw(job_ids)
            raise
        return answered

    async def cancel(self, grader: str, job_ids: Iterable[str]) -> None:
        await self._ask_parts(job_ids, lambda broker, part: broker.cancel(grader, part))

    async def wait(
        self, job_ids: Iterable[str], timeout_s: float
    ) -> AsyncIterator[tuple[str, str]]:
        """See `Broker.wait`."""
        waits: list[Any] = []
        for number, part in self._split(job_ids, self._find):
            waits.append(self._partitions[number].wait(part, timeout_s))
        pending = {asyncio.ensure_future(anext(wait, None)): wait for wait in waits}
        try:
            while pending:
                done, _ = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    results = pending.pop(task)
                    if (answer := task.result()) is not None:
                        pending[asyncio.ensure_future(anext(results, None))] = results
                        yield answer
        finally:
            for task in pending:
                task.cancel()
            await asyncio.gather(*pending, return_exceptions=True)
            for results in waits:
                await results.aclose()

    async def results(self, job_ids: Sequence[str]) -> dict[str, str]:
        return _join(await self._ask_parts(job_ids, StreamsBroker.results))

    async def list_unfinished(self, grader: str, limit: int | None = None) -> list[UnfinishedJob]:
        jobs = list(
            chain(*await self._ask_all(lambda broker: broker.list_unfinished(grader, limit)))
        )
        running = [job for job in jobs if job.is_running]
        return running[:limit] + [job for job in jobs if not job.is_running][:limit]

    async def revoke(self, grader: str, job_ids: Iterable[str], run: str = "") -> int:
        return sum(
            await self._ask_parts(job_ids, lambda broker, part: broker.revoke(grader, part, run))
        )

    # --------------------------------------------------------------------------------- workers

    async def claim(
        self, grader: str, worker: str, limit: int, wait_s: float, max_bytes: int = 0
    ) -> list[Claim]:
        until = time.monotonic() + wait_s
        while limit > 0:
            claims = await self._look(grader, worker, limit, max_bytes)
            left_s = until - time.monotonic()
            if left_s <= 0 and len(self._probes) == len(self._partitions):
                raise self._fault
            if claims or left_s <= 0:
                return claims
            await self._wait_for_bell(grader, worker, min(left_s, RENEW_S))
        return []

    async def _look(self, grader: str, worker: str, limit: int, max_bytes: int) -> list[Claim]:
        """Claim in each partition in turn; every look begins with another one."""
        claims: list[Claim] = []
        order = range(self._first, self._first + len(self._partitions))
        self._first += 1
        for n in order:
            number = n % len(self._partitions)
            room = limit - len(claims)
            if room == 0:
                break
            look = methodcaller("claim", grader, worker, room, 0, max_bytes)
            for new_claims in await self._ask(number, look):
                claims += [_wrap(number, claim) for claim in new_claims]
        return claims

    async def _wait_for_bell(self, grader: str, worker: str, seconds: float) -> None:
        if self._partitions[0].is_reserved(grader, worker):
            await asyncio.sleep(min(seconds, RESERVED_PAUSE_S))
            return
        for number in range(len(self._partitions)):
            bell = self._bells.get((grader, number))
            if bell is None or bell.done():
                self._bells[grader, number] = asyncio.create_task(self._listen(grader, number))
        bells = [bell for (name, _), bell in self._bells.items() if name == grader]
        await asyncio.wait(bells, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)

    async def _listen(self, grader: str, number: int) -> None:
        """Wait for a wake-up token, and let the next look begin there."""
        is_rung = False
        while not is_rung:
            with suppress(QueueFault):
                is_rung = await self._partitions[number].wait_for_bell(grader, LISTEN_S)
        self._first = number

    async def renew(self, claims: Sequence[Claim]) -> list[Claim]:
        """See `Broker.renew`. Leases of a partition that is away are left out: its master knows how
        long it was away."""
        unwanted: list[Claim] = []

        async def renew_part(number: int, part: list[Claim]) -> None:
            plain = {_unwrap(claim)[1]: claim for claim in part}
            for given_up in await self._ask(number, lambda broker: broker.renew(list(plain))):
                unwanted.extend(plain[claim] for claim in given_up)

        parts = self._split(claims, lambda claim: _unwrap(claim)[0])
        await asyncio.gather(*(renew_part(number, part) for number, part in parts))
        return unwanted

    async def finish(
        self, claim: Claim, result: str, *, cache: bool, dead_letter: bool = False
    ) -> bool:
        number, claim = _unwrap(claim)
        partition = self._partitions[number]
        return await partition.finish(claim, result, cache=cache, dead_letter=dead_letter)

    async def release(self, claim: Claim, *, put_off: bool = False) -> None:
        number, claim = _unwrap(claim)
        await self._partitions[number].release(claim, put_off=put_off)

    async def heartbeat(self, worker: str, info: GraderInfo, ttl_s: float) -> None:
        await self._ask_present(lambda broker: broker.heartbeat(worker, info, ttl_s))

    async def graders(self) -> list[GraderInfo]:
        """See `Broker.graders`. A partition that was away knows fewer workers for a while."""
        most: dict[str, GraderInfo] = {}
        for info in chain(*await self._ask_present(StreamsBroker.graders)):
            if info.grader not in most or info.workers > most[info.grader].workers:
                most[info.grader] = info
        return [most[grader] for grader in sorted(most)]

    async def get_registrations(self) -> dict[str, float]:
        ends: dict[str, float] = {}
        for part in await self._ask_present(StreamsBroker.get_registrations):
            for name, end in part.items():
                ends[name] = max(end, ends.get(name, end))
        return ends

    async def get_time(self) -> float:
        """See `Broker.get_time`. The clock that is furthest ahead: a deadline may come late, never
        early."""
        return max(await self._ask_present(StreamsBroker.get_time))

    # ------------------------------------------------------------------------------- the store

    async def save_note(self, key: str, text: str, ttl_s: float, *, replace: bool = True) -> None:
        partition = self._partitions[self._find_note(key)]
        await partition.save_note(key, text, ttl_s, replace=replace)

    async def keep_job(
        self, job_id: str, text: str, ttl_s: float, fair_share: FairShare, deadline: float
    ) -> bool:
        partition = self._partitions[self._find(job_id)]
        return await partition.keep_job(job_id, text, ttl_s, fair_share, deadline)

    async def get_notes(self, keys: Sequence[str]) -> dict[str, str]:
        return _join(await self._ask_parts(keys, StreamsBroker.get_notes, self._find_note))

    async def depth(self, grader: str) -> int:
        return sum(await self._ask_all(lambda broker: broker.depth(grader)))

    async def get_queue_stats(self, grader: str) -> QueueStats:
        parts = await self._ask_all(lambda broker: broker.get_queue_stats(grader))
        return QueueStats(*map(sum, zip(*map(astuple, parts), strict=True)))

    async def get_memory_fill(self) -> float:
        return max(await self._ask_all(StreamsBroker.get_memory_fill))

    async def dead_letters(self, grader: str) -> list[DeadLetter]:
        return list(chain(*await self._ask_all(lambda broker: broker.dead_letters(grader))))

    async def remove_dead_letters(self, grader: str, job_ids: Iterable[str]) -> None:
        await self._ask_parts(
            job_ids, lambda broker, part: broker.remove_dead_letters(grader, part)
        )

    async def get_queue_state(self, grader: str) -> QueueState:
        return (await self._ask_present(lambda broker: broker.get_queue_state(grader)))[0]

    async def set_queue_state(self, grader: str, state: QueueState) -> None:
        await self._ask_all(lambda broker: broker.set_queue_state(grader, state))

    async def migrate(self) -> str:
        return (await self._ask_all(StreamsBroker.migrate))[0]


def _wrap(number: int, claim: Claim) -> Claim:
    """Return the claim with a token of all partitions: entries of two streams can have one id."""
    return replace(claim, token=f"{number} {claim.token}")


def _unwrap(claim: Claim) -> tuple[int, Claim]:
    number, _, token = claim.token.partition(" ")
    return int(number), replace(claim, token=token)


def _join(parts: Iterable[dict[str, str]]) -> dict[str, str]:
    return dict(chain.from_iterable(part.items() for part in parts))
