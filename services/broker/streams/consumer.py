"""The side that works: claims, renews, finishes, gives back. Submits nothing and waits for nobody's answer.

To claim a job is to move it, when its turn has come, from the queue to the stream and there to this worker. A lease is
an entry of the consumer group's pending list whose idle time is below `lease_s`; renewing sets it back to zero.
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

_Taken = tuple[str, int, str, str, int]
"""Id of a stream entry, how often that was delivered, and of the job: id, payload, starts."""

IDLE_CONSUMER_S = 3600.0
"""A worker's name is struck off the group after this long without a sign of life."""
LOOK_S = 2.0
"""How often a worker looks into the queue though no bell rang: a token can be lost with the connection it was sent on.
"""
HEAL_ENTRIES = 100
"""At most, each time."""


@dataclass(slots=True)
class _InFlight:
    """What one worker of this process holds, and when it should look for lapsed leases again."""

    lease_s: float
    held: dict[str, tuple[Claim, float]] = field(default_factory=dict)
    """By token: the claim and the end of its lease."""
    reclaim_at: float = 0.0
    sweep_at: float = 0.0
    """When it should look for workers that are gone again."""
    look_at: float = 0.0
    """When it should look into the queue again though no bell rang."""
    more_wait: bool = False
    """The last look brought as much as was asked for: there may be more."""
    suspect_waits: bool = False
    """A job that must run alone waits for some worker to hold nothing: take no new ones."""
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
        """Until everything held is finished, or `until` is over."""
        self.freed.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, until - time.monotonic())):
                await self.freed.wait()


TAKE, CREATE_GROUP, RENEW, FINISH = Script("take"), Script("create_group"), Script("renew"), Script("finish")
RECLAIM, RELEASE = Script("reclaim", prelude="history"), Script("release", prelude="history")


class StreamConsumer:
    """The working side of one broker instance, under as many worker names as its callers use."""

    def __init__(self, redis_client: RetryingRedis, keys: Keys, settings: BrokerSettings) -> None:
        self._redis = redis_client
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
        """Maybe nothing although `until` is not over."""
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
        if await self._redis.persist(lambda: self._rung(grader, block_s)):
            return await self._take(grader, worker, limit, rung=True)
        return []

    async def _rung(self, grader: str, block_s: float) -> bool:
        """Whether a job was queued within `block_s`. For a token whose reply is lost, looking without one makes up."""
        return await self._redis.read(block_s, "BLPOP", self._keys.bell(grader), max(block_s, 0.01)) is not None

    async def _take(self, grader: str, worker: str, limit: int, *, rung: bool = False) -> list[Claim]:
        """The next jobs in line, without waiting."""
        args = (self._keys.prefix, GROUP, worker, limit, ms(JOB_TTL_S), int(rung), TRAINING_FROM)
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
        """Claims of others that lapsed; a suspect by itself, or none at all while a suspect waits for empty in_flight."""
        in_flight = self._in_flight_of(grader, worker)
        # Every worker looks at all others then: each time, a thousand workers would take a tenth of Redis.
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
        bounds = (ms(JOB_TTL_S), ms(IDLE_CONSUMER_S) if sweeps else 0, N_JOB_FIELDS, HEAL_ENTRIES)
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
                args = (self._keys.prefix, GROUP, N_JOB_FIELDS, *tokens)
                given_up = await self._redis.run(RENEW, [self._keys.jobs(grader)], *args)
            except NoGroup:
                continue  # there is nothing left to renew; `claim` makes the group anew
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
        with suppress(NoGroup):  # whoever waits for the job finds that it is lost, and submits it again
            await self._redis.run(RELEASE, keys, GROUP, *_parts(claim), *settings)
        self._in_flight_of(job.grader, _worker_of(claim)).drop(claim)


def _claim(grader: str, worker: str, entry_id: str, times: int, job_id: str, payload: str, starts: int) -> Claim:
    """`times`: how often this very entry was delivered; together with its id and the worker it names the lease."""
    return Claim(Job(job_id, grader, payload), f"{entry_id} {times} {worker}", starts)


def _parts(claim: Claim) -> list[str]:
    return claim.token.split(" ", 2)


def _worker_of(claim: Claim) -> str:
    return _parts(claim)[2]
