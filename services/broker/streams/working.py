"""The side that works: claims, renews, finishes, gives back. Submits nothing and waits for nobody's answer.

A lease is an entry of the consumer group's pending list whose idle time is below `lease_s`; renewing sets it back to
zero. The group's delivery count, plus what a job that was given back brought along, is the number of starts.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from services.broker import MAX_STARTS, Claim, Job, Terms
from services.broker.streams.keys import DEAD_TTL_S, GROUP, JOB_TTL_S, MAX_INBOX, Keys, ms
from services.broker.streams.link import Link, NoGroup, Script

_Entry = tuple[str, int, dict[str, str]]
"""Id of a stream entry, how often it was delivered, and its fields."""

log = logging.getLogger(__name__)

IDLE_CONSUMER_S = 3600.0
"""A worker's name is struck off the group after this long without a sign of life."""


@dataclass(slots=True)
class _Hands:
    """What one worker of this process holds, and when it should look for lapsed leases again."""

    lease_s: float
    held: dict[str, tuple[Claim, float]] = field(default_factory=dict)
    """By token: the claim and the end of its lease."""
    reclaim_at: float = 0.0
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
        return not self.empty() and any(claim.deliveries == MAX_STARTS for claim, _ in self.held.values())

    async def rest(self, until: float) -> None:
        """Until everything held is finished, or `until` is over."""
        self.freed.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, until - time.monotonic())):
                await self.freed.wait()


