"""Asynchronous jobs: a request that is answered with an id now and with results later.

The broker keeps what an id stands for, so that any API process can answer for it. The process that took the request
watches it to its end; if that process dies, the others still find the verdicts and, past the deadline, answer faults
for the rest.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from collections.abc import Callable

from pydantic import BaseModel, ConfigDict

from gradus.contract import Faulted, Graded, GraderName, Result, faulted, with_id
from gradus.errors import FaultKind
from gradus.rest import JobState, JobStatus
from services.api.dispatch import Batch, GradingDispatcher, result_of
from services.api.problems import Refused
from services.broker import Broker

WATCH_SLACK_S = 10.0
"""Seconds after the deadline at which a process that watches without storing results counts as dead."""


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
    def __init__(self, broker: Broker, dispatcher: GradingDispatcher, ttl_s: float) -> None:
        self._broker = broker
        self._dispatcher = dispatcher
        self._ttl_s = ttl_s
        self._watchers: set[asyncio.Task[None]] = set()

    async def start(self, batch: Batch) -> str:
        """Wait for the results of `batch` in the background. Returns the id under which they are remembered."""
        job_of = {one: job_id for job_id, asking in batch.asking.items() for one in asking}
        items = tuple((one, job_of.get(one, "")) for one in batch.submission_ids)
        group = _Group(grader=batch.grader, deadline=time.time() + batch.remaining_s(), items=items)
        group_id = secrets.token_urlsafe(24)
        await self._remember(group_id, group)
        watcher = asyncio.create_task(self._watch(group_id, group, batch))
        self._watchers.add(watcher)
        watcher.add_done_callback(self._watchers.discard)
        return group_id

    async def _watch(self, group_id: str, group: _Group, batch: Batch) -> None:
        found: dict[str, Graded | Faulted] = {}
        await self._dispatcher.settle_or_fail(batch, lambda result: found.update({result.id: result}))
        results = tuple(found[submission_id] for submission_id, _ in group.items)
        await self._remember(group_id, group.model_copy(update={"results": results}))

    async def _remember(self, group_id: str, group: _Group) -> None:
        ttl_s = max(group.deadline - time.time(), 0) + self._ttl_s
        await self._broker.put_note(f"job:{group_id}", group.model_dump_json(), ttl_s)

    async def status(self, group_id: str, may_use: Callable[[str], bool]) -> JobStatus:
        """The state of a job. Raises Refused (404), also for a job of a grader that the caller may not use."""
        text = None
        if re.fullmatch(r"[A-Za-z0-9_-]{32}", group_id):
            text = await self._broker.get_note(f"job:{group_id}")
        group = _Group.model_validate_json(text) if text is not None else None
        if group is None or not may_use(group.grader):
            raise Refused(404, "there is no job with this id, or its time is over; submit it again")
        found: list[Graded | Faulted] = list(group.results or ())
        if not found:
            texts = await self._broker.results([job_id for _, job_id in group.items])
            unwatched = time.time() > group.deadline + WATCH_SLACK_S
            for one, job_id in group.items:
                if job_id in texts:
                    found.append(with_id(result_of(texts[job_id], job_id, self._dispatcher.secrets), one))
                elif unwatched:
                    message = f"submission {one!r}: no verdict before the deadline"
                    found.append(faulted(one, FaultKind.DEADLINE, message, retryable=True))
        state = JobState.DONE if len(found) == len(group.items) else JobState.RUNNING if found else JobState.QUEUED
        return JobStatus(
            id=group_id,
            status=state,
            done=len(found),
            total=len(group.items),
            results=tuple(found) if state is JobState.DONE else None,
        )

    async def close(self) -> None:
        """Stop watching. The jobs stay queued: other processes can answer for them."""
        for watcher in self._watchers:
            watcher.cancel()
        await asyncio.gather(*self._watchers, return_exceptions=True)
