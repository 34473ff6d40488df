"""Dispatches the submissions of a request: submissions become jobs, and results of jobs go to their submissions.

Work is known by its content: identical submissions, of one request or of many, are one job, and a verdict that is
cached already is not queued again.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from weakref import WeakSet

from pydantic import ValidationError

from gradus.contract import RESULT, Faulted, Graded, GradeRequest, faulted, job_id_of, with_id
from gradus.descriptions import GraderInfo
from gradus.errors import FaultKind, QueueFault
from services.api.grader_registry import GraderRegistry, Known
from services.api.metrics import Metrics, Waiting
from services.broker import DEFAULT_FAIR_SHARE, Broker, FairShare, Job, QueueFull
from services.broker.jobs import JobPayload
from services.tracing import TRACEPARENT

Deliver = Callable[[Graded | Faulted], None]

ASK_FIRST = 16
"""A batch of more jobs asks which have a verdict before it sends their texts; for fewer the question costs more."""
LOOK_S = 1.0
"""How often somebody who waits looks whether the grader is still alive."""


@dataclass(slots=True, eq=False, weakref_slot=True)
class Batch:
    """One request on its way."""

    grader: str
    deadline_s: float
    ends_at: float
    """Of `time.monotonic`."""
    began_at: float = field(default_factory=time.monotonic, kw_only=True)
    fair_share: FairShare = DEFAULT_FAIR_SHARE
    submission_ids: dict[str, list[str]] = field(default_factory=dict)
    """By job: who asked for it."""
    jobs: dict[str, Job] = field(default_factory=dict)
    """Those without a result yet, by id."""
    cached: dict[str, Graded] = field(default_factory=dict)
    """Verdicts that were there before the request, by job."""
    renewed: set[str] = field(default_factory=set)
    """Jobs that were submitted again because somebody else's deadline had ended them."""
    unqueued: list[str] = field(default_factory=list)
    """Submissions that became no jobs, because no grader was there to say its revision."""

    def remaining_s(self) -> float:
        return max(self.ends_at - time.monotonic(), 0.0)

    def results_for(self, job_id: str, result: Graded | Faulted) -> list[Graded | Faulted]:
        asking = self.submission_ids[job_id]
        return [result if result.id == one else with_id(result, one) for one in asking]  # copying is what costs here

    def faults(self, kind: FaultKind, message: str) -> list[Graded | Faulted]:
        """A fault for every submission that has no result; afterwards none is waiting."""
        waiting = self.unqueued + [one for job_id in self.jobs for one in self.submission_ids[job_id]]
        self.unqueued, self.jobs = [], {}
        return [faulted(one, kind, f"{self.grader} submission {one!r}: {message}", retryable=True) for one in waiting]


