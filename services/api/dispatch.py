"""Dispatches the submissions of a request: submissions become jobs, and results of jobs go to their
submissions.

Work is known by its content: identical submissions, of one request or of many, are one job, and a
verdict that is cached already is not queued again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakSet

from pydantic import ValidationError

from gradus.contract import (
    RESULT,
    Faulted,
    Graded,
    GradeRequest,
    RawSubmission,
    build_faulted,
    compute_job_id,
    replace_id,
)
from gradus.descriptions import GraderDescription
from gradus.errors import FaultKind, QueueFault
from services.api.grader_registry import GraderRegistry
from services.api.metrics import Metrics
from services.api.problems import Refused
from services.api.request_body import Body, run_outside_loop
from services.broker import Broker, FairShare, Job, QueueFull
from services.broker.jobs import JobPayload
from services.broker.signing import Secrets, verify_result
from services.tracing import TRACEPARENT

Deliver = Callable[[Graded | Faulted], None]

ASK_FIRST = 16
"""A batch of more jobs asks which have a verdict before it sends their texts; for fewer the
question costs more."""
LOOK_S = 1.0
"""Seconds between looks whether the grader of a waiting batch is still alive."""
LAST_WORD_S = 1.0
"""Seconds after the deadline in which the broker must say why there is no verdict."""


@dataclass(slots=True, eq=False, weakref_slot=True)
class Batch:
    """The submissions of one request on their way."""

    grader: str
    deadline_s: float
    fair_share: FairShare
    submission_ids: list[str]
    """In the order of the request."""
    body: Body
    """Counts as in flight as long as this batch exists."""
    began_at: float = field(default_factory=time.monotonic)
    asking: dict[str, list[str]] = field(default_factory=dict)
    """Job id -> ids of its submissions."""
    jobs: dict[str, Job] = field(default_factory=dict)
    """Jobs without a result yet, by id."""
    cached: dict[str, Graded] = field(default_factory=dict)
    """Verdicts that were there before the request, by job id."""
    renewed: set[str] = field(default_factory=set)
    """Jobs that were submitted again because another request's deadline had ended them."""
    unqueued: list[str] = field(default_factory=list)
    """Submissions that became no jobs, because no live grader gave its revision."""

    def get_remaining_s(self) -> float:
        return max(self.began_at + self.deadline_s - time.monotonic(), 0.0)

    def add(
        self,
        submissions: Iterable[RawSubmission],
        revision: str,
        rubric: str,
        reads_prompt: bool,
        payload_fields: Mapping[str, Any],
    ) -> None:
        """Make the jobs. `payload_fields`: the other fields of their payloads. Raises Refused (422)
        for numbers out of range."""
        for submission in submissions:
            try:
                job_id = compute_job_id(revision, rubric, submission, reads_prompt=reads_prompt)
            except ValueError:
                raise Refused(
                    422, f"submission {submission.id!r}: a number is out of range"
                ) from None
            self.asking.setdefault(job_id, []).append(submission.id)
            if job_id not in self.jobs:
                payload = JobPayload(
                    submission=submission, rubric=rubric, grader=revision, **payload_fields
                )
                self.jobs[job_id] = Job(job_id, self.grader, payload.model_dump_json())

    def take_cached(self, texts: dict[str, str], secrets: Secrets | None) -> None:
        for job_id, text in texts.items():
            # A stored fault is no verdict: submitting the job again asks for a better result.
            if isinstance(result := parse_result(text, job_id, secrets), Graded):
                self.cached[job_id] = result.model_copy(update={"cached": True})
                del self.jobs[job_id]


