"""Coroutines of this process that wait for results of jobs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable

from gradus.errors import QueueFault


class ResultWaiters:
    """Delivers each result once to every coroutine that waits for it."""

    def __init__(self) -> None:
        self._by_job: dict[str, list[asyncio.Queue[tuple[str, str] | QueueFault | None]]] = {}

    def list_job_ids(self) -> set[str]:
        return set(self._by_job)

    async def wait(
        self,
        job_ids: Iterable[str],
        timeout_s: float,
        deliver_stored: Callable[[list[str]], Awaitable[object]],
    ) -> AsyncIterator[tuple[str, str]]:
        """See `Broker.wait`. `deliver_stored` delivers the results that exist before the wait
        began."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        missing = dict.fromkeys(job_ids)
        inbox: asyncio.Queue[tuple[str, str] | QueueFault | None] = (
            asyncio.Queue()
        )  # None: the time is over
        for job_id in missing:
            self._by_job.setdefault(job_id, []).append(inbox)
        try:
            await deliver_stored(list(missing))
            loop.call_at(deadline, inbox.put_nowait, None)
            while missing and (answer := await inbox.get()):
                if isinstance(answer, QueueFault):
                    raise answer
                del missing[answer[0]]
                yield answer
        finally:
            for job_id in missing:
                if other_inboxes := [
                    other for other in self._by_job.pop(job_id, ()) if other is not inbox
                ]:
                    self._by_job[job_id] = other_inboxes

    def deliver(self, job_id: str, result: str) -> None:
        """Ends the waits for this job: a second result goes nowhere."""
        for inbox in self._by_job.pop(job_id, ()):
            inbox.put_nowait((job_id, result))

    def fail(self, message: str) -> None:
        """End every wait with a QueueFault that is not retryable: this process will deliver nothing
        any more."""
        for inbox in {inbox for inboxes in self._by_job.values() for inbox in inboxes}:
            inbox.put_nowait(QueueFault(message, retryable=False))
        self._by_job.clear()