class Worker:
    """The working side of one broker instance, under as many worker names as its callers use."""

    def __init__(self, link: Link, keys: Keys, terms: Terms) -> None:
        self._link = link
        self._keys = keys
        self._terms = terms
        self._hands: dict[tuple[str, str], _Hands] = {}

    def _hands_of(self, grader: str, worker: str) -> _Hands:
        return self._hands.setdefault((grader, worker), _Hands(self._terms.lease_s))

    # ---------------------------------------------------------------------------------------------------- claim

    async def claim(self, grader: str, worker: str, limit: int, wait_s: float) -> list[Claim]:
        if limit < 1:  # to Redis, 0 means all
            return []
        hands = self._hands_of(grader, worker)
        until = time.monotonic() + wait_s
        while True:
            claims = await self._claim_once(grader, worker, limit, until)
            hands.take(claims)
            if claims or time.monotonic() >= until:
                return claims

    async def _claim_once(self, grader: str, worker: str, limit: int, until: float) -> list[Claim]:
        """Maybe nothing although `until` is not over."""
        hands = self._hands_of(grader, worker)
        if hands.runs_alone():
            await hands.rest(until)
            return []
        if time.monotonic() >= hands.reclaim_at or (hands.suspect_waits and hands.empty()):
            hands.reclaim_at = time.monotonic() + self._terms.lease_s / 4
            claims = await self._reclaim(grader, worker, limit)
            if claims:
                return claims
        wake_at = min(until, hands.reclaim_at)
        if hands.suspect_waits:
            await hands.rest(wake_at)
            return []
        return await self._read(grader, worker, limit, wake_at - time.monotonic())

    async def _read(self, grader: str, worker: str, limit: int, block_s: float) -> list[Claim]:
        block = ("BLOCK", ms(block_s)) if block_s > 0 else ()
        stream = self._keys.jobs(grader)
        command = ("XREADGROUP", "GROUP", GROUP, worker, "COUNT", limit, *block, "STREAMS", stream, ">")
        try:
            reply = await self._link.persist(lambda: self._link.read(max(0.0, block_s), *command))
        except NoGroup:
            await self._make_group(grader)
            return []
        entries = [(entry_id, 1, fields) for _, entries in reply or () for entry_id, fields in entries]
        return await self._claims(grader, worker, entries)

    async def _claims(self, grader: str, worker: str, entries: Iterable[_Entry]) -> list[Claim]:
        claims = []
        for entry_id, times, fields in entries:
            try:
                claims.append(_claim(grader, worker, entry_id, times, fields))
            except (KeyError, ValueError):  # nobody could ever finish it, and it would come back for ever
                log.warning("dropped entry %s of the queue of grader %s: it is no job", entry_id, grader)
                await self._link.run(self._DROP, [self._keys.jobs(grader)], GROUP, entry_id)
        return claims

    _DROP = Script("""
        redis.call('XACK', KEYS[1], ARGV[1], ARGV[2])
        redis.call('XDEL', KEYS[1], ARGV[2])
    """)

    _MAKE_GROUP = Script("""
        local made = redis.pcall('XGROUP', 'CREATE', KEYS[1], ARGV[1], 0, 'MKSTREAM')
        redis.call('PEXPIRE', KEYS[1], ARGV[2])
        if made.err and string.sub(made.err, 1, 9) ~= 'BUSYGROUP' then return made end
    """)

    async def _make_group(self, grader: str) -> None:
        await self._link.run(self._MAKE_GROUP, [self._keys.jobs(grader)], GROUP, ms(JOB_TTL_S))

    _RECLAIM = Script("""
        local stream, group, worker, lease, limit = KEYS[1], ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
        local max_starts, empty_handed = tonumber(ARGV[5]), ARGV[6] == '1'
        local idle = redis.call('XPENDING', stream, group, 'IDLE', lease, '-', '+', limit)
        redis.call('PEXPIRE', stream, ARGV[7])
        for _, consumer in ipairs(redis.call('XINFO', 'CONSUMERS', stream, group)) do
          if consumer[4] == 0 and consumer[6] > tonumber(ARGV[8]) then
            redis.call('XGROUP', 'DELCONSUMER', stream, group, consumer[2])
          end
        end

        local function starts_of(entry, times)
          local found = redis.call('XRANGE', stream, entry, entry)[1]
          if not found then return nil end
          for i = 1, #found[2], 2 do
            if found[2][i] == 'starts' then return times + tonumber(found[2][i + 1]) end
          end
          return times
        end
        local function take(entry, times)
          local fields = redis.call('XCLAIM', stream, group, worker, lease, entry)[1][2]
          return {entry, times + 1, fields}
        end

        local lapsed = {}
        for _, pending in ipairs(idle) do
          local entry, times = pending[1], pending[4]
          local starts = starts_of(entry, times)
          if not starts then redis.call('XACK', stream, group, entry)
          elseif starts + 1 == max_starts then
            if empty_handed then return {0, {take(entry, times)}} else return {1, {}} end
          else lapsed[#lapsed + 1] = {entry, times} end
        end
        local taken = {}
        for i, pending in ipairs(lapsed) do taken[i] = take(pending[1], pending[2]) end
        return {0, taken}
    """)

    async def _reclaim(self, grader: str, worker: str, limit: int) -> list[Claim]:
        """Claims of others that lapsed; a suspect by itself, or none at all while a suspect waits for empty hands."""
        hands = self._hands_of(grader, worker)
        args = (GROUP, worker, ms(self._terms.lease_s), limit, MAX_STARTS, int(hands.empty()))
        try:
            suspect_waits, taken = await self._link.run(
                self._RECLAIM, [self._keys.jobs(grader)], *args, ms(JOB_TTL_S), ms(IDLE_CONSUMER_S)
            )
        except NoGroup:
            await self._make_group(grader)
            return []
        hands.suspect_waits = bool(suspect_waits)
        entries = ((entry_id, times, _paired(fields)) for entry_id, times, fields in taken)
        return await self._claims(grader, worker, entries)

    # ---------------------------------------------------------------------------------------------------- renew

    _RENEW = Script("""
        for i = 2, #ARGV, 3 do
          local entry, times, worker = ARGV[i], tonumber(ARGV[i + 1]), ARGV[i + 2]
          local pending = redis.call('XPENDING', KEYS[1], ARGV[1], entry, entry, 1)[1]
          if pending and pending[2] == worker and pending[4] == times then
            redis.call('XCLAIM', KEYS[1], ARGV[1], worker, 0, entry, 'JUSTID')
          end
        end
    """)

    async def renew(self, claims: Sequence[Claim]) -> None:
        for grader in {claim.job.grader for claim in claims}:
            mine = [claim for claim in claims if claim.job.grader == grader]
            tokens = [part for claim in mine for part in _parts(claim)]
            try:
                await self._link.run(self._RENEW, [self._keys.jobs(grader)], GROUP, *tokens)
            except NoGroup:
                continue  # there is nothing left to renew; `claim` makes the group anew
            for claim in mine:
                self._hands_of(grader, _worker_of(claim)).extend([claim])

    # --------------------------------------------------------------------------------------------------- finish

    _FINISH = Script("""
        local stream, stored, dead, job = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
        local group, entry, id, result, ttl, max_inbox = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
        if redis.call('XACK', stream, group, entry) == 0 then return 0 end
        if ARGV[7] ~= '0' then
          redis.call('XADD', dead, 'MAXLEN', ARGV[7], '*', 'id', id, 'payload', ARGV[8])
          redis.call('PEXPIRE', dead, ARGV[9])
        end
        redis.call('XDEL', stream, entry)
        redis.call('SET', stored, result, 'PX', ttl)
        for _, inbox in ipairs(redis.call('HKEYS', job)) do
          if inbox ~= 'entry' and inbox ~= 'stream' then
            redis.call('XADD', inbox, 'NOMKSTREAM', 'MAXLEN', '~', max_inbox, '*', 'id', id, 'result', result)
          end
        end
        redis.call('DEL', job)
        return 1
    """)

    async def finish(self, claim: Claim, result: str, *, cache: bool, bury: bool) -> bool:
        job = claim.job
        entry_id, _, worker = _parts(claim)
        keys = [
            self._keys.jobs(job.grader),
            self._keys.result(job.id, cache=cache),
            self._keys.dead(job.grader),
            self._keys.job(job.id),
        ]
        ttl_s = self._terms.result_ttl_s if cache else self._terms.uncached_ttl_s
        letter = (self._terms.max_buried, job.payload, ms(DEAD_TTL_S)) if bury else (0,)
        done = await self._link.run(self._FINISH, keys, GROUP, entry_id, job.id, result, ms(ttl_s), MAX_INBOX, *letter)
        self._hands_of(job.grader, worker).drop(claim)
        return bool(done)

    _GIVE_BACK = Script("""
        local stream, job, group, entry, worker = KEYS[1], KEYS[2], ARGV[1], ARGV[2], ARGV[4]
        local starts, max_starts = tonumber(ARGV[5]), tonumber(ARGV[6])
        local pending = redis.call('XPENDING', stream, group, entry, entry, 1)[1]
        if not pending or pending[2] ~= worker or pending[4] ~= tonumber(ARGV[3]) then return end
        local wanted = redis.call('HLEN', job) > 2  -- besides entry and stream, there is an inbox
        if wanted and starts + 1 == max_starts then
          -- must run alone, which only reclaiming can see to: let the lease lapse now
          redis.call('XCLAIM', stream, group, worker, 0, entry, 'IDLE', ARGV[7], 'JUSTID')
          return
        end
        redis.call('XACK', stream, group, entry)
        redis.call('XDEL', stream, entry)
        if not wanted then return redis.call('DEL', job) end
        local again = redis.call('XADD', stream, '*', 'id', ARGV[8], 'payload', ARGV[9], 'starts', starts)
        redis.call('HSET', job, 'entry', again)
    """)

    async def give_back(self, claim: Claim) -> None:
        job = claim.job
        keys = [self._keys.jobs(job.grader), self._keys.job(job.id)]
        starts = (claim.deliveries, MAX_STARTS, ms(self._terms.lease_s))
        with suppress(NoGroup):  # whoever waits for the job finds that it is lost, and submits it again
            await self._link.run(self._GIVE_BACK, keys, GROUP, *_parts(claim), *starts, job.id, job.payload)
        self._hands_of(job.grader, _worker_of(claim)).drop(claim)


def _claim(grader: str, worker: str, entry_id: str, times: int, fields: dict[str, str]) -> Claim:
    """`times`: how often this very entry was delivered; together with its id and the worker it names the lease."""
    starts = times + int(fields.get("starts", 0))
    return Claim(Job(fields["id"], grader, fields["payload"]), f"{entry_id} {times} {worker}", starts)


def _parts(claim: Claim) -> list[str]:
    return claim.token.split(" ", 2)


def _worker_of(claim: Claim) -> str:
    return _parts(claim)[2]


def _paired(flat: list[Any]) -> dict[str, str]:
    return dict(zip(flat[::2], flat[1::2], strict=True))
