"""Fourth step of a request: its submissions become jobs of the queue, and results of jobs become
results of submissions.

Jobs are addressed by content: identical submissions, of one request or of many, are one job, and a
submission with a cached verdict is not queued again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from weakref import WeakSet

from pydantic import ValidationError

from gradus.contract import (
    RESULT,
    Faulted,
    Graded,
    build_faulted,
    replace_id,
)
from gradus.descriptions import GraderDescription
from gradus.errors import FaultKind, QueueFault
from services.api.grader_registry import GraderRegistry
from services.api.metrics import Metrics
from services.api.packed import PackedRequest, PackedSubmission
from services.api.parse import Reservation, run_outside_loop
from services.broker import Broker, FairShare, Job, QueueFull
from services.broker.jobs import JobTerms
from services.broker.signing import Secrets, verify_result
from services.event_loop import LoopTurns
from services.tracing import TRACEPARENT

Deliver = Callable[[Graded | Faulted], None]

# A larger batch reads cached verdicts before it sends its payloads; for fewer jobs that costs more
# than it saves.
MAX_JOBS_WITHOUT_LOOKUP = 16
# Seconds between checks that the grader of a waiting batch has a live worker, and how much longer
# they are for each of its jobs: a check costs as much as jobs wait.
LIVENESS_CHECK_S = 1.0
LIVENESS_CHECK_S_PER_JOB = 0.004
# Seconds after the deadline in which jobs are withdrawn, and as many again to find out why there is
# no verdict.
AFTER_DEADLINE_S = 1.0


@dataclass(slots=True, eq=False, weakref_slot=True)
class Batch:
    """The submissions of one request, their jobs, and their cached verdicts."""

    grader: str
    deadline_s: float
    fair_share: FairShare
    submission_ids: list[str]
    """In the order of the request."""
    reservation: Reservation
    """The request's bytes, which count as in flight as long as this batch exists."""
    began_at: float = field(default_factory=time.monotonic)
    submission_ids_by_job: dict[str, list[str]] = field(default_factory=dict)
    jobs: dict[str, Job] = field(default_factory=dict)
    """Jobs without a result yet, by id."""
    cached: dict[str, Graded] = field(default_factory=dict)
    """Verdicts that existed before the request, by job id."""
    renewed: set[str] = field(default_factory=set)
    """Jobs that were submitted again because another request's deadline had ended them."""
    unqueued: list[str] = field(default_factory=list)
    """Submissions that became no jobs, because their grader has no live worker."""
    is_withdrawn: bool = False

    def get_remaining_s(self) -> float:
        return max(self.began_at + self.deadline_s - time.monotonic(), 0.0)


def make_jobs(
    submissions: Iterable[PackedSubmission], terms: JobTerms, grader: GraderDescription
) -> tuple[dict[str, Job], dict[str, list[str]]]:
    """Return the jobs of submissions, and the ids of each job's submissions; both by job id."""
    jobs: dict[str, Job] = {}
    submission_ids: dict[str, list[str]] = {}
    for submission in submissions:
        job_id = submission.compute_job_id(
            terms.grader, terms.rubric, reads_prompt=grader.reads_prompt
        )
        submission_ids.setdefault(job_id, []).append(submission.id)
        if job_id not in jobs:
            payload = terms.encode_payload(submission.encode())
            jobs[job_id] = Job(job_id, grader.name, payload)
    return jobs, submission_ids


