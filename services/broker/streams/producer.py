"""The API's side of the queue: submit, wait, cancel.

Results come through one stream per process, its inbox, read from the last id seen, so that a result is read again
rather than lost when a connection breaks. The inbox is fast; the stored results are certain: every `SWEEP_S`, and
whenever the connection was lost, the producer looks up every job that it waits for, and submits again what Redis lost.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from gradus.errors import QueueFault
from services.broker import MAX_FAIR_SHARES, BrokerSettings
from services.broker.jobs import DEFAULT_FAIR_SHARE, FairShare, Job, Priority, QueueFull, grader_of
from services.broker.streams import layout
from services.broker.streams.redis_client import LAST_PAUSE_S, RetryingRedis, Script, fields, ms
from services.broker.waiters import ResultWaiters

CHUNK_ITEMS = 256
CHUNK_CHARS = 4_000_000
"""Bounds of one script call: Redis serves no other client meanwhile."""
READ_RESULTS = 512
LISTEN_S = 5.0
"""Seconds of one blocking read. A Redis that vanished silently is noticed after these and `patience_s`."""
SWEEP_S = 30.0

ADMIT, SUBMIT, LOOK_UP = Script("admit"), Script("submit"), Script("look_up")
CANCEL, OPEN_INBOX = Script("cancel"), Script("open_inbox")

Item = TypeVar("Item", str, Job)


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

    def __init__(self, redis: RetryingRedis, settings: BrokerSettings, *, wait_patience_s: float) -> None:
        self._redis = redis
        self._settings = settings
        self._wait_patience_s = wait_patience_s
        self._inbox = redis.key("inbox", uuid.uuid4().hex[:16])
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

    async def submit(self, jobs: Sequence[Job], fair_share: FairShare = DEFAULT_FAIR_SHARE) -> dict[str, str]:
        """See `Broker.submit`. Up to `CHUNK_ITEMS` jobs are checked and queued in one step.

        More are checked first and queued then, so that processes that submit large batches at the same moment can
        exceed the bound together. Nothing of a refused batch is queued.
        """
        if not jobs:
            return {}
        grader, bound = grader_of(jobs), self._settings.max_depth
        wanted = {job.id: job for job in jobs}
        chunks = list(_chunks(wanted.values(), lambda job: len(job.payload)))
        await self._open()
        for job in wanted.values():  # before Redis knows them: the result may come before the reply
            self._pending.setdefault(job.id, _Pending(job, fair_share)).wishes += 1
        answered: dict[str, str] = {}
        try:
            if len(chunks) > 1:
                keys = self._redis.keys(("queue", "jobs"), grader)
                new, depth = await self._redis.run(ADMIT, keys, self._redis.prefix, *wanted)
                if new and depth + new > bound:
                    raise QueueFull(grader, self._settings.retry_after_s)
                bound = -1
            for chunk in chunks:
                answered.update(await self._queue(chunk, fair_share, bound))
        except (QueueFault, QueueFull, asyncio.CancelledError):
            self._withdraw(wanted)
            raise
        self._withdraw(answered)
        for pending in filter(None, map(self._pending.get, wanted)):
            pending.queued = True
        return answered

    async def _queue(self, jobs: Sequence[Job], fair_share: FairShare, bound: int) -> dict[str, str]:
        """The cached results of one chunk. `bound` -1: queue whatever the depth. Raises QueueFull."""
        grader = jobs[0].grader
        first_time = 0 if fair_share.priority is Priority.EVALUATION else layout.TRAINING_FROM
        limits = (first_time, layout.TRAINING_FROM, MAX_FAIR_SHARES, layout.MAX_TOKENS)
        args = (self._redis.prefix, bound, layout.JOB_TTL_MS, grader, fair_share.run, *limits)
        pairs = [text for job in jobs for text in (job.id, job.payload)]
        answered = await self._redis.run(SUBMIT, [*self._redis.keys(layout.QUEUE, grader), self._inbox], *args, *pairs)
        if answered == "full":
            raise QueueFull(grader, self._settings.retry_after_s)
        return fields(answered)

    def _withdraw(self, job_ids: Iterable[str]) -> list[str]:
        """Take one wish each back; returns the ids without wishes left in this process."""
        unwanted = []
        for pending in filter(None, map(self._pending.get, dict.fromkeys(job_ids))):
            pending.wishes -= 1
            if pending.wishes <= 0:
                del self._pending[pending.job.id]
                unwanted.append(pending.job.id)
        return unwanted

    async def cancel(self, grader: str, job_ids: Iterable[str]) -> None:
        for chunk in _chunks(self._withdraw(job_ids), len):
            keys = [self._redis.key("queue", grader), self._inbox]
            await self._redis.run(CANCEL, keys, self._redis.prefix, layout.N_JOB_FIELDS, *chunk)

    async def results(self, job_ids: Sequence[str]) -> dict[str, str]:
        found: dict[str, str] = {}
        for chunk in _chunks(job_ids, len):
            keys = [self._redis.key(kind, job_id) for kind in ("uncached", "result") for job_id in chunk]
            texts = zip(2 * chunk, await self._redis.call("MGET", *keys), strict=True)
            found.update((job_id, text) for job_id, text in texts if text is not None)
        return found

    def wait(self, job_ids: Iterable[str], timeout_s: float) -> AsyncIterator[tuple[str, str]]:
        return self._waiters.wait(job_ids, timeout_s, self._deliver_stored)

    async def _deliver_stored(self, job_ids: list[str]) -> None:
        await self._open()
        await self._look_up([job_id for job_id in job_ids if job_id not in self._pending])

    async def _open(self) -> None:
        """Create the inbox before a job can name it."""
        async with self._opening:
            if self._listener is None or self._listener.done():
                await self._refresh()
                self._listener = asyncio.create_task(self._listen(), name="gradus-inbox")

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
            except Exception as error:  # noqa: BLE001 - no wait may outlive the listener; `_open` starts another
                self._waiters.fail(f"reading results from Redis failed: {type(error).__name__}: {error}")
                return

    async def _refresh(self) -> None:
        """Keep the inbox alive, recreate it if it is gone, and look up the jobs that are waited for."""
        if not await self._redis.call("PEXPIRE", self._inbox, layout.INBOX_TTL_MS):
            self._last_id = await self._redis.run(OPEN_INBOX, [self._inbox], layout.INBOX_TTL_MS)
        too_old = time.monotonic() - layout.JOB_TTL_MS / 1000
        self._pending = {job_id: pending for job_id, pending in self._pending.items() if pending.since > too_old}
        queued = [job_id for job_id, pending in self._pending.items() if pending.queued]
        lost: dict[tuple[str, FairShare], list[Job]] = {}
        for job_id in await self._look_up([*queued, *self._waiters.jobs() - self._pending.keys()]):
            if pending := self._pending.get(job_id):
                lost.setdefault((pending.job.grader, pending.fair_share), []).append(pending.job)
        for (_, fair_share), jobs in lost.items():
            for chunk in _chunks(jobs, lambda job: len(job.payload)):
                await self._queue(chunk, fair_share, -1)

    async def _look_up(self, job_ids: Sequence[str]) -> list[str]:
        """Deliver stored results and have the others sent to this inbox; returns the ids that Redis does not know."""
        lost = []
        for chunk in _chunks(job_ids, len):
            found = await self._redis.run(LOOK_UP, [self._inbox], self._redis.prefix, *chunk)
            for job_id, result in zip(chunk, found, strict=True):
                if isinstance(result, str):
                    self._deliver(job_id, result)
                elif not result:
                    lost.append(job_id)
        return lost

    async def _read_for(self, duration_s: float) -> None:
        until = time.monotonic() + duration_s
        n_read = 0
        while (left_s := until - time.monotonic()) > 0:
            block_s = min(left_s, LISTEN_S)
            command = ("XREAD", "COUNT", READ_RESULTS, "BLOCK", ms(block_s), "STREAMS", self._inbox, self._last_id)
            for _, entries in await self._redis.read(block_s, *command) or ():
                for self._last_id, entry in entries:
                    if "result" in (answer := fields(entry)):
                        self._deliver(answer["id"], answer["result"])
                n_read += len(entries)
            await asyncio.sleep(0)  # run the waiting coroutines first: the next read takes 0.1 ms
            if n_read >= READ_RESULTS:
                await self._redis.call("XTRIM", self._inbox, "MINID", "~", self._last_id)
                n_read = 0

    def _deliver(self, job_id: str, result: str) -> None:
        self._pending.pop(job_id, None)
        self._waiters.deliver(job_id, result)


def _chunks(items: Iterable[Item], chars: Callable[[Item], int]) -> Iterator[list[Item]]:
    """`items` in lists of at most `CHUNK_ITEMS` and, where there are several, `CHUNK_CHARS`."""
    chunk: list[Item] = []
    n_chars = 0
    for item in items:
        if chunk and (len(chunk) == CHUNK_ITEMS or n_chars + chars(item) > CHUNK_CHARS):
            yield chunk
            chunk, n_chars = [], 0
        chunk.append(item)
        n_chars += chars(item)
    if chunk:
        yield chunk
