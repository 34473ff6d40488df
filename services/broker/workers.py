"""Registrations of live workers and the descriptions of their graders: workers keep them alive, the
API reads them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress

from pydantic import ValidationError

from gradus.descriptions import GraderDescription, GraderInfo
from gradus.errors import QueueFault
from services.broker import Broker

log = logging.getLogger("gradus.worker")

HEARTBEAT_TTL_S = 15.0
RETRY_S = 0.5
"""Seconds until a heartbeat that failed is sent again."""
LEAVE_S = 1.0
"""Longest time to remove a registration; where that fails, it lapses."""


@asynccontextmanager
async def register_worker(
    broker: Broker, worker: str, info: GraderInfo, description: GraderDescription
) -> AsyncIterator[None]:
    """Register a worker and describe its grader while the block runs; remove the worker at its
    end."""

    async def keep_alive() -> None:
        while True:
            pause_s = HEARTBEAT_TTL_S / 3
            try:
                await broker.heartbeat(worker, info, HEARTBEAT_TTL_S)
                await broker.save_note(
                    f"grader:{info.grader}", description.model_dump_json(), 2 * HEARTBEAT_TTL_S
                )
            except QueueFault as fault:
                log.warning("cannot send a heartbeat, trying again: %s", fault.message)
                pause_s = RETRY_S  # the registration may be over when the queue is back
            await asyncio.sleep(pause_s)

    heartbeats = asyncio.create_task(keep_alive())
    try:
        yield
    finally:
        heartbeats.cancel()
        with suppress(QueueFault, TimeoutError):
            async with asyncio.timeout(LEAVE_S):
                await broker.heartbeat(worker, info, 0)


def summarize_workers(registrations: Iterable[tuple[str, GraderInfo]]) -> list[GraderInfo]:
    """Return one entry per grader revision out of (worker, info) pairs, `workers` and `slots` added
    up, sorted by revision."""
    summary: dict[str, GraderInfo] = {}
    for _, info in sorted(registrations, key=lambda pair: (pair[1].grader, pair[0])):
        if previous := summary.get(info.grader):
            info = info.model_copy(
                update={
                    "workers": previous.workers + info.workers,
                    "slots": previous.slots + info.slots,
                }
            )
        summary[info.grader] = info
    return list(summary.values())


async def find_description(broker: Broker, grader: str) -> GraderDescription | None:
    """Return the description of name@revision; None where none is kept, or one that this release
    cannot read.

    Raises QueueFault.
    """
    notes = await broker.get_notes([key := f"grader:{grader}"])
    try:
        return GraderDescription.model_validate_json(notes[key]) if key in notes else None
    except ValidationError:
        return None
