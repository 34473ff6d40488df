"""The queue of many processes, on Redis Streams: one Redis, or one with replicas. In a Redis
Cluster it is one partition of `partitioned`, with all keys in one slot.

Only JSON is stored; nothing read is executed or unpickled. `layout` lists what lies in Redis.

A claim moves the next job from the queue to the stream, and there to one worker. A lease is an
entry of the consumer group's pending list whose idle time is below `lease_s`; renewing sets it back
to zero.

Results come to the API through one stream per process, its inbox, read from the last id seen, so
that a result is read again rather than lost when a connection breaks. The inbox is fast; the stored
results are certain: every `SWEEP_S`, and whenever the connection was lost, the process looks up
every job that it waits for, and submits again what Redis lost.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from typing import Any

from gradus.errors import QueueFault
from services.broker import (
    DEAD_AFTER_S,
    KEY_PARTS,
    LOOK_AHEAD,
    MAX_DELIVERIES,
    PUT_OFF_TURNS,
    RENEW_S,
    RESERVED_PART,
    BrokerSettings,
)
from services.broker.jobs import DEFAULT_FAIR_SHARE, Claim, FairShare, Job, QueueFull
from services.broker.streams import layout, scripts
from services.broker.streams.clock import RedisClock
from services.broker.streams.memory import RedisMemory
from services.broker.streams.operations import StreamOperations
from services.broker.streams.redis_client import (
    CHUNK_ITEMS,
    LAST_PAUSE_S,
    Argument,
    RetryingRedis,
    parse_fields,
    split_chunks,
    to_ms,
)
from services.broker.streams.redis_faults import NoGroup, NoMemory
from services.broker.waiters import ResultWaiters

READ_RESULTS = 128
"""Results of one read: delivering each takes 60 us, and other work of the loop waits for it."""
LISTEN_S = 5.0
"""Seconds of one blocking read. A Redis that vanished silently is noticed after these and
`patience_s`."""
SWEEP_S = 30.0
LOOK_S = 2.0
"""Seconds between looks into the queue without a wake-up token: one can be lost with its
connection."""


@dataclass(slots=True)
class _Pending:
    job: Job
    fair_share: FairShare
    waiters: int = 0
    """Submits of this process that have not been cancelled."""
    queued: bool = False
    """Redis has confirmed it: if it does not know the job later on, it has lost it."""
    since: float = field(default_factory=time.monotonic)


@dataclass(slots=True)
class _Consumer:
    """Claims held by one worker of this process, and when it next looks for what. Times are of
    `time.monotonic`."""

    grader: str
    worker: str
    siblings: list[_Consumer]
    """Those of the same worker in all partitions, this one included."""
    held_leases: dict[str, tuple[int, float]] = field(default_factory=dict)
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

    def get_held_starts(self) -> list[int]:
        """Return the starts of each job that the worker holds, in any partition."""
        now = time.monotonic()
        all_starts: list[int] = []
        for consumer in self.siblings:
            leases = consumer.held_leases.items()
            consumer.held_leases = {token: lease for token, lease in leases if lease[1] > now}
            all_starts += [starts for starts, _ in consumer.held_leases.values()]
        return all_starts

    def is_reserved(self) -> bool:
        """Return whether the worker takes no jobs from a queue: it runs a job that must run alone,
        or one waits for it in any partition."""
        suspect_waits = any(consumer.suspect_waits for consumer in self.siblings)
        return suspect_waits or MAX_DELIVERIES in self.get_held_starts()


class StreamsBroker(StreamOperations):
    """See `services.broker.Broker`. Belongs to one event loop; connects when first used."""

    def __init__(
        self,
        url: str,
        settings: BrokerSettings | None = None,
        *,
        prefix: str = "gradus:",
        patience_s: float = 5.0,
        siblings: dict[tuple[str, str], list[_Consumer]] | None = None,
    ) -> None:
        """While Redis is unreachable, a call retries for `patience_s` seconds and a wait until its
        own timeout. `siblings`: consumers of all partitions, by grader and worker.

        Raises ValueError when `url` is no Redis URL.
        """
        self._settings = settings or BrokerSettings()
        self.lease_s = self._settings.lease_s
        self._redis = RetryingRedis(url, prefix=prefix, patience_s=patience_s)
        self.memory = RedisMemory(self._redis)
        self.clock = RedisClock(self._redis)
        self._inbox = self._redis.key("inbox", uuid.uuid4().hex[:16])
        self._last_id = "0-0"
        self._pending: dict[str, _Pending] = {}
        self._payload_bytes: Counter[str] = Counter()
        """Characters of the payloads of `_pending`, by tenant."""
        self._waiters = ResultWaiters()
        self._listener: asyncio.Task[None] | None = None
        self._sweeper: asyncio.Task[None] | None = None
        """Looks up all jobs that are waited for while their results are read: many take a while."""
        self._opening = asyncio.Lock()
        self._large_batches = asyncio.Lock()
        """Held while a batch of several chunks is queued or withdrawn."""
        self._sweep_at = 0.0
        self._consumers: dict[tuple[str, str], _Consumer] = {}
        self._siblings = {} if siblings is None else siblings
        self._finishes: list[tuple[list[str], tuple[Argument, ...], asyncio.Future[bool]]] = []
        """Calls of `finish` that wait for the next run of its script: keys, arguments, outcome."""
        self._finisher: asyncio.Task[None] | None = None

    async def close(self) -> None:
        tasks = [task for task in (self._listener, self._sweeper) if task]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._waiters.fail("the broker was closed while a client waited")
        await self._redis.close()

    async def submit(
        self, jobs: Sequence[Job], fair_share: FairShare = DEFAULT_FAIR_SHARE
    ) -> dict[str, str]:
        """See `Broker.submit`. Batches of several chunks are queued one after the other, so that a
        small one waits for a chunk at most. A chunk that passes the bound, because other processes
        queued meanwhile, withdraws the whole batch.
        """
        if not jobs:
            return {}
        grader = jobs[0].grader
        jobs_by_id = {job.id: job for job in jobs}
        n_bytes = sum(len(job.payload) for job in jobs_by_id.values())
        bound = 0 if await self.memory.is_full(n_bytes) else self._settings.max_depth
        if fair_share.has_key and self.memory.is_part_full(
            self._payload_bytes[fair_share.tenant] + n_bytes
        ):
            raise QueueFull(grader, "key_memory")
        parts = list(split_chunks(jobs_by_id.values()))
        await self._open()
        for job in jobs_by_id.values():
            # before Redis knows it: the result may come before the reply
            self._add_waiter(job, fair_share)
        try:
            if len(parts) == 1:
                answered = await self._enqueue(parts[0], fair_share, bound)
            else:
                async with self._large_batches:
                    answered = await self._enqueue_chunks(parts, fair_share, bound)
        except QueueFull:
            await self.cancel(grader, jobs_by_id)
            raise
        except (QueueFault, asyncio.CancelledError):
            self.withdraw(jobs_by_id)
            raise
        self.withdraw(answered)
        return answered

    def _add_waiter(self, job: Job, fair_share: FairShare) -> None:
        if job.id not in self._pending:
            self._pending[job.id] = _Pending(job, fair_share)
            self._payload_bytes[fair_share.tenant] += len(job.payload)
        self._pending[job.id].waiters += 1

    def _forget(self, job_id: str) -> None:
        """Remove a job that has a result, or for which no client of this process waits."""
        pending = self._pending.pop(job_id, None)
        if pending is not None:
            tenant = pending.fair_share.tenant
            self._payload_bytes[tenant] -= len(pending.job.payload)
            if not self._payload_bytes[tenant]:
                del self._payload_bytes[tenant]

    async def _enqueue_chunks(
        self, chunks: Sequence[Sequence[Job]], fair_share: FairShare, bound: int
    ) -> dict[str, str]:
        """Return the cached results of a batch. Raises QueueFull, mostly before the first chunk is
        queued."""
        grader = chunks[0][0].grader
        job_ids = [job.id for chunk in chunks for job in chunk]
        limits = self._build_limits(grader, fair_share, bound)
        keys = self._redis.keys(layout.QUEUE, grader)
        passed = await self._redis.run(scripts.ADMIT, keys, *limits, *job_ids)
        if passed:
            raise QueueFull(grader, passed if bound else "memory")
        answered: dict[str, str] = {}
        for chunk in chunks:
            answered.update(await self._enqueue(chunk, fair_share, bound))
        return answered

    async def _enqueue(
        self, jobs: Sequence[Job], fair_share: FairShare, bound: int
    ) -> dict[str, str]:
        """Return the cached results of one chunk. `bound` -1: queue whatever the depth. Raises
        QueueFull."""
        grader = jobs[0].grader
        args = (*self._build_limits(grader, fair_share, bound), *layout.SUBMIT_LIMITS)
        pairs = [text for job in jobs for text in (job.id, job.payload)]
        keys = [*self._redis.keys(layout.QUEUE, grader), self._inbox]
        try:
            answered = await self._redis.run(scripts.SUBMIT, keys, *args, *pairs)
        except NoMemory:
            self.memory.next_look = 0.0
            raise QueueFull(grader, "memory") from None
        if isinstance(answered, str):
            raise QueueFull(grader, answered if bound else "memory")
        for pending in filter(None, (self._pending.get(job.id) for job in jobs)):
            pending.queued = True
        return parse_fields(answered)

    def _build_limits(self, grader: str, share: FairShare, bound: int) -> tuple[Argument, ...]:
        return (
            self._redis.prefix,
            bound,
            bound // RESERVED_PART,
            grader,
            layout.FIRST[share.priority],
            share.run,
            share.tenant,
            KEY_PARTS * max(bound // RESERVED_PART, 0) if share.has_key else -1,
            layout.TRAINING_FROM,
        )

    def withdraw(self, job_ids: Iterable[str]) -> list[str]:
        """Decrement each job's waiter count. Return the ids of jobs without a waiter here."""
        unwanted = []
        for pending in filter(None, map(self._pending.get, dict.fromkeys(job_ids))):
            pending.waiters -= 1
            if pending.waiters <= 0:
                self._forget(pending.job.id)
                unwanted.append(pending.job.id)
        return unwanted

    async def cancel(self, grader: str, job_ids: Iterable[str]) -> None:
        chunks = list(split_chunks(self.withdraw(job_ids)))
        async with self._large_batches if len(chunks) > 1 else nullcontext():
            for chunk in chunks:
                await self._run_cancel(grader, chunk)

    async def _run_cancel(self, grader: str, job_ids: Sequence[str]) -> None:
        """Take the inbox of this process off jobs of one chunk."""
        keys = [self._redis.key("queue", grader), self._inbox]
        args = (self._redis.prefix, layout.N_JOB_FIELDS)
        await self._redis.run(scripts.CANCEL, keys, *args, *job_ids)

    def wait(self, job_ids: Iterable[str], timeout_s: float) -> AsyncIterator[tuple[str, str]]:
        return self._waiters.wait(job_ids, timeout_s, self._deliver_stored)

    async def _deliver_stored(self, job_ids: list[str]) -> None:
        await self._open()
        await self._look_up([job_id for job_id in job_ids if job_id not in self._pending])

    async def _open(self) -> None:
        """Create the inbox before a job can name it."""
        async with self._opening:
            if self._listener is None or self._listener.done():
                await self._keep_inbox()
                await self._restore_lost_jobs()  # those of a listener that ended
                self._sweep_at = time.monotonic() + SWEEP_S
                self._listener = asyncio.create_task(self._listen(), name="gradus-inbox")

    async def _listen(self) -> None:
        n_read = 0
        while True:
            try:
                if self._sweeper is not None and self._sweeper.done():
                    sweeper = self._sweeper
                    self._sweeper = None
                    sweeper.result()  # its errors are handled as those of reading
                if self._sweeper is None and time.monotonic() >= self._sweep_at:
                    await self._keep_inbox()
                    self._sweep_at = time.monotonic() + SWEEP_S
                    self._sweeper = asyncio.create_task(self._restore_lost_jobs())
                block_s = min(max(0.1, self._sweep_at - time.monotonic()), LISTEN_S)
                command = (
                    "XREAD",
                    "COUNT",
                    READ_RESULTS,
                    "BLOCK",
                    to_ms(block_s),
                    "STREAMS",
                    self._inbox,
                    self._last_id,
                )
                for _, entries in await self._redis.read(block_s, *command) or ():
                    for self._last_id, entry in entries:
                        if "result" in (answer := parse_fields(entry)):
                            self._deliver(answer["id"], answer["result"])
                    n_read += len(entries)
                # A read takes 0.1 ms: the waiting coroutines run first, and of many results some
                # come together.
                await asyncio.sleep(0.01 if len(self._pending) > 16 else 0)
                if n_read >= READ_RESULTS:
                    await self._redis.call("XTRIM", self._inbox, "MINID", "~", self._last_id)
                    n_read = 0
            except QueueFault:  # every wait ends at its own timeout, however long Redis stays away
                self._sweep_at = 0.0
                await asyncio.sleep(LAST_PAUSE_S)
            except Exception as error:  # noqa: BLE001 - no wait may outlive the listener; `_open` starts another
                self._waiters.fail(
                    f"reading results from Redis failed: {type(error).__name__}: {error}"
                )
                return

    async def _keep_inbox(self) -> None:
        """Keep the inbox alive, or recreate it if it is gone."""
        if not await self._redis.call("PEXPIRE", self._inbox, layout.INBOX_TTL_MS):
            self._last_id = await self._redis.run(
                scripts.OPEN_INBOX, [self._inbox], layout.INBOX_TTL_MS
            )

    async def _restore_lost_jobs(self) -> None:
        """Look up the jobs that are waited for, and submit again those that Redis lost."""
        too_old = time.monotonic() - layout.JOB_TTL_MS / 1000
        for job_id in [key for key, pending in self._pending.items() if pending.since <= too_old]:
            self._forget(job_id)
        await self._look_up(self._waiters.list_job_ids() - self._pending.keys())
        queued: dict[tuple[str, FairShare], list[Job]] = {}
        for pending in self._pending.values():
            if pending.queued:
                key = (pending.job.grader, pending.fair_share)
                queued.setdefault(key, []).append(pending.job)
        for (grader, fair_share), jobs in queued.items():
            for chunk in split_chunks(jobs):
                lost = set(await self._look_up([job.id for job in chunk]))
                wanted_again = [job for job in chunk if job.id in lost & self._pending.keys()]
                if wanted_again:
                    await self._enqueue(wanted_again, fair_share, -1)
                # Those that were withdrawn meanwhile may have got their inbox back.
                unwanted = [job.id for job in chunk if job.id not in self._pending]
                if unwanted:
                    await self._run_cancel(grader, unwanted)

    async def _look_up(self, job_ids: Iterable[str]) -> list[str]:
        """Deliver stored results and have the others sent to this inbox; returns the ids that Redis
        does not know."""
        lost = []
        for chunk in split_chunks(job_ids):
            replies = await self._redis.run(
                scripts.LOOK_UP, [self._inbox], self._redis.prefix, *chunk
            )
            for job_id, result in zip(chunk, replies, strict=True):
                if isinstance(result, str):
                    self._deliver(job_id, result)
                elif not result:
                    lost.append(job_id)
        return lost

    def _deliver(self, job_id: str, result: str) -> None:
        self._forget(job_id)
        self._waiters.deliver(job_id, result)

    def _get_consumer(self, grader: str, worker: str) -> _Consumer:
        if (grader, worker) not in self._consumers:
            siblings = self._siblings.setdefault((grader, worker), [])
            consumer = self._consumers[grader, worker] = _Consumer(grader, worker, siblings)
            siblings.append(consumer)
        return self._consumers[grader, worker]

    def is_reserved(self, grader: str, worker: str) -> bool:
        """See `_Consumer.is_reserved`."""
        return self._get_consumer(grader, worker).is_reserved()

    async def claim(
        self, grader: str, worker: str, limit: int, wait_s: float, max_bytes: int = 0
    ) -> list[Claim]:
        if limit < 1:  # to Redis, 0 means all
            return []
        consumer = self._get_consumer(grader, worker)
        until = time.monotonic() + wait_s
        while True:
            claims = [
                # an entry of the stream, the number of its deliveries and the worker name a lease
                Claim(Job(job_id, grader, payload), f"{entry} {times} {worker}", starts, ms / 1000)
                for entry, times, job_id, payload, starts, ms in await self._take(
                    consumer, limit, until, max_bytes
                )
            ]
            lease_end = time.monotonic() + self.lease_s
            consumer.held_leases.update(
                (claim.token, (claim.deliveries, lease_end)) for claim in claims
            )
            if claims or time.monotonic() >= until:
                return claims

    async def _take(
        self, consumer: _Consumer, limit: int, until: float, max_bytes: int
    ) -> list[Any]:
        """Return jobs as take.lua replies; may return none before `until`."""
        starts = consumer.get_held_starts()
        now = time.monotonic()
        wake_at = until
        if MAX_DELIVERIES not in starts:
            if now >= consumer.reclaim_at or (consumer.suspect_waits and not starts):
                # A sweep looks at every worker: at every call, a thousand workers would use a tenth
                # of Redis' CPU.
                sweeps = now >= consumer.sweep_at
                consumer.reclaim_at = now + min(self.lease_s / 4, RENEW_S)
                args = (
                    to_ms(self.lease_s),
                    limit,
                    MAX_DELIVERIES,
                    int(not starts),
                    layout.JOB_TTL_MS,
                )
                bounds = (
                    layout.IDLE_CONSUMER_MS if sweeps else 0,
                    layout.N_JOB_FIELDS,
                    layout.MAX_REPAIRS,
                )
                looks = (
                    self._redis.key("looks", consumer.grader),
                    to_ms(DEAD_AFTER_S),
                    to_ms(2 * RENEW_S),
                )
                consumer.suspect_waits = False  # also where the partition does not answer
                waits, lapsed = await self._run(scripts.RECLAIM, consumer, *args, *bounds, *looks)
                consumer.suspect_waits = bool(waits)
                if sweeps:
                    consumer.sweep_at = now + layout.IDLE_CONSUMER_MS / 1000
                if lapsed:
                    return list(lapsed)
            wake_at = min(until, consumer.reclaim_at)
            if not consumer.is_reserved():
                block_s = wake_at - time.monotonic()
                return await self._read(consumer, limit, block_s, max_bytes)
        consumer.freed.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, wake_at - time.monotonic())):
                await consumer.freed.wait()
        return []

    async def _read(
        self, consumer: _Consumer, limit: int, block_s: float, max_bytes: int
    ) -> list[Any]:
        """Return the next queued jobs; waits up to `block_s` for a wake-up token."""
        is_woken = False
        while True:
            if is_woken or block_s <= 0 or time.monotonic() >= consumer.look_at:
                args = (limit, layout.JOB_TTL_MS, int(is_woken), *layout.PRIORITIES)
                sizes = (max_bytes, LOOK_AHEAD)
                taken: list[Any] = await self._run(scripts.TAKE, consumer, *args, *sizes)
                # As many as requested: there may be more.
                consumer.look_at = 0.0 if len(taken) == limit else time.monotonic() + LOOK_S
                if taken or is_woken or block_s <= 0:
                    return taken
            if not await self.wait_for_bell(consumer.grader, block_s):
                return []
            is_woken = True

    async def wait_for_bell(self, grader: str, block_s: float) -> bool:
        """Wait for a wake-up token; return whether one came. One whose reply is lost is made up for
        by the next look, after `LOOK_S`."""
        pop = ("BLPOP", self._redis.key("bell", grader), max(block_s, 0.01))
        token = await self._redis.call_with_retries(lambda: self._redis.read(block_s, *pop))
        return token is not None

    async def _run(self, script: scripts.Script, consumer: _Consumer, *args: Argument) -> Any:
        """Return the reply of a script that moves jobs to this worker; creates the consumer group
        if it is not there."""
        keys = self._redis.keys(layout.QUEUE, consumer.grader)
        args = (self._redis.prefix, layout.GROUP, consumer.worker, *args)
        try:
            return await self._redis.run(script, keys, *args)
        except NoGroup:
            await self._redis.run(scripts.CREATE_GROUP, keys[3:], layout.GROUP, layout.JOB_TTL_MS)
            return await self._redis.run(script, keys, *args)

    async def renew(self, claims: Sequence[Claim]) -> list[Claim]:
        unwanted: list[Claim] = []
        for grader in {claim.job.grader for claim in claims}:
            mine = {
                claim: claim.token.split(" ", 2) for claim in claims if claim.job.grader == grader
            }
            leases = [text for claim, token in mine.items() for text in (claim.job.id, *token)]
            stream = self._redis.key("jobs", grader)
            args: list[Argument] = [self._redis.prefix, layout.GROUP, layout.N_JOB_FIELDS, *leases]
            try:
                given_up = await self._redis.run(scripts.RENEW, [stream], *args)
            except NoGroup:
                continue  # nothing is left to renew; `claim` creates the group again
            for claim, (entry, _, worker) in mine.items():
                consumer_leases = self._get_consumer(grader, worker).held_leases
                if claim.token in consumer_leases:  # not finished meanwhile
                    consumer_leases[claim.token] = (
                        claim.deliveries,
                        time.monotonic() + self.lease_s,
                    )
                if entry in given_up:
                    unwanted.append(claim)
        return unwanted

    async def finish(
        self, claim: Claim, result: str, *, cache: bool, dead_letter: bool = False
    ) -> bool:
        job = claim.job
        key = self._redis.key
        settings = self._settings
        keys = [
            key("jobs", job.grader),
            key("result" if cache else "uncached", job.id),
            key("dead", job.grader),
            key("job", job.id),
        ]
        ttl_s = settings.result_ttl_s if cache else settings.uncached_ttl_s
        letter = (settings.max_dead_letters, job.payload) if dead_letter else (0, "")
        args = (claim.token.split(" ")[0], job.id, result, to_ms(ttl_s), *letter)
        outcome: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._finishes.append((keys, args, outcome))
        if self._finisher is None or self._finisher.done():
            self._finisher = asyncio.create_task(self._finish_all())
        is_first = await outcome
        self._drop(claim)
        return is_first

    async def _finish_all(self) -> None:
        """Run the script for all calls of `finish` that wait; those that come meanwhile go together
        in the next run."""
        common = (
            layout.GROUP,
            layout.MAX_INBOX,
            to_ms(self._settings.dead_letter_ttl_s),
            self._redis.key("inbox", ""),
        )
        while batch := self._finishes[:CHUNK_ITEMS]:
            del self._finishes[:CHUNK_ITEMS]
            keys = [key for keys, _, _ in batch for key in keys]
            args = [arg for _, args, _ in batch for arg in args]
            try:
                replies = await self._redis.run(
                    scripts.FINISH, keys, *common, *self.memory.shortening, *args
                )
            except Exception as error:  # noqa: BLE001 - the calls that wait raise it; without a reply they never end
                replies = [error] * len(batch)
            for (_, _, outcome), reply in zip(batch, replies, strict=True):
                if (
                    isinstance(reply, int) and not outcome.done()
                ):  # it is where the caller was cancelled
                    outcome.set_result(reply == 1)
                elif not outcome.done():
                    outcome.set_exception(QueueFault(str(reply)))

    async def release(self, claim: Claim, *, put_off: bool = False) -> None:
        job = claim.job
        keys = [*self._redis.keys(layout.QUEUE, job.grader), self._redis.key("job", job.id)]
        bounds = (
            MAX_DELIVERIES,
            to_ms(self.lease_s),
            job.id,
            layout.JOB_TTL_MS,
            layout.N_JOB_FIELDS,
        )
        later = (PUT_OFF_TURNS if put_off else 0, layout.TRAINING_FROM)
        args: list[Argument] = [layout.GROUP, *claim.token.split(" ", 2), *bounds, *later]
        with suppress(NoGroup):  # the producers find that the job is lost and submit it again
            await self._redis.run(scripts.RELEASE, keys, *args)
        self._drop(claim)

    def _drop(self, claim: Claim) -> None:
        consumer = self._get_consumer(claim.job.grader, claim.token.split(" ", 2)[2])
        consumer.held_leases.pop(claim.token, None)
        if not consumer.held_leases:
            consumer.freed.set()
