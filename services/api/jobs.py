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
from collections.abc import Callable

from pydantic import BaseModel, ConfigDict

from gradus.contract import Faulted, Graded, GraderName, build_faulted, replace_id
from gradus.errors import FaultKind, QueueFault
from gradus.rest import GradeResponse, JobState, JobStatus
from services.api.dispatch import LOOK_S, Batch, GradingDispatcher, parse_result
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
    """Seconds of the store's clock (`Broker.get_time`)."""
    items: tuple[tuple[str, str], ...]
    """(submission id, job id), in the order of the request."""

    def compute_ttl_s(self, now: float) -> float:
        """Return the seconds for which what is known of it is kept. `now`: of the store's clock."""
        return max(self.deadline - now, 0) + TTL_S


class Jobs:
    def __init__(self, broker: Broker, dispatcher: GradingDispatcher) -> None:
        self._broker = broker
        self._dispatcher = dispatcher
        self._watchers: dict[str, asyncio.Task[None]] = {}
        """By id."""
        self._looking: asyncio.Task[None] | None = None

    async def start(self, batch: Batch) -> str:
        """Wait for the results of `batch` in the background. Returns the job's id."""
        job_of = {
            submission_id: job_id
            for job_id, asking in batch.asking.items()
            for submission_id in asking
        }
        items = tuple(
            (submission_id, job_of.get(submission_id, "")) for submission_id in batch.submission_ids
        )
        now = await self._broker.get_time()
        group = _Group(grader=batch.grader, deadline=now + batch.get_remaining_s(), items=items)
        group_id = secrets.token_urlsafe(24)
        await self._broker.save_note(
            f"job:{group_id}", group.model_dump_json(), group.compute_ttl_s(now)
        )
        watcher = self._watchers[group_id] = asyncio.create_task(
            self._watch(group_id, group, batch)
        )
        watcher.add_done_callback(lambda _: self._watchers.pop(group_id, None))
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._sweep_cancelled())
        return group_id

    async def _watch(self, group_id: str, group: _Group, batch: Batch) -> None:
        results: dict[str, Graded | Faulted] = {}
        try:
            await self._dispatcher.settle_or_fail(
                batch, lambda result: results.update({result.id: result})
            )
        except asyncio.CancelledError:
            if group_id in self._watchers:  # this process stops: the jobs stay queued
                raise
            await self._dispatcher.cancel(batch)
            return
        await self._save_results(
            group_id, group, [results[submission_id] for submission_id, _ in group.items]
        )

    async def _save_results(
        self, group_id: str, group: _Group, results: list[Graded | Faulted]
    ) -> None:
        """Store the results, unless some are stored: every later answer has the same ones."""
        text = GradeResponse(results=tuple(results)).model_dump_json()
        ttl_s = group.compute_ttl_s(await self._broker.get_time())
        await self._broker.save_note(f"done:{group_id}", text, ttl_s, replace=False)

    async def _sweep_cancelled(self) -> None:
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
        self, group_id: str, can_use: Callable[[str], bool]
    ) -> tuple[_Group, dict[str, Graded | Faulted]]:
        """Return what an id stands for, and the results that there are, by submission. Raises
        Refused (404)."""
        notes: dict[str, str] = {}
        if re.fullmatch(r"[A-Za-z0-9_-]{32}", group_id):
            notes = await self._broker.get_notes([f"job:{group_id}", f"done:{group_id}"])
        group = (
            _Group.model_validate_json(notes[key]) if (key := f"job:{group_id}") in notes else None
        )
        if group is None or not can_use(group.grader):
            raise Refused(404, "there is no job with this id, or its time is over; submit it again")
        if (key := f"done:{group_id}") in notes:
            return group, {
                result.id: result
                for result in GradeResponse.model_validate_json(notes[key], extra="ignore").results
            }
        texts = await self._broker.results([job_id for _, job_id in group.items])
        results = {
            submission_id: replace_id(
                parse_result(texts[job_id], job_id, self._dispatcher.secrets), submission_id
            )
            for submission_id, job_id in group.items
            if job_id in texts
        }
        if await self._broker.get_time() > group.deadline + WATCH_SLACK_S:
            results = _add_faults(
                group, results, FaultKind.DEADLINE, "no verdict before the deadline", retryable=True
            )
        return group, results

    async def get_status(self, group_id: str, can_use: Callable[[str], bool]) -> JobStatus:
        """Return the state of a job. Raises Refused (404), also for a job of a grader that the
        caller may not use."""
        return _build_status(group_id, *await self._read(group_id, can_use))

    async def cancel(self, group_id: str, can_use: Callable[[str], bool]) -> JobStatus:
        """End a job: what has no result by now is a fault. Changes nothing about one that is done.
        Raises as `get_status`.

        The process that watches it withdraws its jobs, within a second if that is another one.
        """
        group, results = await self._read(group_id, can_use)
        results = _add_faults(
            group, results, FaultKind.QUEUE, "cancelled by its client", retryable=False
        )
        await self._save_results(
            group_id, group, [results[submission_id] for submission_id, _ in group.items]
        )
        self._stop(group_id)
        return await self.get_status(group_id, can_use)

    async def close(self) -> None:
        """Stop watching. The jobs stay queued: other processes can answer for them."""
        tasks = [*self._watchers.values(), *filter(None, [self._looking])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _add_faults(
    group: _Group,
    results: dict[str, Graded | Faulted],
    kind: FaultKind,
    why: str,
    *,
    retryable: bool,
) -> dict[str, Graded | Faulted]:
    return {
        submission_id: build_faulted(
            submission_id, kind, f"submission {submission_id!r}: {why}", retryable=retryable
        )
        for submission_id, _ in group.items
    } | results


def _build_status(group_id: str, group: _Group, results: dict[str, Graded | Faulted]) -> JobStatus:
    is_done = len(results) == len(group.items)
    pending_state = JobState.RUNNING if results else JobState.QUEUED
    return JobStatus(
        id=group_id,
        status=JobState.DONE if is_done else pending_state,
        done=len(results),
        total=len(group.items),
        results=tuple(results[submission_id] for submission_id, _ in group.items)
        if is_done
        else None,
    )
