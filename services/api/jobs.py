"""Asynchronous jobs: a request that is answered with an id now and with results later. Grades by way of `grading`.

What stands under an id is remembered by the broker, so that any API process can answer for it. The process that took
the request watches it to its end; if that process dies, the others still find the verdicts and, past the deadline,
answer faults for the rest.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from collections.abc import Callable
from typing import ClassVar

from pydantic import BaseModel, ConfigDict

from gradus.contract import Faulted, Graded, GradeRequest, GraderName, Result, faulted, with_id
from gradus.errors import FaultKind, Misuse, QueueFault
from gradus.rest import JobState, JobStatus
from services.api.dispatch import Batch, GradingDispatcher, result_of
from services.api.grader_registry import Known
from services.broker import DEFAULT_FAIR_SHARE, Broker, FairShare

WATCH_SLACK_S = 10.0
"""This long after the deadline the watching process must have said how it ended; else it has died."""


class UnknownJob(Misuse):
    """No job has that id, or its time is over."""

    status: ClassVar[int] = 404


class _Group(BaseModel):
    """What one id stands for."""

    model_config = ConfigDict(frozen=True)

    grader: GraderName
    deadline: float
    """Unix seconds."""
    items: tuple[tuple[str, str], ...]
    """(submission id, job id), in the order of the request."""
    results: tuple[Result, ...] | None = None
    """Set once, when every submission has its result."""


class Jobs:
    def __init__(self, broker: Broker, grading: GradingDispatcher, ttl_s: float) -> None:
        self._broker = broker
        self._grading = grading
        self._ttl_s = ttl_s
        self._watchers: set[asyncio.Task[None]] = set()

    async def start(self, grader: Known, request: GradeRequest, fair_share: FairShare = DEFAULT_FAIR_SHARE) -> str:
        """Queue the request and return the id to ask for. Raises what `Grading.begin` raises."""
        batch = await self._grading.begin(grader, request, fair_share)
        job_of = {one: job_id for job_id, asked in batch.submission_ids.items() for one in asked}
        items = tuple((one.id, job_of.get(one.id, "")) for one in request.submissions)
        group = _Group(grader=batch.grader, deadline=time.time() + batch.remaining_s(), items=items)
        group_id = secrets.token_urlsafe(24)
        await self._remember(group_id, group)
        watcher = asyncio.create_task(self._watch(group_id, group, batch))
        self._watchers.add(watcher)
        watcher.add_done_callback(self._watchers.discard)
        return group_id

    async def _watch(self, group_id: str, group: _Group, batch: Batch) -> None:
        found: dict[str, Graded | Faulted] = {}

        def keep(result: Graded | Faulted) -> None:
            found[result.id] = result

        try:
            await self._grading.settle(batch, keep)
        except QueueFault as fault:
            self._grading.fail(batch, fault, keep)
        results = tuple(found[submission_id] for submission_id, _ in group.items)
        await self._remember(group_id, group.model_copy(update={"results": results}))

    async def _remember(self, group_id: str, group: _Group) -> None:
        ttl_s = max(group.deadline - time.time(), 0) + self._ttl_s
        await self._broker.put_note(f"job:{group_id}", group.model_dump_json(), ttl_s)

    async def status(self, group_id: str, may_use: Callable[[str], bool]) -> JobStatus:
        """Raises UnknownJob, also for a job of a grader that the caller may not use."""
        text = None
        if re.fullmatch(r"[A-Za-z0-9_-]{32}", group_id):
            text = await self._broker.get_note(f"job:{group_id}")
        group = _Group.model_validate_json(text) if text is not None else None
        if group is None or not may_use(group.grader):
            raise UnknownJob("there is no job with this id, or its time is over; submit it again")
        results = group.results or await self._found(group)
        state = JobState.DONE if len(results) == len(group.items) else JobState.RUNNING if results else JobState.QUEUED
        return JobStatus(
            id=group_id,
            status=state,
            done=len(results),
            total=len(group.items),
            results=results if state is JobState.DONE else None,
        )

    async def _found(self, group: _Group) -> tuple[Graded | Faulted, ...]:
        """The results that are there by now, in order; all, once the deadline passed and nobody watches any more."""
        texts = await self._broker.results([job_id for _, job_id in group.items])
        known = {job_id: result_of(text, job_id) for job_id, text in texts.items()}
        found = [with_id(known[job_id], one) if job_id in known else None for one, job_id in group.items]
        if time.time() > group.deadline + WATCH_SLACK_S:
            return tuple(result or _unwatched(one) for result, (one, _) in zip(found, group.items, strict=True))
        return tuple(result for result in found if result is not None)

    async def close(self) -> None:
        """Stop watching. The jobs stay queued: other processes can answer for them."""
        for watcher in self._watchers:
            watcher.cancel()
        await asyncio.gather(*self._watchers, return_exceptions=True)


def _unwatched(submission_id: str) -> Faulted:
    message = f"submission {submission_id!r}: no verdict before the deadline"
    return faulted(submission_id, FaultKind.DEADLINE, message, retryable=True)
