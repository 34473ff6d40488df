"""Asynchronous jobs: requests that are answered with an id first and with results later.

The broker stores the submissions of an id, so that any API process can answer for it. The process
that received the request waits for its results; if that process dies, the others still read the
verdicts and, past the deadline, return faults for the rest. Verdicts are stored once, as results of
their queue jobs. What a request got besides, its faults, is stored once by its watcher or by the
process that cancels it.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Callable, Mapping

from pydantic import BaseModel, ConfigDict

from gradus.contract import Faulted, Graded, GraderName, build_faulted, replace_id
from gradus.errors import FaultKind, QueueFault
from gradus.rest import JobState, JobStatus
from services.api.dispatch import Batch, GradingDispatcher, parse_result
from services.api.problems import Refused
from services.broker import MIN_TTL_S, REFUSE_AT, Broker, QueueFull, compute_kept_share

# Seconds after its deadline until a job expires, while the store has memory.
TTL_S = 3600.0
SWEEP_S = 1.0  # seconds between checks for jobs that other processes cancelled
# Seconds after the deadline at which a process that watches without storing results counts as dead.
WATCH_SLACK_S = 10.0


class _Group(BaseModel):
    """The submissions of one job id."""

    model_config = ConfigDict(frozen=True)

    grader: GraderName
    deadline: float  # seconds of the store's clock (`Broker.get_time`)
    items: tuple[tuple[str, str], ...]  # (submission id, job id), in the order of the request

    def order(self, results: Mapping[str, Graded | Faulted]) -> list[Graded | Faulted]:
        """Return the results in the order of the request. Raises KeyError where one is missing."""
        return [results[submission_id] for submission_id, _ in self.items]

    def compute_ttl_s(self, now: float, fill: float) -> float:
        """Return the seconds for which what is known of it is kept. `now`: of the store's clock;
        `fill`: used share of its memory."""
        kept_s = max(TTL_S * compute_kept_share(fill), MIN_TTL_S)
        return max(self.deadline - now, 0) + kept_s


class _End(BaseModel):
    """What a request got besides the verdicts that are stored as results of queue jobs."""

    model_config = ConfigDict(frozen=True)

    faults: tuple[Faulted, ...] = ()
    verdicts: tuple[Graded, ...] = ()
    """Those that are not stored any more: a long request outlives its first verdicts, whose time to
    live is short where memory is."""
    cached: tuple[str, ...] = ()
    """Submissions whose verdicts existed before the request."""


class Jobs:
    def __init__(self, broker: Broker, dispatcher: GradingDispatcher) -> None:
        self._broker = broker
        self._dispatcher = dispatcher
        self._watchers: dict[str, asyncio.Task[None]] = {}
        self._sweeper: asyncio.Task[None] | None = None

    async def start(self, batch: Batch) -> str:
        """Wait for the results of `batch` in the background. Returns the job's id.

        Raises QueueFull where the store's memory or the part of the API key is full, for work with
        cached verdicts too.
        """
        fill = await self._broker.get_memory_fill()
        if fill >= REFUSE_AT:
            await self._dispatcher.cancel(batch)
            raise QueueFull(batch.grader, "memory")
        job_ids = dict.fromkeys(batch.submission_ids, "")
        for job_id, submission_ids in batch.submission_ids_by_job.items():
            job_ids.update(dict.fromkeys(submission_ids, job_id))
        now = await self._broker.get_time()
        group = _Group(
            grader=batch.grader,
            deadline=now + batch.get_remaining_s(),
            items=tuple(job_ids.items()),
        )
        group_id = secrets.token_urlsafe(24)
        is_kept = await self._broker.keep_job(
            group_id,
            group.model_dump_json(),
            group.compute_ttl_s(now, fill),
            batch.fair_share,
            group.deadline,
        )
        if not is_kept:
            await self._dispatcher.cancel(batch)
            raise QueueFull(batch.grader, "notes")
        watcher = self._watchers[group_id] = asyncio.create_task(
            self._watch(group_id, group, batch)
        )
        watcher.add_done_callback(lambda _: self._watchers.pop(group_id, None))
        if self._sweeper is None or self._sweeper.done():
            self._sweeper = asyncio.create_task(self._sweep_cancelled())
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
        await self._save_end(group_id, group, group.order(results))

    async def _save_end(
        self, group_id: str, group: _Group, results: list[Graded | Faulted]
    ) -> None:
        """Store the end of a request, unless it is stored: every later answer has the same one."""
        faults = [result for result in results if isinstance(result, Faulted)]
        verdicts = [result for result in results if isinstance(result, Graded)]
        job_ids = dict(group.items)
        stored = await self._broker.results([job_id for job_id in job_ids.values() if job_id])
        end = _End(
            faults=tuple(faults),
            verdicts=tuple(verdict for verdict in verdicts if job_ids[verdict.id] not in stored),
            cached=tuple(verdict.id for verdict in verdicts if verdict.cached),
        )
        text = end.model_dump_json()
        fill = await self._broker.get_memory_fill()
        ttl_s = group.compute_ttl_s(await self._broker.get_time(), fill)
        await self._broker.save_note(f"done:{group_id}", text, ttl_s, replace=False)

    async def _sweep_cancelled(self) -> None:
        """Withdraw jobs that other processes cancelled, while this one watches any."""
        while self._watchers:
            await asyncio.sleep(SWEEP_S)
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
        watcher = self._watchers.pop(group_id, None)
        if watcher is not None:
            watcher.cancel()

    async def _read(
        self, group_id: str, can_use: Callable[[str], bool]
    ) -> tuple[_Group, dict[str, Graded | Faulted]]:
        """Return the submissions of an id, and their results so far, by submission. Raises Refused
        (404)."""
        unknown = Refused(404, "there is no job with this id, or it has expired; submit it again")
        notes: dict[str, str] = {}
        if re.fullmatch(r"[A-Za-z0-9_-]{32}", group_id):
            notes = await self._broker.get_notes([f"job:{group_id}", f"done:{group_id}"])
        if f"job:{group_id}" not in notes:
            raise unknown
        group = _Group.model_validate_json(notes[f"job:{group_id}"])
        if not can_use(group.grader):
            raise unknown
        if f"done:{group_id}" in notes:
            end = _End.model_validate_json(notes[f"done:{group_id}"], extra="ignore")
            results = await self._read_stored(group)
            results |= {verdict.id: verdict for verdict in end.verdicts}
            results |= {fault.id: fault for fault in end.faults}
            if len(results) < len(group.items):  # the memory of verdicts is shorter
                raise unknown
            for submission_id in end.cached:
                results[submission_id] = results[submission_id].model_copy(update={"cached": True})
            return group, results
        results = await self._read_stored(group)
        if await self._broker.get_time() > group.deadline + WATCH_SLACK_S:
            results = _add_faults(
                group, results, FaultKind.DEADLINE, "no verdict before the deadline", retryable=True
            )
        return group, results

    async def _read_stored(self, group: _Group) -> dict[str, Graded | Faulted]:
        """Return the stored results of queue jobs, by submission."""
        texts = await self._broker.results([job_id for _, job_id in group.items if job_id])
        results: dict[str, Graded | Faulted] = {}
        for submission_id, job_id in group.items:
            if job_id in texts:
                result = parse_result(texts[job_id], job_id, self._dispatcher.secrets)
                results[submission_id] = replace_id(result, submission_id)
        return results

    async def get_status(self, group_id: str, can_use: Callable[[str], bool]) -> JobStatus:
        """Return the state of a job. Raises Refused (404), also for a job of a grader that the
        caller may not use."""
        group, results = await self._read(group_id, can_use)
        ordered = None
        status = JobState.RUNNING if results else JobState.QUEUED
        if len(results) == len(group.items):
            ordered = tuple(group.order(results))
            status = JobState.DONE
        return JobStatus(
            id=group_id, status=status, done=len(results), total=len(group.items), results=ordered
        )

    async def cancel(self, group_id: str, can_use: Callable[[str], bool]) -> JobStatus:
        """End a job: submissions without a result get a fault. A finished job does not change.
        Raises Refused (404).

        The process that watches it withdraws its queue jobs, another process within `SWEEP_S`.
        """
        group, results = await self._read(group_id, can_use)
        results = _add_faults(
            group, results, FaultKind.QUEUE, "cancelled by its client", retryable=False
        )
        await self._save_end(group_id, group, group.order(results))
        self._stop(group_id)
        return await self.get_status(group_id, can_use)

    async def close(self) -> None:
        """Stop watching. The jobs stay queued, and other processes can answer for them."""
        tasks = [*self._watchers.values(), *filter(None, [self._sweeper])]
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
