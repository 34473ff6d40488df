"""The worker's side of the queue: claim, renew, finish, release.

Claiming moves the next job from the queue to the stream, and there to this worker. A lease is an entry of the consumer
group's pending list whose idle time is below `lease_s`; renewing sets it back to zero.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from services.broker import MAX_DELIVERIES, BrokerSettings, Claim, Job
from services.broker.streams import layout
from services.broker.streams.redis_client import Argument, NoGroup, RetryingRedis, Script, ms

LOOK_S = 2.0
"""Seconds between looks into the queue without a wake-up token: one can be lost with its connection."""

TAKE, CREATE_GROUP, RENEW, FINISH = Script("take"), Script("create_group"), Script("renew"), Script("finish")
RECLAIM, RELEASE = Script("reclaim", prelude="history"), Script("release", prelude="history")


@dataclass(slots=True)
class _Consumer:
    """Claims held by one worker of this process, and when it next looks for what. Times are of `time.monotonic`."""

    grader: str
    worker: str
    held: dict[str, tuple[int, float]] = field(default_factory=dict)
    """Starts of the job and end of the lease, by token."""
    freed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the worker finishes the last job that it holds."""
    reclaim_at: float = 0.0
    """Next look for lapsed leases."""
    sweep_at: float = 0.0
    """Next look for workers that are gone."""
    look_at: float = 0.0
    """Next look into the queue without a wake-up token."""
    suspect_waits: bool = False
    """A job that must run alone waits for a worker that holds nothing: take no new ones."""

    def starts_held(self) -> list[int]:
        """Starts of every job that is held under a lease."""
        now = time.monotonic()
        self.held = {token: lease for token, lease in self.held.items() if lease[1] > now}
        return [starts for starts, _ in self.held.values()]


