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

from services.broker import MAX_STARTS, Claim, Job, Terms
from services.broker.streams.keys import DEAD_TTL_S, GROUP, JOB_TTL_S, MAX_INBOX, N_JOB_FIELDS, TRAINING_FROM, Keys, ms
from services.broker.streams.link import Link, NoGroup, Script

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
class _Hands:
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
        return not self.empty() and any(claim.deliveries == MAX_STARTS for claim, _ in self.held.values())

    async def rest(self, until: float) -> None:
        """Until everything held is finished, or `until` is over."""
        self.freed.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, until - time.monotonic())):
                await self.freed.wait()


_NOTE = """
        local function note(job, worker, ago_ms, what)
          local time = redis.call('TIME')
          local line = string.format('%.3f %s %s', time[1] + time[2] / 1e6 - ago_ms / 1000, worker, what)
          redis.call('HSET', job, 'history', (redis.call('HGET', job, 'history') or '')..line..'\\n')
        end
"""


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
        hands = self._hands_of(grader, worker)
        if hands.more_wait or block_s <= 0 or time.monotonic() >= hands.look_at:
            claims = await self._take(grader, worker, limit)
            if claims or block_s <= 0:
                return claims
        if await self._link.persist(lambda: self._rung(grader, block_s)):
            return await self._take(grader, worker, limit, rung=True)
        return []

    async def _rung(self, grader: str, block_s: float) -> bool:
        """Whether a job was queued within `block_s`. For a token whose reply is lost, looking without one makes up."""
        return await self._link.read(block_s, "BLPOP", self._keys.bell(grader), max(block_s, 0.01)) is not None

    # Reading comes first: it finds whether the group is there before anything leaves the queue, and it picks up what
    # entered the stream but reached no worker, because the group was lost.
    _TAKE = Script(f"""
        local queue, turns, bell, stream = unpack(KEYS)
        local prefix, group, worker, limit, ttl = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5]
        local n_queued = redis.call('ZCARD', queue)
        if n_queued == 0 and redis.call('XLEN', stream) == 0 then  -- the usual case of an idle worker: be brief
          if ARGV[6] == '1' then redis.call('DEL', bell) end
          return {{}}
        end
        local taken = {{}}
        local function read(count)
          local reply = redis.call('XREADGROUP', 'GROUP', group, worker, 'COUNT', count, 'STREAMS', stream, '>')
          return reply and reply[1][2] or {{}}
        end
        local function pick_up(entry)
          local id = entry[2][1] == 'id' and entry[2][2] or ''
          local job = prefix..'job:'..id
          if redis.call('HGET', job, 'entry') == entry[1] then
            local starts = redis.call('HINCRBY', job, 'starts', 1)
            taken[#taken + 1] = {{entry[1], 1, id, redis.call('HGET', job, 'payload') or '', starts}}
          else  -- no job: nobody could ever finish it, and it would come back for ever
            redis.call('XACK', stream, group, entry[1])
            redis.call('XDEL', stream, entry[1])
          end
        end
        local now = {{}}
        local function move(id, turn)
          local job = prefix..'job:'..id
          local payload, starts = unpack(redis.call('HMGET', job, 'payload', 'starts'))
          if not starts then return end
          local entry = redis.call('XADD', stream, '*', 'id', id)
          redis.call('HSET', job, 'turn', turn, 'entry', entry, 'starts', starts + 1)
          now[tonumber(turn) > {TRAINING_FROM} and 'now {TRAINING_FROM}' or 'now 0'] = turn
          taken[#taken + 1] = {{entry, 1, id, payload or '', starts + 1}}
        end

        for _, entry in ipairs(read(limit)) do pick_up(entry) end
        if n_queued > 0 and #taken < limit then
          local popped, before = redis.call('ZPOPMIN', queue, limit - #taken), #taken
          for i = 1, #popped, 2 do move(popped[i], popped[i + 1]) end
          if #taken > before then read(#taken - before) end
          for name, turn in pairs(now) do
            if tonumber(turn) > tonumber(redis.call('HGET', turns, name) or 0) then
              redis.call('HSET', turns, name, turn)
            end
          end
          redis.call('PEXPIRE', turns, ttl)
          if #popped == 2 * n_queued then redis.call('DEL', bell) end
        end
        redis.call('PEXPIRE', stream, ttl)
        return taken
    """)

    async def _take(self, grader: str, worker: str, limit: int, *, rung: bool = False) -> list[Claim]:
        """The next jobs in line, without waiting."""
        args = (self._keys.prefix, GROUP, worker, limit, ms(JOB_TTL_S), int(rung))
        try:
            taken = await self._link.run(self._TAKE, self._keys.waiting(grader), *args)
        except NoGroup:
            await self._make_group(grader)
            taken = await self._link.run(self._TAKE, self._keys.waiting(grader), *args)
        hands = self._hands_of(grader, worker)
        hands.more_wait, hands.look_at = len(taken) == limit, time.monotonic() + LOOK_S
        return [_claim(grader, worker, *one) for one in taken]

    _MAKE_GROUP = Script("""
        local made = redis.pcall('XGROUP', 'CREATE', KEYS[1], ARGV[1], 0, 'MKSTREAM')
        redis.call('PEXPIRE', KEYS[1], ARGV[2])
        if made.err and string.sub(made.err, 1, 9) ~= 'BUSYGROUP' then return made end
    """)

    async def _make_group(self, grader: str) -> None:
        await self._link.run(self._MAKE_GROUP, [self._keys.jobs(grader)], GROUP, ms(JOB_TTL_S))

    # Whatever is in the stream is under a lease, or about to be, but for what a Redis that lost its last writes made of
    # it. So the oldest is looked at, and put right, and the next. (An entry read by nobody yet may be put back, too.)
    _RECLAIM = Script(f"""{_NOTE}
        local queue, _, bell, stream = unpack(KEYS)
        local group, worker, lease, limit = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
        local max_starts, empty_handed, prefix = tonumber(ARGV[5]), ARGV[6] == '1', ARGV[9]
        local consumers = ARGV[8] ~= '0' and redis.pcall('XINFO', 'CONSUMERS', stream, group) or {{}}
        for _, consumer in ipairs(consumers) do  -- an error is none: there is no group yet
          if consumer[4] == 0 and consumer[6] > tonumber(ARGV[8]) then
            redis.call('XGROUP', 'DELCONSUMER', stream, group, consumer[2])
          end
        end
        local function id_in(found)
          return found and found[2][1] == 'id' and found[2][2]
        end
        local function put_right(found)
          local id = id_in(found)
          local job = id and prefix..'job:'..id
          redis.call('XDEL', stream, found[1])
          if not id or redis.call('HGET', job, 'entry') ~= found[1] then return end
          if redis.call('HLEN', job) <= {N_JOB_FIELDS} then return redis.call('DEL', job) end
          redis.call('HSET', job, 'entry', '')
          redis.call('ZADD', queue, redis.call('HGET', job, 'turn') or 0, id)
          redis.call('RPUSH', bell, 1)
          for _, key in ipairs({{queue, bell}}) do redis.call('PEXPIRE', key, ARGV[7]) end
        end
        local oldest = redis.call('XRANGE', stream, '-', '+', 'COUNT', 1)
        for _ = 1, {HEAL_ENTRIES} do
          if #oldest == 0 then return {{0, {{}}}} end
          if redis.call('XPENDING', stream, group, oldest[1][1], oldest[1][1], 1)[1] then break end
          put_right(oldest[1])
          oldest = redis.call('XRANGE', stream, '-', '+', 'COUNT', 1)
        end

        local idle = redis.call('XPENDING', stream, group, 'IDLE', lease, '-', '+', limit)
        redis.call('PEXPIRE', stream, ARGV[7])
        local function id_of(entry)  -- nil: there is no such job, or nobody wants it any more
          local id = id_in(redis.call('XRANGE', stream, entry, entry)[1])
          local job = id and prefix..'job:'..id
          if not id or redis.call('HGET', job, 'entry') ~= entry then return nil end
          if redis.call('HLEN', job) > {N_JOB_FIELDS} then return id end
          redis.call('DEL', job)
        end
        local function take(entry, times, id, holder, idle_ms)
          local job = prefix..'job:'..id
          note(job, holder, idle_ms, 'let its lease lapse')
          redis.call('XCLAIM', stream, group, worker, lease, entry)
          local starts = redis.call('HINCRBY', job, 'starts', 1)
          return {{entry, times + 1, id, redis.call('HGET', job, 'payload') or '', starts}}
        end

        local lapsed = {{}}
        for _, pending in ipairs(idle) do
          local entry, times = pending[1], pending[4]
          local id = id_of(entry)
          if not id then
            redis.call('XACK', stream, group, entry)
            redis.call('XDEL', stream, entry)
          elseif redis.call('HGET', prefix..'job:'..id, 'starts') + 1 == max_starts then
            if not empty_handed then return {{1, {{}}}} end
            return {{0, {{take(entry, times, id, pending[2], pending[3])}}}}
          else lapsed[#lapsed + 1] = {{entry, times, id, pending[2], pending[3]}} end
        end
        local taken = {{}}
        for i, pending in ipairs(lapsed) do taken[i] = take(unpack(pending)) end
        return {{0, taken}}
    """)

    async def _reclaim(self, grader: str, worker: str, limit: int) -> list[Claim]:
        """Claims of others that lapsed; a suspect by itself, or none at all while a suspect waits for empty hands."""
        hands = self._hands_of(grader, worker)
        args = (GROUP, worker, ms(self._terms.lease_s), limit, MAX_STARTS, int(hands.empty()))
        # Every worker looks at all others then: each time, a thousand workers would take a tenth of Redis.
        sweeps = time.monotonic() >= hands.sweep_at
        try:
            suspect_waits, taken = await self._link.run(
                self._RECLAIM,
                self._keys.waiting(grader),
                *args,
                ms(JOB_TTL_S),
                ms(IDLE_CONSUMER_S) if sweeps else 0,
                self._keys.prefix,
            )
        except NoGroup:
            await self._make_group(grader)
            return []
        hands.suspect_waits = bool(suspect_waits)
        if sweeps:
            hands.sweep_at = time.monotonic() + IDLE_CONSUMER_S
        return [_claim(grader, worker, *one) for one in taken]

    # ---------------------------------------------------------------------------------------------------- renew

    _RENEW = Script(f"""
        local unwanted = {{}}
        for i = 3, #ARGV, 4 do
          local job, entry, times, worker = ARGV[2]..'job:'..ARGV[i], ARGV[i + 1], tonumber(ARGV[i + 2]), ARGV[i + 3]
          local pending = redis.call('XPENDING', KEYS[1], ARGV[1], entry, entry, 1)[1]
          if pending and pending[2] == worker and pending[4] == times then
            redis.call('XCLAIM', KEYS[1], ARGV[1], worker, 0, entry, 'JUSTID')
            if redis.call('HGET', job, 'entry') == entry and redis.call('HLEN', job) == {N_JOB_FIELDS} then
              unwanted[#unwanted + 1] = entry
            end
          end
        end
        return unwanted
    """)

    async def renew(self, claims: Sequence[Claim]) -> list[Claim]:
        unwanted: list[Claim] = []
        for grader in {claim.job.grader for claim in claims}:
            mine = [claim for claim in claims if claim.job.grader == grader]
            tokens = [part for claim in mine for part in (claim.job.id, *_parts(claim))]
            try:
                given_up = await self._link.run(
                    self._RENEW, [self._keys.jobs(grader)], GROUP, self._keys.prefix, *tokens
                )
            except NoGroup:
                continue  # there is nothing left to renew; `claim` makes the group anew
            for claim in mine:
                self._hands_of(grader, _worker_of(claim)).extend([claim])
            unwanted += (claim for claim in mine if _parts(claim)[0] in given_up)
        return unwanted

    # --------------------------------------------------------------------------------------------------- finish

    _FINISH = Script("""
        local stream, stored, dead, job = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
        local group, entry, id, result, ttl, max_inbox = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
        if redis.call('XACK', stream, group, entry) == 0 then return 0 end
        if ARGV[7] ~= '0' then
          local history = redis.call('HGET', job, 'history') or ''
          redis.call('XADD', dead, 'MAXLEN', ARGV[7], '*', 'id', id, 'payload', ARGV[8], 'history', history)
          redis.call('PEXPIRE', dead, ARGV[9])
        end
        redis.call('XDEL', stream, entry)
        redis.call('SET', stored, result, 'PX', ttl)
        for _, inbox in ipairs(redis.call('HKEYS', job)) do
          if string.find(inbox, ARGV[10], 1, true) == 1 then
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
        letter = (self._terms.max_buried if bury else 0, job.payload if bury else "", ms(DEAD_TTL_S))
        args = (entry_id, job.id, result, ms(ttl_s), MAX_INBOX, *letter, self._keys.inbox(""))
        done = await self._link.run(self._FINISH, keys, GROUP, *args)
        self._hands_of(job.grader, worker).drop(claim)
        return bool(done)

    _GIVE_BACK = Script(f"""{_NOTE}
        local queue, bell, stream, job = KEYS[1], KEYS[3], KEYS[4], KEYS[5]
        local group, entry, worker, id, ttl = ARGV[1], ARGV[2], ARGV[4], ARGV[7], ARGV[8]
        local pending = redis.call('XPENDING', stream, group, entry, entry, 1)[1]
        if not pending or pending[2] ~= worker or pending[4] ~= tonumber(ARGV[3]) then return end
        local has, starts, turn = unpack(redis.call('HMGET', job, 'entry', 'starts', 'turn'))
        local wanted = has == entry and redis.call('HLEN', job) > {N_JOB_FIELDS}
        if wanted and starts + 1 == tonumber(ARGV[5]) then
          note(job, worker, 0, 'gave it back')
          -- must run alone, which only reclaiming can see to: let the lease lapse now
          redis.call('XCLAIM', stream, group, worker, 0, entry, 'IDLE', ARGV[6], 'JUSTID')
          return
        end
        redis.call('XACK', stream, group, entry)
        redis.call('XDEL', stream, entry)
        if has ~= entry then return end
        if not wanted then return redis.call('DEL', job) end
        note(job, worker, 0, 'gave it back')
        redis.call('HSET', job, 'entry', '')
        redis.call('ZADD', queue, turn, id)
        redis.call('RPUSH', bell, 1)
        redis.call('PEXPIRE', queue, ttl)
        redis.call('PEXPIRE', bell, ttl)
    """)

    async def give_back(self, claim: Claim) -> None:
        job = claim.job
        keys = [*self._keys.waiting(job.grader), self._keys.job(job.id)]
        terms = (MAX_STARTS, ms(self._terms.lease_s), job.id, ms(JOB_TTL_S))
        with suppress(NoGroup):  # whoever waits for the job finds that it is lost, and submits it again
            await self._link.run(self._GIVE_BACK, keys, GROUP, *_parts(claim), *terms)
        self._hands_of(job.grader, _worker_of(claim)).drop(claim)


def _claim(grader: str, worker: str, entry_id: str, times: int, job_id: str, payload: str, starts: int) -> Claim:
    """`times`: how often this very entry was delivered; together with its id and the worker it names the lease."""
    return Claim(Job(job_id, grader, payload), f"{entry_id} {times} {worker}", starts)


def _parts(claim: Claim) -> list[str]:
    return claim.token.split(" ", 2)


def _worker_of(claim: Claim) -> str:
    return _parts(claim)[2]
