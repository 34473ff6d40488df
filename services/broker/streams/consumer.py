"""The worker's side of the queue: claim, renew, finish, release.

Claiming moves the next job from the queue to the stream, and there to this worker. A lease is an entry of the consumer
group's pending list whose idle time is below `lease_s`; renewing sets it back to zero.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from services.broker import MAX_DELIVERIES, BrokerSettings, Claim, Job
from services.broker.streams.redis_client import NoGroup, RetryingRedis, Script
from services.broker.streams.redis_keys import (
    DEAD_TTL_S,
    GROUP,
    JOB_TTL_S,
    MAX_INBOX,
    N_JOB_FIELDS,
    TRAINING_FROM,
    Keys,
    ms,
)

IDLE_CONSUMER_S = 3600.0
"""Seconds without a command after which a worker is removed from the group."""
LOOK_S = 2.0
"""Seconds between looks into the queue without a wake-up token: one can be lost with its connection."""
MAX_REPAIRS = 100
"""Stream entries repaired per look for lapsed leases."""


@dataclass(slots=True)
class _InFlight:
    """Claims held by one worker of this process, and when it next looks for what. Times are of `time.monotonic`."""

    lease_s: float
    held: dict[str, tuple[Claim, float]] = field(default_factory=dict)
    """Claim and end of its lease, by token."""
    reclaim_at: float = 0.0
    """Next look for lapsed leases."""
    sweep_at: float = 0.0
    """Next look for workers that are gone."""
    look_at: float = 0.0
    """Next look into the queue without a wake-up token."""
    more_wait: bool = False
    """The last look returned as many jobs as requested: there may be more."""
    suspect_waits: bool = False
    """A job that must run alone waits for a worker that holds nothing: take no new ones."""
    freed: asyncio.Event = field(default_factory=asyncio.Event)

    def take(self, claims: Iterable[Claim]) -> None:
        until = time.monotonic() + self.lease_s
        self.held.update({claim.token: (claim, until) for claim in claims})

    def extend(self, claims: Iterable[Claim]) -> None:
        self.take(claim for claim in claims if claim.token in self.held)  # some were finished meanwhile

    def drop(self, claim: Claim) -> None:
        self.held.pop(claim.token, None)
        if not self.held:
            self.freed.set()

    def empty(self) -> bool:
        now = time.monotonic()
        self.held = {token: (claim, until) for token, (claim, until) in self.held.items() if until > now}
        return not self.held

    def runs_alone(self) -> bool:
        return not self.empty() and any(claim.deliveries == MAX_DELIVERIES for claim, _ in self.held.values())

    async def rest(self, until: float) -> None:
        """Wait until everything held is finished, or `until` is over."""
        self.freed.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, until - time.monotonic())):
                await self.freed.wait()


TAKE, CREATE_GROUP, RENEW, FINISH = Script("take"), Script("create_group"), Script("renew"), Script("finish")
RECLAIM, RELEASE = Script("reclaim", prelude="history"), Script("release", prelude="history")


class StreamConsumer:
    """Claims for any number of workers, by name. Belongs to one event loop."""

    def __init__(self, redis: RetryingRedis, keys: Keys, settings: BrokerSettings) -> None:
        self._redis = redis
        self._keys = keys
        self._settings = settings
        self._in_flight: dict[tuple[str, str], _InFlight] = {}

    def _in_flight_of(self, grader: str, worker: str) -> _InFlight:
        return self._in_flight.setdefault((grader, worker), _InFlight(self._settings.lease_s))

    # ---------------------------------------------------------------------------------------------------- claim

    async def claim(self, grader: str, worker: str, limit: int, wait_s: float) -> list[Claim]:
        if limit < 1:  # to Redis, 0 means all
            return []
        in_flight = self._in_flight_of(grader, worker)
        until = time.monotonic() + wait_s
        while True:
            claims = await self._claim_once(grader, worker, limit, until)
            in_flight.take(claims)
            if claims or time.monotonic() >= until:
                return claims

    async def _claim_once(self, grader: str, worker: str, limit: int, until: float) -> list[Claim]:
        """May return nothing before `until`."""
        in_flight = self._in_flight_of(grader, worker)
        if in_flight.runs_alone():
            await in_flight.rest(until)
            return []
        if time.monotonic() >= in_flight.reclaim_at or (in_flight.suspect_waits and in_flight.empty()):
            in_flight.reclaim_at = time.monotonic() + self._settings.lease_s / 4
            claims = await self._reclaim(grader, worker, limit)
            if claims:
                return claims
        wake_at = min(until, in_flight.reclaim_at)
        if in_flight.suspect_waits:
            await in_flight.rest(wake_at)
            return []
        return await self._read(grader, worker, limit, wake_at - time.monotonic())

    async def _read(self, grader: str, worker: str, limit: int, block_s: float) -> list[Claim]:
        in_flight = self._in_flight_of(grader, worker)
        if in_flight.more_wait or block_s <= 0 or time.monotonic() >= in_flight.look_at:
            claims = await self._take(grader, worker, limit)
            if claims or block_s <= 0:
                return claims
        # A token whose reply is lost is made up for by the next look, after `LOOK_S`.
        pop = ("BLPOP", self._keys.wakeup(grader), max(block_s, 0.01))
        if await self._redis.persist(lambda: self._redis.read(block_s, *pop)) is not None:
            return await self._take(grader, worker, limit, woken=True)
        return []

    async def _take(self, grader: str, worker: str, limit: int, *, woken: bool = False) -> list[Claim]:
        """The next queued jobs, without waiting."""
        args = (self._keys.prefix, GROUP, worker, limit, ms(JOB_TTL_S), int(woken), TRAINING_FROM)
        try:
            taken = await self._redis.run(TAKE, self._keys.waiting(grader), *args)
        except NoGroup:
            await self._make_group(grader)
            taken = await self._redis.run(TAKE, self._keys.waiting(grader), *args)
        in_flight = self._in_flight_of(grader, worker)
        in_flight.more_wait, in_flight.look_at = len(taken) == limit, time.monotonic() + LOOK_S
        return [_claim(grader, worker, *one) for one in taken]

    async def _make_group(self, grader: str) -> None:
        await self._redis.run(CREATE_GROUP, [self._keys.jobs(grader)], GROUP, ms(JOB_TTL_S))

    async def _reclaim(self, grader: str, worker: str, limit: int) -> list[Claim]:
        """Lapsed claims of other workers. A suspect comes by itself; while one waits, busy workers get nothing."""
        in_flight = self._in_flight_of(grader, worker)
        # A sweep looks at every worker: at every call, a thousand workers would use a tenth of Redis' CPU.
        sweeps = time.monotonic() >= in_flight.sweep_at
        args = (
            self._keys.prefix,
            GROUP,
            worker,
            ms(self._settings.lease_s),
            limit,
            MAX_DELIVERIES,
            int(in_flight.empty()),
        )
        bounds = (ms(JOB_TTL_S), ms(IDLE_CONSUMER_S) if sweeps else 0, N_JOB_FIELDS, MAX_REPAIRS)
        try:
            suspect_waits, taken = await self._redis.run(RECLAIM, self._keys.waiting(grader), *args, *bounds)
        except NoGroup:
            await self._make_group(grader)
            return []
        in_flight.suspect_waits = bool(suspect_waits)
        if sweeps:
            in_flight.sweep_at = time.monotonic() + IDLE_CONSUMER_S
        return [_claim(grader, worker, *one) for one in taken]

    # ---------------------------------------------------------------------------------------------------- renew

    async def renew(self, claims: Sequence[Claim]) -> list[Claim]:
        unwanted: list[Claim] = []
        for grader in {claim.job.grader for claim in claims}:
            mine = [claim for claim in claims if claim.job.grader == grader]
            tokens = [part for claim in mine for part in (claim.job.id, *_parts(claim))]
            try:
                bounds = (self._keys.prefix, GROUP, N_JOB_FIELDS)
                given_up = await self._redis.run(RENEW, [self._keys.jobs(grader)], *bounds, *tokens)
            except NoGroup:
                continue  # nothing is left to renew; `claim` creates the group again
            for claim in mine:
                self._in_flight_of(grader, _worker_of(claim)).extend([claim])
            unwanted += (claim for claim in mine if _parts(claim)[0] in given_up)
        return unwanted

    # --------------------------------------------------------------------------------------------------- finish

    async def finish(self, claim: Claim, result: str, *, cache: bool, dead_letter: bool) -> bool:
        job = claim.job
        entry_id, _, worker = _parts(claim)
        keys = [
            self._keys.jobs(job.grader),
            self._keys.result(job.id, cache=cache),
            self._keys.dead(job.grader),
            self._keys.job(job.id),
        ]
        ttl_s = self._settings.result_ttl_s if cache else self._settings.uncached_ttl_s
        letter = (
            self._settings.max_dead_letters if dead_letter else 0,
            job.payload if dead_letter else "",
            ms(DEAD_TTL_S),
        )
        args = (entry_id, job.id, result, ms(ttl_s), MAX_INBOX, *letter, self._keys.inbox(""))
        done = await self._redis.run(FINISH, keys, GROUP, *args)
        self._in_flight_of(job.grader, worker).drop(claim)
        return bool(done)

    async def release(self, claim: Claim) -> None:
        job = claim.job
        keys = [*self._keys.waiting(job.grader), self._keys.job(job.id)]
        settings = (MAX_DELIVERIES, ms(self._settings.lease_s), job.id, ms(JOB_TTL_S), N_JOB_FIELDS)
        with suppress(NoGroup):  # the waiting producers find that the job is lost and submit it again
            await self._redis.run(RELEASE, keys, GROUP, *_parts(claim), *settings)
        self._in_flight_of(job.grader, _worker_of(claim)).drop(claim)


def _claim(grader: str, worker: str, entry_id: str, times: int, job_id: str, payload: str, starts: int) -> Claim:
    """`times`: how often this very entry was delivered; together with its id and the worker it names the lease."""
    return Claim(Job(job_id, grader, payload), f"{entry_id} {times} {worker}", starts)


def _parts(claim: Claim) -> list[str]:
    return claim.token.split(" ", 2)


def _worker_of(claim: Claim) -> str:
    return _parts(claim)[2]
