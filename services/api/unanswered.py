"""What becomes of submissions that have no result at their deadline, or when their client has
left."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from gradus.errors import FaultKind, QueueFault
from services.api.grader_registry import GraderRegistry
from services.broker import Broker

LAST_WORD_S = 1.0
"""Seconds after the deadline in which the broker must say why there is no verdict."""


class Unanswered:
    def __init__(self, broker: Broker, registry: GraderRegistry) -> None:
        self._broker = broker
        self._registry = registry
        self._withdrawing: set[asyncio.Task[None]] = set()

    async def withdraw(self, grader: str, job_ids: list[str]) -> None:
        """Withdraw the jobs; returns after `LAST_WORD_S` at the latest, and the withdrawal ends in
        its own time."""

        async def cancel() -> None:
            with suppress(QueueFault):
                await self._broker.cancel(grader, job_ids)

        withdrawing = asyncio.create_task(cancel())
        self._withdrawing.add(withdrawing)
        withdrawing.add_done_callback(self._withdrawing.discard)
        await asyncio.wait([withdrawing], timeout=LAST_WORD_S)

    async def reason(self, grader: str, deadline_s: float) -> tuple[FaultKind, str]:
        """Kind and message of the faults; within `LAST_WORD_S`."""
        try:
            async with asyncio.timeout(LAST_WORD_S):
                if await self._registry.is_absent(grader):
                    command = f"gradus worker {grader} --redis redis://..."
                    return (
                        FaultKind.QUEUE,
                        f"no {grader} grader is running: start one with `{command}`",
                    )
                depth = await self._broker.depth(grader)
        except (TimeoutError, QueueFault):
            return (
                FaultKind.QUEUE,
                f"the queue did not answer at the deadline, after {deadline_s:g} s",
            )
        seen = f"no verdict within {deadline_s:g} s; the queue holds {depth} jobs"
        return FaultKind.DEADLINE, f"{seen}: allow more time or add workers"