class GradingDispatcher:
    def __init__(self, broker: Broker, registry: GraderRegistry, metrics: Metrics) -> None:
        self._broker = broker
        self._registry = registry
        self._metrics = metrics
        self._open: WeakSet[Batch] = WeakSet()
        self._last_result_at: dict[str, float] = {}

    async def begin(self, grader: Known, request: GradeRequest, fair_share: FairShare = DEFAULT_FAIR_SHARE) -> Batch:
        """Queue what has no cached verdict. Raises Misuse for the rubric, QueueFull, QueueFault: then nothing is.

        Without a live grader, after a grace period, nothing is queued either and `settle` says so.
        """
        name = grader.description.name
        batch = Batch(name, request.deadline_s, time.monotonic() + request.deadline_s, fair_share)
        if not request.submissions:
            return batch
        info = await self._registry.find(name, request.rubric, request.deadline_s)
        if info is None:
            batch.unqueued = [one.id for one in request.submissions]
            return batch
        _make_jobs(batch, info, request, grader.description.reads_prompt)
        if len(batch.jobs) > ASK_FIRST:
            _take_cached(batch, await self._broker.results(list(batch.jobs)))
        self._open.add(batch)
        _take_cached(batch, await self._broker.submit(list(batch.jobs.values()), fair_share))
        return batch

    def waiting(self, grader: str) -> Waiting:
        """What this process waits for now."""
        now = time.monotonic()
        batches = [batch for batch in self._open if batch.grader == grader and batch.jobs]
        oldest = min((batch.began_at for batch in batches), default=now)
        # A burst is served in its turn: as long as results come, the one that waits longest is no sign of anything.
        stalled_since = max(oldest, self._last_result_at.get(grader, oldest))
        return Waiting(sum(len(batch.jobs) for batch in batches), now - oldest, now - stalled_since if batches else 0.0)

    async def settle(self, batch: Batch, deliver: Deliver) -> None:
        """`deliver` one result for every submission, in order of completion; the deadline's faults last.

        Raises QueueFault when the broker goes away: what was delivered stands, the rest is waiting still.
        """
        for job_id, verdict in batch.cached.items():
            self._give(batch, batch.results_for(job_id, verdict), deliver)
        lost = bool(batch.unqueued)
        while batch.jobs and batch.remaining_s() and not lost:
            await self._collect(batch, deliver)
            lost = bool(batch.jobs) and await self._registry.is_lost(batch.grader)
        if batch.jobs or batch.unqueued:
            await self._end(batch, deliver)

    def fail(self, batch: Batch, fault: QueueFault, deliver: Deliver) -> None:
        """`deliver` this fault for everything that is waiting."""
        self._give(batch, batch.faults(fault.kind, fault.message), deliver)

    @asynccontextmanager
    async def cancel_on_exit(self, batch: Batch) -> AsyncIterator[None]:
        """Whoever leaves the block while jobs are waiting gives them up."""
        try:
            yield
        finally:
            if batch.jobs:
                with suppress(QueueFault):
                    await self._broker.cancel(batch.grader, list(batch.jobs))

    async def _collect(self, batch: Batch, deliver: Deliver) -> None:
        # `deliver` does not await, on purpose: this generator is then run to its end or cancelled inside, never left.
        async for job_id, text in self._broker.wait(list(batch.jobs), min(LOOK_S, batch.remaining_s())):
            result = result_of(text, job_id)
            if _is_somebody_elses_deadline(batch, job_id, result) and await self._submit_again(batch, job_id):
                continue
            del batch.jobs[job_id]
            self._give(batch, batch.results_for(job_id, result), deliver)

    async def _submit_again(self, batch: Batch, job_id: str) -> bool:
        batch.renewed.add(job_id)
        try:
            await self._broker.submit([batch.jobs[job_id]], batch.fair_share)
        except QueueFull:
            return False
        return True

    async def _end(self, batch: Batch, deliver: Deliver) -> None:
        if batch.jobs:
            await self._broker.cancel(batch.grader, list(batch.jobs))
        if await self._registry.is_absent(batch.grader):
            kind = FaultKind.QUEUE
            command = f"gradus worker {batch.grader} --redis redis://..."
            message = f"no {batch.grader} grader is running: start one with `{command}`"
        else:
            kind = FaultKind.DEADLINE
            depth = await self._broker.depth(batch.grader)
            message = (
                f"no verdict within {batch.deadline_s:g} s; the queue holds {depth} jobs: "
                "allow more time or add workers"
            )
        self._give(batch, batch.faults(kind, message), deliver)

    def _give(self, batch: Batch, results: list[Graded | Faulted], deliver: Deliver) -> None:
        self._last_result_at[batch.grader] = time.monotonic()
        for result in results:
            self._metrics.result(batch.grader, result)
            deliver(result)


def _take_cached(batch: Batch, texts: dict[str, str]) -> None:
    for job_id, text in texts.items():
        # A fault that is still lying there is no verdict: submitting the job again asks for a better answer.
        if isinstance(result := result_of(text, job_id), Graded):
            batch.cached[job_id] = result.model_copy(update={"cached": True})
            del batch.jobs[job_id]


def _make_jobs(batch: Batch, info: GraderInfo, request: GradeRequest, reads_prompt: bool) -> None:
    rubric = request.rubric or info.rubrics[0]
    deadline = time.time() + request.deadline_s
    traceparent = TRACEPARENT.get()
    for submission in request.submissions:
        job_id = job_id_of(info.grader, rubric, submission, reads_prompt=reads_prompt)
        batch.submission_ids.setdefault(job_id, []).append(submission.id)
        if job_id not in batch.jobs:
            payload = JobPayload(submission=submission, rubric=rubric, deadline=deadline, traceparent=traceparent)
            batch.jobs[job_id] = Job(job_id, batch.grader, payload.encode())


def result_of(text: str, job_id: str) -> Graded | Faulted:
    """What a worker answered; an answer that is none is a fault too."""
    try:
        return RESULT.validate_json(text)
    except ValidationError:
        return faulted(job_id, FaultKind.INTERNAL, "the worker's answer is no result", retryable=False)


def _is_somebody_elses_deadline(batch: Batch, job_id: str, result: Graded | Faulted) -> bool:
    """A shared job ends with the deadline of whoever asked first; this request may have more time."""
    late = isinstance(result, Faulted) and result.fault.kind is FaultKind.DEADLINE
    return late and job_id not in batch.renewed and batch.remaining_s() > 0
