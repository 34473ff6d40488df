"""Coroutines of this process that wait for results of jobs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable

from gradus.errors import QueueFault


class ResultWaiters:
    """Delivers each result once to every coroutine that waits for it."""

    def __init__(self) -> None:
        self._by_job: dict[str, list[asyncio.Queue[tuple[str, str] | QueueFault]]] = {}

    def jobs(self) -> set[str]:
        return set(self._by_job)

    async def wait(
        self, job_ids: Iterable[str], timeout_s: float, deliver_stored: Callable[[list[str]], Awaitable[object]]
    ) -> AsyncIterator[tuple[str, str]]:
        """See `Broker.wait`. `deliver_stored` delivers the results that exist before the wait began."""
        deadline = time.monotonic() + timeout_s
        missing = dict.fromkeys(job_ids)
        inbox: asyncio.Queue[tuple[str, str] | QueueFault] = asyncio.Queue()
        for job_id in missing:
            self._by_job.setdefault(job_id, []).append(inbox)
        try:
            await deliver_stored(list(missing))
            while missing:
                if inbox.empty():
                    try:
                        async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
                            answer = await inbox.get()
                    except TimeoutError:
                        return
                else:
                    answer = inbox.get_nowait()
                if isinstance(answer, QueueFault):
                    raise answer
                del missing[answer[0]]
                yield answer
        finally:
            for job_id in missing:
                if others := [other for other in self._by_job.pop(job_id, ()) if other is not inbox]:
                    self._by_job[job_id] = others

    def deliver(self, job_id: str, result: str) -> None:
        """Ends the waits for this job: a second result goes nowhere."""
        for inbox in self._by_job.pop(job_id, ()):
            inbox.put_nowait((job_id, result))

    def fail(self, message: str) -> None:
        """End every wait with a QueueFault that is not retryable: this process will deliver nothing any more."""
        for inbox in {inbox for inboxes in self._by_job.values() for inbox in inboxes}:
            inbox.put_nowait(QueueFault(message, retryable=False))
        self._by_job.clear()