class GradingDispatcher:
    def __init__(
        self, broker: Broker, registry: GraderRegistry, metrics: Metrics, secrets: Secrets | None
    ) -> None:
        self._broker = broker
        self._registry = registry
        self._metrics = metrics
        self.secrets = secrets
        self.batches: WeakSet[Batch] = WeakSet()
        """Batches that may have jobs without a result."""
        self._withdrawing: set[asyncio.Task[None]] = set()
        self.last_result_at: dict[str, float] = {}
        """Time of the last result by grader, of `time.monotonic`."""

    async def start_batch(
        self, grader: GraderDescription, request: GradeRequest, fair_share: FairShare, body: Body
    ) -> Batch:
        """Queue what has no cached verdict. Raises Misuse for the rubric, QueueFull, QueueFault:
        then nothing is.

        Without a live grader, after a grace period, nothing is queued either and `settle` gives
        faults.
        """
        name = grader.name
        ids = [submission.id for submission in request.submissions]
        batch = Batch(name, request.deadline_s, fair_share, ids, body)
        info = await self._registry.find(name, request.rubric, request.deadline_s) if ids else None
        if info is None:
            batch.unqueued = ids
            return batch
        rubric = request.rubric or info.rubrics[0]
        payload_fields = {
            "deadline": await self._broker.get_time() + batch.get_remaining_s(),
            "traceparent": TRACEPARENT.get(),
        }
        await run_outside_loop(
            body.n_bytes,
            batch.add,
            request.submissions,
            info.grader,
            rubric,
            grader.reads_prompt,
            payload_fields,
        )
        if len(batch.jobs) > ASK_FIRST:
            batch.take_cached(await self._broker.results(list(batch.jobs)), self.secrets)
        self.batches.add(batch)
        batch.take_cached(
            await self._broker.submit(list(batch.jobs.values()), fair_share), self.secrets
        )
        return batch

    async def settle(self, batch: Batch, deliver: Deliver) -> None:
        """`deliver` one result for every submission, in order of completion; the deadline's faults
        last.

        While the broker is away, it is waited for. Raises QueueFault when it is closed: what was
        delivered stands, the rest is waiting still.
        """
        for job_id, verdict in batch.cached.items():
            self._deliver_result(batch, job_id, verdict, deliver)
        lost = bool(batch.unqueued)
        while batch.jobs and batch.get_remaining_s() and not lost:
            try:
                async with asyncio.timeout(batch.get_remaining_s()):
                    await self._collect(batch, deliver)
                    lost = bool(batch.jobs) and await self._registry.is_absent(
                        batch.grader, self._registry.grace_s
                    )
            except TimeoutError:
                break
            except QueueFault as fault:
                if not fault.retryable:
                    raise
                await asyncio.sleep(min(LOOK_S, batch.get_remaining_s()))
        if not batch.jobs and not batch.unqueued:
            return
        await self.cancel(batch)
        kind, message = await self._explain(batch)
        await self._fail(batch, kind, message, deliver)

    async def _collect(self, batch: Batch, deliver: Deliver) -> None:
        """`deliver` the results of the next `LOOK_S` seconds; ends with the last one."""
        # `deliver` does not await: this generator is run to its end or cancelled inside, never
        # left.
        async for job_id, text in self._broker.wait(
            list(batch.jobs), min(LOOK_S, batch.get_remaining_s())
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
        """`settle`; when the broker goes away, `deliver` its fault for every submission that
        waits."""
        try:
            await self.settle(batch, deliver)
        except QueueFault as fault:
            await self._fail(batch, fault.kind, fault.message, deliver)

    async def cancel(self, batch: Batch) -> None:
        """Withdraw the jobs without a result; returns after `LAST_WORD_S` at the latest, and the
        withdrawal ends in its own time."""
        if batch.jobs:
            withdrawing = asyncio.create_task(self._withdraw(batch.grader, list(batch.jobs)))
            self._withdrawing.add(withdrawing)
            withdrawing.add_done_callback(self._withdrawing.discard)
            await asyncio.wait([withdrawing], timeout=LAST_WORD_S)

    async def _withdraw(self, grader: str, job_ids: list[str]) -> None:
        with suppress(QueueFault):
            await self._broker.cancel(grader, job_ids)

    async def _explain(self, batch: Batch) -> tuple[FaultKind, str]:
        """Return kind and message of the faults of a batch without verdicts, within
        `LAST_WORD_S`."""
        grader = batch.grader
        limit = f"{batch.deadline_s:g} s"
        try:
            async with asyncio.timeout(LAST_WORD_S):
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
        for submission_id in batch.asking[job_id]:
            self._metrics.record_result(batch.grader, result, now - batch.began_at)
            deliver(
                result if result.id == submission_id else replace_id(result, submission_id)
            )  # copying is what costs here

    async def _fail(self, batch: Batch, kind: FaultKind, message: str, deliver: Deliver) -> None:
        """`deliver` a fault for every submission without a result; afterwards none waits."""
        self.last_result_at[batch.grader] = time.monotonic()
        for n, submission_id in enumerate(
            batch.unqueued
            + [submission_id for job_id in batch.jobs for submission_id in batch.asking[job_id]],
            1,
        ):
            if n % 256 == 0:
                await asyncio.sleep(0)  # many large batches may end at one moment
            fault = build_faulted(
                submission_id,
                kind,
                f"{batch.grader} submission {submission_id!r}: {message}",
                retryable=True,
            )
            self._metrics.record_result(batch.grader, fault, time.monotonic() - batch.began_at)
            deliver(fault)
        batch.unqueued = []
        batch.jobs = {}


def parse_result(text: str, job_id: str, secrets: Secrets | None) -> Graded | Faulted:
    """Return the result that a worker sent, or a fault for a malformed text and for one that the
    job's grader did not sign."""
    try:
        return RESULT.validate_json(verify_result(text, job_id, secrets) or "", extra="ignore")
    except ValidationError:
        message = "the worker's answer is no result, or is not signed with its grader's secret"
        return build_faulted(job_id, FaultKind.INTERNAL, message, retryable=False)
