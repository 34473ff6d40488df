"""A worker: self-test, heartbeat, claim, grade, finish. On SIGTERM it stops claiming and finishes
or releases the rest.

One worker has one grader and a number of slots; each slot grades one submission at a time in a
thread of its own. What the grader raises becomes a fault here, after bounded retries; what it
returns is a verdict.

When the last client of a job leaves, its boxes are killed and the job is dropped. A complete grade
is still cached.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from pydantic import ValidationError

from gradus.contract import Faulted, Graded, Submission, build_faulted
from gradus.errors import Fault, FaultKind, GradusError, InternalFault, QueueFault
from services.broker import MAX_DELIVERIES, RENEW_S, Broker, Claim
from services.broker.jobs import parse_payload
from services.broker.signing import sign_result
from services.broker.workers import LEAVE_S, Registration
from services.graders.base import Grader, set_memory_aside
from services.sandbox.cancellation import CancelToken, NeedsTime, enter_attempt
from services.sandbox.container_hardening import require_container_hardening
from services.tracing import Spans

if TYPE_CHECKING:
    from services.worker_metrics import WorkerMetrics

log = logging.getLogger("gradus.worker")

MAX_ATTEMPTS = 3
"""Attempts on this worker before a retryable fault is reported."""
RETRY_PAUSE_S = 0.2
CLAIM_WAIT_S = 2.0
"""Longest wait for a job, and so the time in which an idle worker stops."""
FINISH_ATTEMPTS = 60
"""Attempts to deliver a result, one in half a second: by then another worker has the job."""
LARGE_BYTES = 8192
"""A job with a longer payload is large."""
SMALL_PART = 4
"""A worker whose slots share a model keeps a quarter of them for jobs that are not large: small
ones get the model first, but only from a slot."""
SMALL_LOOK_S = 0.1
"""Seconds between looks for small jobs while as many large ones run as may."""
DRAIN_S = 30.0
"""Time in which running grades may finish after SIGTERM."""


def grade_with_retries(
    grader: Grader,
    submission: Submission,
    rubric: str,
    slot: int,
    token: CancelToken | None = None,
    *,
    brief: bool,
) -> Graded | Faulted | None:
    """Return the verdict, or the fault after bounded retries. Never raises: one bad job must not
    take its neighbours along.

    None: a `brief` attempt came to no end. Once `token` is cancelled, boxes are killed and nothing
    is retried.
    """
    for attempt in range(1, MAX_ATTEMPTS + 1):
        try:
            with enter_attempt(token, brief=brief, cautious=attempt > 1):
                return grader.grade(submission, rubric, slot)
        except NeedsTime:
            return None
        except Fault as raised:
            fault = raised
        except GradusError as misuse:
            fault = InternalFault(str(misuse), retryable=False)
        except Exception as error:  # noqa: BLE001 - the one place that keeps an unexpected error from the worker
            log.exception("the grader failed on submission %s", submission.id)
            fault = InternalFault(f"the grader broke: {type(error).__name__}")
        if token and token.is_cancelled:
            return build_faulted(submission.id, fault.kind, fault.message, retryable=True)
        level = logging.WARNING if fault.retryable else logging.INFO
        log.log(
            level,
            "submission %s, attempt %d: %s fault: %s",
            submission.id,
            attempt,
            fault.kind,
            fault.message,
        )
        if not fault.retryable or attempt == MAX_ATTEMPTS:
            break
        time.sleep(RETRY_PAUSE_S * attempt)
    return build_faulted(submission.id, fault.kind, fault.message, retryable=fault.retryable)


@dataclass(slots=True)
class _RunningJob:
    """A claimed job in its slot."""

    claim: Claim
    slot: int
    task: asyncio.Task[None] | None = None
    cancel_token: CancelToken = field(default_factory=CancelToken)
    """Cancelled when the job is unwanted."""

    @property
    def is_large(self) -> bool:
        return len(self.claim.job.payload.encode()) > LARGE_BYTES


class Worker:
    """One grader, its slots and their jobs. `self_tested`: memory was set aside and `self_test()`
    called already; `secret` signs results. Raises SandboxFault if the slots' boxes can never
    fit."""

    def __init__(
        self,
        grader: Grader,
        broker: Broker,
        *,
        slots: int,
        name: str | None = None,
        self_tested: bool = False,
        metrics: WorkerMetrics | None = None,
        spans: Spans | None = None,
        secret: bytes | None = None,
    ) -> None:
        self.grader = grader
        self.broker = broker
        self.slots = slots
        self.self_tested = self_tested
        self._metrics = metrics
        self._spans = spans
        self._secret = secret
        if not self_tested:
            set_memory_aside(grader, slots)
        self._info = grader.info().model_copy(update={"slots": slots})
        self._description = grader.description()
        self.name = name or f"{socket.gethostname()}-{os.getpid()}-{self._info.name}"
        self._free = list(range(slots))
        self._large_slots = slots - (slots // SMALL_PART if grader.waiting_slots else 0)
        self._n_large = 0
        """Large jobs in slots."""
        self._running_jobs: dict[str, _RunningJob] = {}
        """By token of the claim."""
        self._pool = ThreadPoolExecutor(slots, thread_name_prefix=f"grade-{self._info.name}")
        self._slot_freed = asyncio.Event()

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop` is set, then drain. Raises Fault when container or grader do not
        hold, and an ExceptionGroup when a loop or a job of the worker fails unexpectedly: then all
        of them end."""
        require_container_hardening()
        if not self.self_tested:
            await asyncio.to_thread(self.grader.self_test)
        log.info("grading %s with %d slots as %s", self._info.grader, self.slots, self.name)
        registration = Registration(self.broker, self.name, self._info, self._description)
        if self._metrics:
            self._metrics.health.registration = registration
        failure = None
        try:
            await self._run_loops(registration, stop)
        except ExceptionGroup as errors:
            failure = errors.exceptions[0]
            raise
        finally:
            self._pool.shutdown(wait=False, cancel_futures=True)
            await registration.end(failure)

    async def _run_loops(self, registration: Registration, stop: asyncio.Event) -> None:
        async with asyncio.TaskGroup() as loops:
            background = [
                loops.create_task(registration.keep_alive()),
                loops.create_task(self._renew_leases()),
            ]
            while not stop.is_set():
                await _retry(partial(self._claim_jobs, loops))
            await self._drain()
            for loop in background:
                loop.cancel()

    async def _claim_jobs(self, loops: asyncio.TaskGroup) -> None:
        # results that are not delivered yet are bounded, too
        limit = min(len(self._free), 2 * self.slots - len(self._running_jobs))
        if limit < 1:
            await self._wait_for_slot(CLAIM_WAIT_S)
            return
        names = (self._info.name, self.name)
        room = self._large_slots - self._n_large
        if room > 0:
            claims = await self.broker.claim(*names, min(limit, room), CLAIM_WAIT_S)
        else:
            claims = await self.broker.claim(*names, limit, 0, LARGE_BYTES)
            if not claims:
                await self._wait_for_slot(SMALL_LOOK_S)
        if self._metrics:
            self._metrics.record_claims(claims)
        for claim in claims:
            job = _RunningJob(claim, self._free.pop())
            self._running_jobs[claim.token] = job
            self._n_large += job.is_large
            job.task = loops.create_task(self._run_job(job))

    async def _wait_for_slot(self, timeout_s: float) -> None:
        self._slot_freed.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._slot_freed.wait()

    async def _run_job(self, job: _RunningJob) -> None:
        """Grade a claimed job and deliver its result; when the worker ends first, return the
        job."""
        try:
            await self._finish_job(job)
        except asyncio.CancelledError:
            job.cancel_token.cancel()
            with suppress(QueueFault, TimeoutError):
                async with asyncio.timeout(LEAVE_S):
                    await self.broker.release(job.claim)
            raise
        finally:
            del self._running_jobs[job.claim.token]
            job.cancel_token.close()
            self._slot_freed.set()

    async def _finish_job(self, job: _RunningJob) -> None:
        claim = job.claim
        started_at = time.monotonic()
        try:
            result, cache, dead_letter = await self._grade_job(job)
        finally:
            # now, so that the next job is claimed while the result is delivered
            self._free.append(job.slot)
            self._n_large -= job.is_large
            self._slot_freed.set()
        if result is None or (job.cancel_token.is_cancelled and isinstance(result, Faulted)):
            # releasing an unwanted job drops it, unless it was submitted again meanwhile
            await _retry(
                lambda: self.broker.release(claim, put_off=result is None), FINISH_ATTEMPTS
            )
            if self._metrics and result is not None:
                self._metrics.record_dropped_job()
            return
        text = result.model_dump_json()
        if self._secret:
            text = sign_result(text, claim.job.id, self._secret)
        await _retry(
            lambda: self.broker.finish(claim, text, cache=cache, dead_letter=dead_letter),
            FINISH_ATTEMPTS,
        )
        seconds = time.monotonic() - started_at
        if self._metrics:
            self._metrics.record_result(result, seconds, dead_letter=dead_letter)
        if self._spans:
            self._spans.record_grade(claim, result, seconds)

    async def _grade_job(self, running: _RunningJob) -> tuple[Graded | Faulted | None, bool, bool]:
        """Return the result (None: put it off), whether to cache it, and whether the job belongs
        among the dead letters."""
        claim = running.claim
        job = claim.job
        try:
            payload = parse_payload(job.payload)
        except ValidationError:
            message = (
                "the job cannot be read: were API and worker installed from different versions?"
            )
            return build_faulted(job.id, FaultKind.INTERNAL, message, retryable=False), False, True
        submission = payload.submission
        if claim.deliveries > MAX_DELIVERIES:
            message = (
                f"this submission was started {MAX_DELIVERIES} times and its worker died each time"
            )
            return (
                build_faulted(submission.id, FaultKind.WORKER, message, retryable=False),
                False,
                True,
            )
        if claim.claimed_at > payload.deadline:
            message = (
                "no worker graded this before its deadline: add workers or slots, or allow more"
                " time"
            )
            return (
                build_faulted(submission.id, FaultKind.DEADLINE, message, retryable=True),
                False,
                False,
            )
        args = (self.grader, submission, payload.rubric, running.slot, running.cancel_token)
        grade = partial(
            grade_with_retries, *args, brief=claim.deliveries == 1
        )  # later starts have all their time
        result = await asyncio.get_running_loop().run_in_executor(self._pool, grade)
        # While workers of two revisions share a queue, a verdict of one must not be cached as the
        # other's.
        cache = isinstance(result, Graded) and payload.grader == self._info.grader
        return result, cache, False

    async def _renew_leases(self) -> None:
        while True:
            claims = [job.claim for job in self._running_jobs.values()]
            # The next renewal is soon, and the broker logs that the queue is away.
            with suppress(QueueFault):
                for claim in await self.broker.renew(claims):
                    job = self._running_jobs.get(claim.token)
                    if job is not None:  # not finished meanwhile
                        job.cancel_token.cancel()
            if self._metrics:
                self._metrics.health.record_renewal()
            await asyncio.sleep(min(self.broker.lease_s / 4, RENEW_S))

    async def _drain(self) -> None:
        """Let running grades end; release those that are not done in `DRAIN_S`, and kill their
        boxes."""
        tasks = [job.task for job in self._running_jobs.values() if job.task]
        if tasks:
            log.info("stopping: %d submissions are still being graded", len(tasks))
            await asyncio.wait(tasks, timeout=DRAIN_S)
        for task in tasks:
            task.cancel()


async def _retry(act: Callable[[], Awaitable[object]], attempts: int = 1) -> None:
    """Run `act` until it succeeds; each QueueFault is logged and followed by a pause, the last one
    too."""
    for _ in range(attempts):
        try:
            await act()
            return
        except QueueFault as fault:
            log.warning("the queue cannot be reached, trying again: %s", fault.message)
            await asyncio.sleep(0.5)
