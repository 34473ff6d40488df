"""The API's side of the queue: submit, wait, cancel.

Results come through one stream per process, its inbox, read from the last id seen, so that a result is read again
rather than lost when a connection breaks. The inbox is fast; the stored results are certain: every `SWEEP_S`, and
whenever the connection was lost, the producer looks up every job that it waits for, and submits again what Redis lost.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from gradus.errors import QueueFault
from services.broker import MAX_FAIR_SHARES, BrokerSettings, FairShare, Job, Priority, QueueFull, grader_of
from services.broker.streams.redis_client import LAST_PAUSE_S, RetryingRedis, Script, fields
from services.broker.streams.redis_keys import INBOX_TTL_S, JOB_TTL_S, MAX_TOKENS, N_JOB_FIELDS, TRAINING_FROM, Keys, ms
from services.broker.waiters import ResultWaiters, answers

CHUNK_JOBS = 256
CHUNK_CHARS = 4_000_000
"""Bounds of one script call: Redis serves no other client meanwhile."""
READ_RESULTS = 512
LISTEN_S = 5.0
"""Seconds of one blocking read. A Redis that vanished silently is noticed after these and `patience_s`."""
SWEEP_S = 30.0

ADMIT, SUBMIT, LOOK_UP = Script("admit"), Script("submit"), Script("look_up")
CANCEL, OPEN_INBOX = Script("cancel"), Script("open_inbox")


@dataclass(slots=True)
class _Pending:
    job: Job
    fair_share: FairShare
    wishes: int = 0
    """Submits of this process that have not been cancelled."""
    queued: bool = False
    """Redis has confirmed it: if it does not know the job later on, it has lost it."""
    since: float = field(default_factory=time.monotonic)


class StreamProducer:
    """Belongs to one event loop. Waits end with a QueueFault when Redis is unreachable for `wait_patience_s`."""

    def __init__(self, redis: RetryingRedis, keys: Keys, settings: BrokerSettings, *, wait_patience_s: float) -> None:
        self._redis = redis
        self._keys = keys
        self._settings = settings
        self._wait_patience_s = wait_patience_s
        self._name = uuid.uuid4().hex[:16]
        self._inbox = keys.inbox(self._name)
        self._last_id = "0-0"
        self._pending: dict[str, _Pending] = {}
        self._waiters = ResultWaiters()
        self._listener: asyncio.Task[None] | None = None
        self._opening = asyncio.Lock()

    async def close(self) -> None:
        if self._listener is not None:
            self._listener.cancel()
            await asyncio.wait([self._listener])
        self._waiters.fail("the broker was closed while a client waited")

    # --------------------------------------------------------------------------------------------------- submit

    async def submit(self, jobs: Sequence[Job], fair_share: FairShare) -> dict[str, str]:
        if not jobs:
            return {}
        grader = grader_of(jobs)
        wanted = {job.id: job for job in jobs}
        await self._open()
        for job in wanted.values():  # before Redis knows them: the result may come before the reply
            self._pending.setdefault(job.id, _Pending(job, fair_share)).wishes += 1
        try:
            answered = await self._queue_within_bound(grader, fair_share, list(wanted.values()))
        except (QueueFault, QueueFull, asyncio.CancelledError):
            self._withdraw(wanted)
            raise
        self._withdraw(answered)
        for pending in filter(None, map(self._pending.get, wanted)):
            pending.queued = True
        return answered

    def _withdraw(self, job_ids: Iterable[str]) -> list[str]:
        """Take one wish each back; returns the ids without wishes left in this process."""
        unwanted = []
        for job_id in dict.fromkeys(job_ids):
            pending = self._pending.get(job_id)
            if pending is None:
                continue
            pending.wishes -= 1
            if pending.wishes <= 0:
                del self._pending[job_id]
                unwanted.append(job_id)
        return unwanted

    async def _queue_within_bound(self, grader: str, fair_share: FairShare, jobs: list[Job]) -> dict[str, str]:
        """The cached results. One chunk is checked and queued in one step.

        Several are checked first and queued then, so that processes that submit large batches at the same moment can
        exceed the bound together. Nothing of a refused batch is queued.
        """
        chunks = list(_chunks(jobs))
        if len(chunks) == 1:
            return await self._queue(grader, fair_share, chunks[0], self._settings.max_depth)
        keys = [self._keys.queue(grader), self._keys.jobs(grader)]
        new, depth = await self._redis.run(ADMIT, keys, self._keys.prefix, *(job.id for job in jobs))
        if new and depth + new > self._settings.max_depth:
            raise QueueFull(grader, self._settings.retry_after_s)
        answered: dict[str, str] = {}
        for chunk in chunks:
            answered.update(await self._queue(grader, fair_share, chunk, None))
        return answered

    async def _queue(
        self, grader: str, fair_share: FairShare, jobs: Sequence[Job], bound: int | None
    ) -> dict[str, str]:
        """The cached results. `bound` None: queue whatever the depth. Raises QueueFull."""
        pairs = [text for job in jobs for text in (job.id, job.payload)]
        keys = [*self._keys.waiting(grader), self._inbox]
        limit = -1 if bound is None else bound
        first_time = 0 if fair_share.priority is Priority.EVALUATION else TRAINING_FROM
        args = (self._keys.prefix, limit, ms(JOB_TTL_S), grader, fair_share.run, first_time)
        bounds = (TRAINING_FROM, MAX_FAIR_SHARES, MAX_TOKENS)
        answered = await self._redis.run(SUBMIT, keys, *args, *bounds, *pairs)
        if answered == "full":
            raise QueueFull(grader, self._settings.retry_after_s)
        return dict(zip(answered[::2], answered[1::2], strict=True))

    # ----------------------------------------------------------------------------------------------------- wait

    async def wait(self, job_ids: Iterable[str], timeout_s: float) -> AsyncIterator[tuple[str, str]]:
        deadline = time.monotonic() + timeout_s
        ids = dict.fromkeys(job_ids)
        wanted = set(ids)
        await self._open()
        waiter = self._waiters.join(ids)
        try:
            await self._look_up([job_id for job_id in ids if job_id not in self._pending])
            async for answer in answers(waiter, wanted, deadline):
                yield answer
        finally:
            self._waiters.leave(waiter, wanted)

    async def _look_up(self, job_ids: Sequence[str]) -> list[str]:
        """Deliver stored results and have the others sent to this inbox; returns the ids that Redis does not know."""
        lost = []
        for chunk in chunked(job_ids):
            found = await self._redis.run(LOOK_UP, [self._inbox], self._keys.prefix, *chunk)
            for job_id, result in zip(chunk, found, strict=True):
                if isinstance(result, str):
                    self._deliver(job_id, result)
                elif not result:
                    lost.append(job_id)
        return lost

    def _deliver(self, job_id: str, result: str) -> None:
        self._pending.pop(job_id, None)
        self._waiters.deliver(job_id, result)

    # --------------------------------------------------------------------------------------------------- cancel

    async def cancel(self, grader: str, job_ids: Iterable[str]) -> None:
        unwanted = self._withdraw(job_ids)
        for chunk in chunked(unwanted):
            keys = [self._keys.queue(grader), self._inbox]
            await self._redis.run(CANCEL, keys, self._keys.prefix, N_JOB_FIELDS, *chunk)

    # --------------------------------------------------------------------------------------------------- listen

    async def _open(self) -> None:
        """Create the inbox before a job can name it."""
        if self._listener is not None and not self._listener.done():
            return
        async with self._opening:
            if self._listener is None or self._listener.done():
                await self._refresh()
                self._listener = asyncio.create_task(self._listen(), name="gradus-inbox")
                self._listener.add_done_callback(self._stopped)

    def _stopped(self, listener: asyncio.Task[None]) -> None:
        if not listener.cancelled() and (error := listener.exception()) is not None:
            self._waiters.fail(f"reading results from Redis failed: {type(error).__name__}: {error}")

    async def _listen(self) -> None:
        lost_at: float | None = None
        while True:
            try:
                await self._refresh()
                lost_at = None
                await self._read_for(SWEEP_S)
            except QueueFault as fault:
                lost_at = lost_at or time.monotonic()
                if time.monotonic() - lost_at > self._wait_patience_s:
                    self._waiters.fail(fault.message)
                await asyncio.sleep(LAST_PAUSE_S)

    async def _refresh(self) -> None:
        """Keep the inbox alive, recreate it if it is gone, and look up the jobs that are waited for."""
        if not await self._redis.call("PEXPIRE", self._inbox, ms(INBOX_TTL_S)):
            self._last_id = await self._redis.run(OPEN_INBOX, [self._inbox], ms(INBOX_TTL_S))
        too_old = time.monotonic() - JOB_TTL_S
        self._pending = {job_id: pending for job_id, pending in self._pending.items() if pending.since > too_old}
        queued = [job_id for job_id, pending in self._pending.items() if pending.queued]
        lost = await self._look_up([*queued, *self._waiters.jobs() - self._pending.keys()])
        for grader, fair_share, chunk in _by_fair_share(
            self._pending[job_id] for job_id in lost if job_id in self._pending
        ):
            await self._queue(grader, fair_share, chunk, None)

    async def _read_for(self, duration_s: float) -> None:
        until = time.monotonic() + duration_s
        n_read = 0
        while (left_s := until - time.monotonic()) > 0:
            block_s = min(left_s, LISTEN_S)
            command = ("XREAD", "COUNT", READ_RESULTS, "BLOCK", ms(block_s), "STREAMS", self._inbox, self._last_id)
            for _, entries in await self._redis.read(block_s, *command) or ():
                for self._last_id, told in entries:
                    if "result" in (answer := fields(told)):
                        self._deliver(answer["id"], answer["result"])
                n_read += len(entries)
            await asyncio.sleep(0)  # run the waiting coroutines first: the next read takes 0.1 ms
            if n_read >= READ_RESULTS:
                await self._redis.call("XTRIM", self._inbox, "MINID", "~", self._last_id)
                n_read = 0


def chunked(job_ids: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(job_ids), CHUNK_JOBS):
        yield job_ids[start : start + CHUNK_JOBS]


def _chunks(jobs: Iterable[Job]) -> Iterator[list[Job]]:
    chunk: list[Job] = []
    chars = 0
    for job in jobs:
        if chunk and (len(chunk) == CHUNK_JOBS or chars + len(job.payload) > CHUNK_CHARS):
            yield chunk
            chunk, chars = [], 0
        chunk.append(job)
        chars += len(job.payload)
    if chunk:
        yield chunk


def _by_fair_share(pending: Iterable[_Pending]) -> Iterator[tuple[str, FairShare, list[Job]]]:
    together: dict[tuple[str, FairShare], list[Job]] = {}
    for one in pending:
        together.setdefault((one.job.grader, one.fair_share), []).append(one.job)
    for (grader, fair_share), jobs in together.items():
        yield from ((grader, fair_share, chunk) for chunk in _chunks(jobs))