class GradingDispatcher:
    def __init__(
        self, broker: Broker, registry: GraderRegistry, metrics: Metrics, secrets: Secrets | None
    ) -> None:
        self._broker = broker
        self._registry = registry
        self._metrics = metrics
        self.secrets = secrets
        self.batches: WeakSet[Batch] = WeakSet()  # batches that may have jobs without a result
        self._withdrawing: set[asyncio.Task[None]] = set()
        # Time of the last result by grader, of `time.monotonic`.
        self.last_result_at: dict[str, float] = {}
        # Many large batches may end at one moment, or have all of their verdicts.
        self.turns = LoopTurns()

    async def start_batch(
        self,
        grader: GraderDescription,
        request: PackedRequest,
        fair_share: FairShare,
        reservation: Reservation,
    ) -> Batch:
        """Queue submissions without a cached verdict. Raises Misuse for the rubric, QueueFull and
        QueueFault; then nothing is queued.

        Without a live grader, after a grace period, nothing is queued either, and `settle` delivers
        faults.
        """
        ids = [submission.id for submission in request.submissions]
        batch = Batch(grader.name, request.deadline_s, fair_share, ids, reservation)
        if not ids:
            return batch
        info = await self._registry.find(grader.name, request.rubric, request.deadline_s)
        if info is None:
            batch.unqueued = ids
            return batch
        terms = JobTerms(
            rubric=request.rubric or info.rubrics[0],
            grader=info.grader,
            deadline=await self._broker.get_time() + batch.get_remaining_s(),
            traceparent=TRACEPARENT.get(),
        )
        batch.jobs, batch.submission_ids_by_job = await run_outside_loop(
            reservation, make_jobs, request.submissions, terms, grader
        )
        if len(batch.jobs) > MAX_JOBS_WITHOUT_LOOKUP:
            await self._take_cached(batch, await self._broker.results(list(batch.jobs)))
        self.batches.add(batch)
        texts = await self._broker.submit(list(batch.jobs.values()), fair_share)
        await self._take_cached(batch, texts)
        return batch

    async def _take_cached(self, batch: Batch, texts: dict[str, str]) -> None:
        """Move jobs with a stored verdict from `jobs` to `cached`. `texts`: results by job id."""
        async for part in self.turns.divide(list(texts.items())):
            for job_id, text in part:
                result = parse_result(text, job_id, self.secrets)
                # A stored fault is no verdict: submitting the job again may bring one.
                if isinstance(result, Graded):
                    batch.cached[job_id] = result.model_copy(update={"cached": True})
                    del batch.jobs[job_id]

    async def settle(self, batch: Batch, deliver: Deliver) -> None:
        """Call `deliver` with one result per submission, in order of completion; faults of the
        deadline come last.

        Retries while the broker does not answer. Raises QueueFault when it is closed: some
        submissions then have no result.
        """
        async for verdicts in self.turns.divide(list(batch.cached.items())):
            for job_id, verdict in verdicts:
                self._deliver_result(batch, job_id, verdict, deliver)
        is_absent = bool(batch.unqueued)
        while batch.jobs and batch.get_remaining_s() and not is_absent:
            try:
                async with asyncio.timeout(batch.get_remaining_s()):
                    await self._collect(batch, deliver)
                    is_absent = bool(batch.jobs) and await self._registry.is_absent(
                        batch.grader, self._registry.grace_s
                    )
            except TimeoutError:
                break
            except QueueFault as fault:
                if not fault.retryable:
                    raise
                await asyncio.sleep(min(LIVENESS_CHECK_S, batch.get_remaining_s()))
        if not batch.jobs and not batch.unqueued:
            return
        await self.cancel(batch)
        kind, message = await self._explain(batch)
        await self._fail(batch, kind, message, deliver)

    async def _collect(self, batch: Batch, deliver: Deliver) -> None:
        """Deliver results until the next check of liveness; return with the last one."""
        check_s = LIVENESS_CHECK_S + LIVENESS_CHECK_S_PER_JOB * len(batch.jobs)
        # `deliver` does not await, so this generator ends or is cancelled inside; it is never
        # abandoned.
        async for job_id, text in self._broker.wait(
            list(batch.jobs), min(check_s, batch.get_remaining_s())
        ):
            result = parse_result(text, job_id, self.secrets)
            is_late = isinstance(result, Faulted) and result.fault.kind is FaultKind.DEADLINE
            if is_late and job_id not in batch.renewed and batch.get_remaining_s():
                # A shared job ends with the deadline of the request that queued it; this one may
                # have more time.
                batch.renewed.add(job_id)
                with suppress(QueueFull):
                    await self._broker.submit([batch.jobs[job_id]], batch.fair_share)
                    continue
            del batch.jobs[job_id]
            self._deliver_result(batch, job_id, result, deliver)

    async def settle_or_fail(self, batch: Batch, deliver: Deliver) -> None:
        """Settle; when the broker is closed, deliver its fault for every submission without a
        result."""
        try:
            await self.settle(batch, deliver)
        except QueueFault as fault:
            await self._fail(batch, fault.kind, fault.message, deliver)

    async def cancel(self, batch: Batch) -> None:
        """Withdraw the jobs without a result. Returns within `AFTER_DEADLINE_S` seconds; a slower
        withdrawal continues in the background.

        A second call does nothing: the broker counts who waits for a job, and would count off
        another request that waits for the same one.
        """
        if batch.jobs and not batch.is_withdrawn:
            batch.is_withdrawn = True
            withdrawing = asyncio.create_task(self._withdraw(batch.grader, list(batch.jobs)))
            self._withdrawing.add(withdrawing)
            withdrawing.add_done_callback(self._withdrawing.discard)
            await asyncio.wait([withdrawing], timeout=AFTER_DEADLINE_S)

    async def _withdraw(self, grader: str, job_ids: list[str]) -> None:
        with suppress(QueueFault):
            await self._broker.cancel(grader, job_ids)

    async def _explain(self, batch: Batch) -> tuple[FaultKind, str]:
        """Return kind and message of the faults for missing verdicts, within `AFTER_DEADLINE_S`."""
        grader = batch.grader
        limit = f"{batch.deadline_s:g} s"
        try:
            async with asyncio.timeout(AFTER_DEADLINE_S):
                if await self._registry.is_absent(grader):
                    command = f"gradus worker {grader} --redis redis://..."
                    message = f"no {grader} grader is running: start one with `{command}`"
                    return FaultKind.QUEUE, message
                depth = await self._broker.depth(grader)
        except (TimeoutError, QueueFault):
            return FaultKind.QUEUE, f"the queue did not answer at the deadline, after {limit}"
        message = f"no verdict within {limit}; the queue holds {depth} jobs"
        return FaultKind.DEADLINE, f"{message}: allow more time or add workers"

    def _deliver_result(
        self, batch: Batch, job_id: str, result: Graded | Faulted, deliver: Deliver
    ) -> None:
        now = time.monotonic()
        self.last_result_at[batch.grader] = now
        for submission_id in batch.submission_ids_by_job[job_id]:
            self._metrics.record_result(batch.grader, result, now - batch.began_at)
            deliver(replace_id(result, submission_id))

    async def _fail(self, batch: Batch, kind: FaultKind, message: str, deliver: Deliver) -> None:
        """Deliver a fault for every submission without a result; afterwards none is left."""
        self.last_result_at[batch.grader] = time.monotonic()
        unfinished = list(batch.unqueued)
        for job_id in batch.jobs:
            unfinished += batch.submission_ids_by_job[job_id]
        async for submission_ids in self.turns.divide(unfinished):
            for submission_id in submission_ids:
                fault = build_faulted(
                    submission_id,
                    kind,
                    f"{batch.grader} submission {submission_id!r}: {message}",
                    retryable=True,
                )
                waited_s = time.monotonic() - batch.began_at
                self._metrics.record_result(batch.grader, fault, waited_s)
                deliver(fault)
        batch.unqueued = []
        batch.jobs = {}


def parse_result(text: str, job_id: str, secrets: Secrets | None) -> Graded | Faulted:
    """Return the result that a worker sent; a fault for a malformed text and for one that the job's
    grader did not sign."""
    try:
        return RESULT.validate_json(verify_result(text, job_id, secrets) or "", extra="ignore")
    except ValidationError:
        message = "the worker's answer is no result, or is not signed with its grader's secret"
        return build_faulted(job_id, FaultKind.INTERNAL, message, retryable=False)