class StreamConsumer:
    """Claims for any number of workers, by name. Belongs to one event loop."""

    def __init__(self, redis: RetryingRedis, settings: BrokerSettings) -> None:
        self._redis = redis
        self._settings = settings
        self._consumers: dict[tuple[str, str], _Consumer] = {}

    @property
    def lease_s(self) -> float:
        return self._settings.lease_s

    def _consumer(self, grader: str, worker: str) -> _Consumer:
        return self._consumers.setdefault((grader, worker), _Consumer(grader, worker))

    async def claim(self, grader: str, worker: str, limit: int, wait_s: float) -> list[Claim]:
        if limit < 1:  # to Redis, 0 means all
            return []
        consumer = self._consumer(grader, worker)
        until = time.monotonic() + wait_s
        while True:
            claims = [
                # an entry of the stream, the number of its deliveries and the worker name a lease
                Claim(Job(job_id, grader, payload), f"{entry} {times} {worker}", starts)
                for entry, times, job_id, payload, starts in await self._take(consumer, limit, until)
            ]
            lease_end = time.monotonic() + self.lease_s
            consumer.held.update((claim.token, (claim.deliveries, lease_end)) for claim in claims)
            if claims or time.monotonic() >= until:
                return claims

    async def _take(self, consumer: _Consumer, limit: int, until: float) -> list[Any]:
        """Jobs as take.lua replies; may return none before `until`."""
        held, wake_at = consumer.starts_held(), until
        if MAX_DELIVERIES not in held:
            now = time.monotonic()
            if now >= consumer.reclaim_at or (consumer.suspect_waits and not held):
                consumer.reclaim_at = now + self.lease_s / 4
                if taken := await self._reclaim(consumer, limit, is_empty=not held):
                    return taken
            wake_at = min(until, consumer.reclaim_at)
            if not consumer.suspect_waits:
                return await self._read(consumer, limit, wake_at - time.monotonic())
        consumer.freed.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, wake_at - time.monotonic())):
                await consumer.freed.wait()
        return []

    async def _read(self, consumer: _Consumer, limit: int, block_s: float) -> list[Any]:
        """The next queued jobs; waits up to `block_s` for a wake-up token."""
        is_woken = 0
        while True:
            if is_woken or block_s <= 0 or time.monotonic() >= consumer.look_at:
                args = (limit, layout.JOB_TTL_MS, is_woken, layout.TRAINING_FROM)
                taken: list[Any] = await self._run(TAKE, consumer, *args)
                # As many as requested: there may be more.
                consumer.look_at = 0.0 if len(taken) == limit else time.monotonic() + LOOK_S
                if taken or is_woken or block_s <= 0:
                    return taken
            # A token whose reply is lost is made up for by the next look, after `LOOK_S`.
            pop = ("BLPOP", self._redis.key("bell", consumer.grader), max(block_s, 0.01))
            if await self._redis.persist(partial(self._redis.read, block_s, *pop)) is None:
                return []
            is_woken = 1

    async def _reclaim(self, consumer: _Consumer, limit: int, *, is_empty: bool) -> list[Any]:
        """Lapsed claims of other workers. A suspect comes by itself; while one waits, busy workers get nothing."""
        # A sweep looks at every worker: at every call, a thousand workers would use a tenth of Redis' CPU.
        sweeps = time.monotonic() >= consumer.sweep_at
        args = (ms(self.lease_s), limit, MAX_DELIVERIES, int(is_empty), layout.JOB_TTL_MS)
        bounds = (layout.IDLE_CONSUMER_MS if sweeps else 0, layout.N_JOB_FIELDS, layout.MAX_REPAIRS)
        suspect_waits, taken = await self._run(RECLAIM, consumer, *args, *bounds)
        consumer.suspect_waits = bool(suspect_waits)
        if sweeps:
            consumer.sweep_at = time.monotonic() + layout.IDLE_CONSUMER_MS / 1000
        return list(taken)

    async def _run(self, script: Script, consumer: _Consumer, *args: Argument) -> Any:
        """The reply of a script that moves jobs to this worker; creates the consumer group if it is not there."""
        keys = self._redis.keys(layout.QUEUE, consumer.grader)
        args = (self._redis.prefix, layout.GROUP, consumer.worker, *args)
        try:
            return await self._redis.run(script, keys, *args)
        except NoGroup:
            await self._redis.run(CREATE_GROUP, keys[3:], layout.GROUP, layout.JOB_TTL_MS)
            return await self._redis.run(script, keys, *args)

    async def renew(self, claims: Sequence[Claim]) -> list[Claim]:
        unwanted: list[Claim] = []
        for grader in {claim.job.grader for claim in claims}:
            mine = {claim: claim.token.split(" ", 2) for claim in claims if claim.job.grader == grader}
            leases = [text for claim, token in mine.items() for text in (claim.job.id, *token)]
            stream, bounds = self._redis.key("jobs", grader), (self._redis.prefix, layout.GROUP, layout.N_JOB_FIELDS)
            try:
                given_up = await self._redis.run(RENEW, [stream], *bounds, *leases)
            except NoGroup:
                continue  # nothing is left to renew; `claim` creates the group again
            for claim, (entry, _, worker) in mine.items():
                held = self._consumer(grader, worker).held
                if claim.token in held:  # not finished meanwhile
                    held[claim.token] = (claim.deliveries, time.monotonic() + self.lease_s)
                if entry in given_up:
                    unwanted.append(claim)
        return unwanted

    async def finish(self, claim: Claim, result: str, *, cache: bool, dead_letter: bool = False) -> bool:
        job, key, settings = claim.job, self._redis.key, self._settings
        stored, ttl_s = ("result", settings.result_ttl_s) if cache else ("uncached", settings.uncached_ttl_s)
        keys = [key("jobs", job.grader), key(stored, job.id), key("dead", job.grader), key("job", job.id)]
        letter = (settings.max_dead_letters if dead_letter else 0, job.payload if dead_letter else "")
        args = (claim.token.split(" ")[0], job.id, result, ms(ttl_s), layout.MAX_INBOX, *letter, layout.DEAD_TTL_MS)
        is_first = await self._redis.run(FINISH, keys, layout.GROUP, *args, key("inbox", ""))
        self._drop(claim)
        return bool(is_first)

    async def release(self, claim: Claim) -> None:
        job = claim.job
        keys = [*self._redis.keys(layout.QUEUE, job.grader), self._redis.key("job", job.id)]
        bounds = (MAX_DELIVERIES, ms(self.lease_s), job.id, layout.JOB_TTL_MS, layout.N_JOB_FIELDS)
        with suppress(NoGroup):  # the waiting producers find that the job is lost and submit it again
            await self._redis.run(RELEASE, keys, layout.GROUP, *claim.token.split(" ", 2), *bounds)
        self._drop(claim)

    def _drop(self, claim: Claim) -> None:
        consumer = self._consumer(claim.job.grader, claim.token.split(" ", 2)[2])
        consumer.held.pop(claim.token, None)
        if not consumer.held:
            consumer.freed.set()
