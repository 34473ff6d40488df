"""Asynchronous jobs: a request that is answered with an id now and with results later.

The broker keeps what an id stands for, so that any API process can answer for it. The process that
took the request watches it to its end; if that process dies, the others still find the verdicts
and, past the deadline, answer faults for the rest. The results of a request are stored once, by its
watcher or by the process that cancels it.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from collections.abc import Callable

from pydantic import BaseModel, ConfigDict

from gradus.contract import Faulted, Graded, GraderName, faulted, with_id
from gradus.errors import FaultKind, QueueFault
from gradus.rest import GradeResponse, JobState, JobStatus
from services.api.dispatch import LOOK_S, Batch, GradingDispatcher, result_of
from services.api.problems import Refused
from services.broker import Broker

TTL_S = 3600.0
"""Seconds after its deadline for which a job can be asked about."""
WATCH_SLACK_S = 10.0
"""Seconds after the deadline at which a process that watches without storing results counts as
dead."""


class _Group(BaseModel):
    """What one id stands for."""

    model_config = ConfigDict(frozen=True)

    grader: GraderName
    deadline: float
    """Unix seconds."""
    items: tuple[tuple[str, str], ...]
    """(submission id, job id), in the order of the request."""

    def keep_s(self) -> float:
        """Return the seconds for which what is known of it is kept."""
        return max(self.deadline - time.time(), 0) + TTL_S


class Jobs:
    def __init__(self, broker: Broker, dispatcher: GradingDispatcher) -> None:
        self._broker = broker
        self._dispatcher = dispatcher
        self._watchers: dict[str, asyncio.Task[None]] = {}
        """By id."""
        self._looking: asyncio.Task[None] | None = None

    async def start(self, batch: Batch) -> str:
        """Wait for the results of `batch` in the background. Returns the job's id."""
        job_of = {one: job_id for job_id, asking in batch.asking.items() for one in asking}
        items = tuple((one, job_of.get(one, "")) for one in batch.submission_ids)
        group = _Group(grader=batch.grader, deadline=time.time() + batch.remaining_s(), items=items)
        group_id = secrets.token_urlsafe(24)
        await self._broker.put_note(f"job:{group_id}", group.model_dump_json(), group.keep_s())
        watcher = self._watchers[group_id] = asyncio.create_task(
            self._watch(group_id, group, batch)
        )
        watcher.add_done_callback(lambda _: self._watchers.pop(group_id, None))
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look_for_cancelled())
        return group_id

    async def _watch(self, group_id: str, group: _Group, batch: Batch) -> None:
        found: dict[str, Graded | Faulted] = {}
        try:
            await self._dispatcher.settle_or_fail(
                batch, lambda result: found.update({result.id: result})
            )
        except asyncio.CancelledError:
            if group_id in self._watchers:  # this process stops: the jobs stay queued
                raise
            await self._dispatcher.cancel(batch)
            return
        await self._settle(
            group_id, group, [found[submission_id] for submission_id, _ in group.items]
        )

    async def _settle(self, group_id: str, group: _Group, results: list[Graded | Faulted]) -> None:
        """Store the results, unless some are stored: every later answer has the same ones."""
        text = GradeResponse(results=tuple(results)).model_dump_json()
        await self._broker.put_note(f"done:{group_id}", text, group.keep_s(), replace=False)

    async def _look_for_cancelled(self) -> None:
        """Withdraw what other processes cancelled, while this one watches something."""
        while self._watchers:
            await asyncio.sleep(LOOK_S)
            try:
                settled = await self._broker.get_notes(
                    [f"done:{group_id}" for group_id in self._watchers]
                )
            except QueueFault:
                continue
            for key in settled:
                self._stop(key.removeprefix("done:"))

    def _stop(self, group_id: str) -> None:
        """Withdraw the jobs of an id, if this process watches it."""
        if watcher := self._watchers.pop(group_id, None):
            watcher.cancel()

    async def _read(
        self, group_id: str, may_use: Callable[[str], bool]
    ) -> tuple[_Group, dict[str, Graded | Faulted]]:
        """What an id stands for, and the results that there are, by submission. Raises Refused
        (404)."""
        notes: dict[str, str] = {}
        if re.fullmatch(r"[A-Za-z0-9_-]{32}", group_id):
            notes = await self._broker.get_notes([f"job:{group_id}", f"done:{group_id}"])
        group = (
            _Group.model_validate_json(notes[key]) if (key := f"job:{group_id}") in notes else None
        )
        if group is None or not may_use(group.grader):
            raise Refused(404, "there is no job with this id, or its time is over; submit it again")
        if (key := f"done:{group_id}") in notes:
            return group, {
                result.id: result
                for result in GradeResponse.model_validate_json(notes[key]).results
            }
        texts = await self._broker.results([job_id for _, job_id in group.items])
        found = {
            one: with_id(result_of(texts[job_id], job_id, self._dispatcher.secrets), one)
            for one, job_id in group.items
            if job_id in texts
        }
        if time.time() > group.deadline + WATCH_SLACK_S:
            found = _with_faults(
                group, found, FaultKind.DEADLINE, "no verdict before the deadline", retryable=True
            )
        return group, found

    async def status(self, group_id: str, may_use: Callable[[str], bool]) -> JobStatus:
        """The state of a job. Raises Refused (404), also for a job of a grader that the caller may
        not use."""
        return _status_of(group_id, *await self._read(group_id, may_use))

    async def cancel(self, group_id: str, may_use: Callable[[str], bool]) -> JobStatus:
        """End a job: what has no result by now is a fault. Changes nothing about one that is done.
        Raises as `status`.

        The process that watches it withdraws its jobs, within a second if that is another one.
        """
        group, found = await self._read(group_id, may_use)
        found = _with_faults(
            group, found, FaultKind.QUEUE, "cancelled by its client", retryable=False
        )
        await self._settle(group_id, group, [found[one] for one, _ in group.items])
        self._stop(group_id)
        return await self.status(group_id, may_use)

    async def close(self) -> None:
        """Stop watching. The jobs stay queued: other processes can answer for them."""
        tasks = [*self._watchers.values(), *filter(None, [self._looking])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _with_faults(
    group: _Group, found: dict[str, Graded | Faulted], kind: FaultKind, why: str, *, retryable: bool
) -> dict[str, Graded | Faulted]:
    return {
        one: faulted(one, kind, f"submission {one!r}: {why}", retryable=retryable)
        for one, _ in group.items
    } | found


def _status_of(group_id: str, group: _Group, found: dict[str, Graded | Faulted]) -> JobStatus:
    is_done = len(found) == len(group.items)
    unfinished = JobState.RUNNING if found else JobState.QUEUED
    return JobStatus(
        id=group_id,
        status=JobState.DONE if is_done else unfinished,
        done=len(found),
        total=len(group.items),
        results=tuple(found[one] for one, _ in group.items) if is_done else None,
    )
