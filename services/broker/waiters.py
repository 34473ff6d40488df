"""Coroutines of this process that wait for results of jobs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable

from gradus.errors import QueueFault

Answer = tuple[str, str]
"""Job id and result."""
Waiter = asyncio.Queue[Answer | QueueFault]


class ResultWaiters:
    """Delivers each result once to every coroutine that waits for it."""

    def __init__(self) -> None:
        self._by_job: dict[str, list[Waiter]] = {}

    def jobs(self) -> set[str]:
        return set(self._by_job)

    def join(self, job_ids: Iterable[str]) -> Waiter:
        waiter: Waiter = asyncio.Queue()
        for job_id in job_ids:
            self._by_job.setdefault(job_id, []).append(waiter)
        return waiter

    def leave(self, waiter: Waiter, job_ids: Iterable[str]) -> None:
        for job_id in job_ids:
            others = [other for other in self._by_job.pop(job_id, ()) if other is not waiter]
            if others:
                self._by_job[job_id] = others

    def deliver(self, job_id: str, result: str) -> None:
        """Ends the waits for this job: a second result goes nowhere."""
        for waiter in self._by_job.pop(job_id, ()):
            waiter.put_nowait((job_id, result))

    def fail(self, message: str) -> None:
        """End every wait with a QueueFault."""
        for waiter in {id(waiter): waiter for waiters in self._by_job.values() for waiter in waiters}.values():
            waiter.put_nowait(QueueFault(message))
        self._by_job.clear()


async def answers(waiter: Waiter, wanted: set[str], deadline: float) -> AsyncIterator[Answer]:
    """Results of `wanted`, until all came or `deadline` (`time.monotonic`) is over; removes each from `wanted`."""
    while wanted:
        answer = await _next(waiter, deadline)
        if answer is None:
            return
        if isinstance(answer, QueueFault):
            raise answer
        wanted.discard(answer[0])
        yield answer


async def _next(waiter: Waiter, deadline: float) -> Answer | QueueFault | None:
    if not waiter.empty():
        return waiter.get_nowait()
    try:
        async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
            return await waiter.get()
    except TimeoutError:
        return None
