"""A worker: self-test, heartbeat, claim, grade, finish. On SIGTERM it stops claiming and finishes or releases the rest.

One worker has one grader and a number of slots; each slot grades one submission at a time in a thread of its own. What
the grader raises becomes a fault here, after bounded retries; what it returns is a verdict.

When the last client of a job leaves, its boxes are killed. That never makes a verdict: the job is dropped, unless its
grade was complete already, which is then cached.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import count
from typing import Protocol

from pydantic import ValidationError

from gradus.contract import Faulted, Graded, Submission, faulted, job_id_of
from gradus.errors import Fault, FaultKind, GradusError, InternalFault, QueueFault
from services.broker import MAX_DELIVERIES, Broker, Claim
from services.broker.payload import JobPayload
from services.broker.worker_summary import remember_description
from services.graders.base import Grader
from services.sandbox.cancellation import CancelToken, cancellable
from services.sandbox.container_hardening import require_container_hardening
from services.tracing import Spans

log = logging.getLogger("gradus.worker")

MAX_ATTEMPTS = 3
"""Attempts on this worker before a retryable fault is reported."""
RETRY_PAUSE_S = 0.2
HEARTBEAT_TTL_S = 15.0
RENEW_S = 1.0
"""Longest interval of renewals, which report the jobs that are unwanted."""
CLAIM_WAIT_S = 2.0
"""Longest wait for a job, and so the time in which an idle worker stops."""
DRAIN_S = 30.0
"""Time in which running grades may finish after SIGTERM."""


class Observer(Protocol):
    """Callbacks for the fate of jobs. See `services.worker_metrics`."""

    def claimed(self, claims: Sequence[Claim]) -> None: ...

    def answered(self, result: Graded | Faulted, seconds: float, *, dead_letter: bool) -> None: ...

    def dropped(self) -> None:
        """The job was unwanted and had no verdict."""
        ...


def grade_with_retries(
    grader: Grader, submission: Submission, rubric: str, slot: int, token: CancelToken | None = None
) -> Graded | Faulted:
    """The verdict, or the fault after bounded retries. Never raises: one bad job must not take its neighbours along.

    Once `token` is cancelled, the boxes of the attempt are killed and it is not retried.
    """
    for attempt in count(1):
        with cancellable(token):
            result = _try(grader, submission, rubric, slot)
        if isinstance(result, Graded):
            return result
        if token and token.is_cancelled:
            return faulted(submission.id, result.kind, result.message, retryable=True)
        log.warning("submission %s, attempt %d: %s fault: %s", submission.id, attempt, result.kind, result.message)
        if not result.retryable or attempt == MAX_ATTEMPTS:
            return faulted(submission.id, result.kind, result.message, retryable=result.retryable)
        time.sleep(RETRY_PAUSE_S * attempt)
    raise AssertionError("unreachable")


def _try(grader: Grader, submission: Submission, rubric: str, slot: int) -> Graded | Fault:
    try:
        return grader.grade(submission, rubric, slot)
    except Fault as ours:
        return ours
    except GradusError as misuse:
        return InternalFault(str(misuse), retryable=False)
    except Exception as error:  # noqa: BLE001 - the one place where a job's surprise is kept from the worker
        log.exception("the grader broke on submission %s", submission.id)
        return InternalFault(f"the grader broke: {type(error).__name__}")


@dataclass(slots=True)
class _Work:
    claim: Claim
    slot: int
    task: asyncio.Task[None] | None = None
    payload: JobPayload | None = None
    """Once it was read."""
    cancel_token: CancelToken = field(default_factory=CancelToken)
    """Cancelled when the job is unwanted."""


class Worker:
    """One grader, its slots and their jobs. `self_tested`: `grader.self_test()` was called already."""

    def __init__(
        self,
        grader: Grader,
        broker: Broker,
        *,
        slots: int,
        name: str | None = None,
        self_tested: bool = False,
        observer: Observer | None = None,
        spans: Spans | None = None,
    ) -> None:
        self.grader = grader
        self.broker = broker
        self.slots = slots
        self.self_tested = self_tested
        self._observer = observer
        self._spans = spans
        self.name = name or f"{socket.gethostname()}-{os.getpid()}-{grader.info().name}"
        self._info = grader.info().model_copy(update={"slots": slots})
        self._description = grader.description()
        self._free = list(range(slots))
        self._active: dict[str, _Work] = {}
        self._pool = ThreadPoolExecutor(slots, thread_name_prefix=f"grade-{self._info.name}")
        self._slot_freed = asyncio.Event()

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop` is set, then drain. Raises Fault when container or grader do not hold."""
        require_container_hardening()
        if not self.self_tested:
            await asyncio.to_thread(self.grader.self_test)
        beats = [asyncio.create_task(self._sending_heartbeats()), asyncio.create_task(self._renewing())]
        log.info("grading %s with %d slots as %s", self._info.grader, self.slots, self.name)
        try:
            while not stop.is_set():
                await self._tolerating(self._claim_some)
            await self._drain()
        finally:
            for beat in beats:
                beat.cancel()
            await self._tolerating(lambda: self.broker.heartbeat(self.name, self._info, 0))
            self._pool.shutdown(wait=False, cancel_futures=True)

    # ------------------------------------------------------------------------------------------------------- claiming

    async def _claim_some(self) -> None:
        if not self._free:
            self._slot_freed.clear()
            await asyncio.wait([asyncio.create_task(self._slot_freed.wait())], timeout=CLAIM_WAIT_S)
            return
        claims = await self.broker.claim(self._info.name, self.name, len(self._free), CLAIM_WAIT_S)
        if self._observer:
            self._observer.claimed(claims)
        for claim in claims:
            work = _Work(claim, self._free.pop())
            self._active[claim.token] = work
            work.task = asyncio.create_task(self._do(work))

    async def _do(self, work: _Work) -> None:
        started_at = time.monotonic()
        try:
            result, dead_letter = await self._result_of(work)
            if work.cancel_token.is_cancelled and isinstance(result, Faulted):
                # releasing an unwanted job drops it, unless it was submitted again meanwhile
                await self._persistently(lambda: self.broker.release(work.claim))
                if self._observer:
                    self._observer.dropped()
            else:
                text, cache = result.model_dump_json(), isinstance(result, Graded) and self._is_own(work)
                await self._persistently(
                    lambda: self.broker.finish(work.claim, text, cache=cache, dead_letter=dead_letter)
                )
                if self._observer:
                    self._observer.answered(result, time.monotonic() - started_at, dead_letter=dead_letter)
                if self._spans:
                    self._spans.graded(work.claim, result, time.monotonic() - started_at)
        finally:
            self._active.pop(work.claim.token, None)
            work.cancel_token.close()
            self._free.append(work.slot)
            self._slot_freed.set()

    def _is_own(self, work: _Work) -> bool:
        """Whether the job's id, a hash of the grader's revision among others, is of this worker's revision.

        While workers of two revisions share a queue, a verdict of one must not be cached as the other's.
        """
        asked, reads_prompt = work.payload, self._description.reads_prompt
        return asked is not None and work.claim.job.id == job_id_of(
            self._info.grader, asked.rubric, asked.submission, reads_prompt=reads_prompt
        )

    async def _result_of(self, work: _Work) -> tuple[Graded | Faulted, bool]:
        """The result of a claim, and whether the job belongs among the dead letters."""
        try:
            payload = work.payload = JobPayload.decode(work.claim.job.payload)
        except ValidationError:
            message = "the job cannot be read: were API and worker installed from different versions?"
            return faulted(work.claim.job.id, FaultKind.INTERNAL, message, retryable=False), True
        submission = payload.submission
        if work.claim.deliveries > MAX_DELIVERIES:
            message = f"this submission was started {MAX_DELIVERIES} times and its worker died each time"
            return faulted(submission.id, FaultKind.WORKER, message, retryable=False), True
        if time.time() > payload.deadline:
            message = "nobody came to grade this before its deadline: add workers or slots, or allow more time"
            return faulted(submission.id, FaultKind.DEADLINE, message, retryable=True), False
        args = (self.grader, submission, payload.rubric, work.slot, work.cancel_token)
        return await asyncio.get_running_loop().run_in_executor(self._pool, grade_with_retries, *args), False

    # ------------------------------------------------------------------------------------------------- beats and ends

    async def _sending_heartbeats(self) -> None:
        while True:
            await self._tolerating(self._announce)
            await asyncio.sleep(HEARTBEAT_TTL_S / 3)

    async def _announce(self) -> None:
        await self.broker.heartbeat(self.name, self._info, HEARTBEAT_TTL_S)
        await remember_description(self.broker, self._info.grader, self._description, 2 * HEARTBEAT_TTL_S)

    async def _renewing(self) -> None:
        while True:
            await asyncio.sleep(min(self.broker.lease_s / 4, RENEW_S))
            if self._active:
                await self._tolerating(self._renew)

    async def _renew(self) -> None:
        for claim in await self.broker.renew([work.claim for work in self._active.values()]):
            if work := self._active.get(claim.token):  # not finished meanwhile
                work.cancel_token.cancel()

    async def _drain(self) -> None:
        """Let running grades end; release those that are not done in `DRAIN_S`, and kill their boxes."""
        tasks = [work.task for work in self._active.values() if work.task]
        if tasks:
            log.info("stopping: %d submissions are still being graded", len(tasks))
            await asyncio.wait(tasks, timeout=DRAIN_S)
        for work in list(self._active.values()):
            await self._tolerating(lambda work=work: self.broker.release(work.claim))  # type: ignore[misc]
            work.cancel_token.cancel()

    async def _tolerating(self, act: Callable[[], Awaitable[None]]) -> None:
        """Run `act`; a QueueFault is logged, followed by a pause."""
        try:
            await act()
        except QueueFault as fault:
            log.warning("the queue is away, trying again: %s", fault.message)
            await asyncio.sleep(1.0)

    async def _persistently(self, act: Callable[[], Awaitable[object]]) -> None:
        """Retry `act` for 30 s while the queue is unreachable; by then another worker has the job."""
        for _ in range(60):
            try:
                await act()
                return
            except QueueFault as fault:
                log.warning("a result waits for the queue: %s", fault.message)
                await asyncio.sleep(0.5)


def stop_on_signals(stop: asyncio.Event) -> None:
    """SIGTERM and SIGINT set `stop`; a second one ends the process the usual way."""
    loop = asyncio.get_running_loop()

    def told(number: signal.Signals) -> None:
        stop.set()
        loop.remove_signal_handler(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told, number)
