"""Registrations of live workers and the descriptions of their graders: workers keep them alive, the
API and operators read them."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gradus import __version__
from gradus.descriptions import GraderDescription, GraderInfo
from gradus.errors import QueueFault
from services.broker import DEATH_KEPT_S, Broker

log = logging.getLogger("gradus.worker")

HEARTBEAT_TTL_S = 15.0
RETRY_S = 0.5
"""Seconds until a heartbeat that failed is sent again."""
LEAVE_S = 1.0
"""Longest time to remove a registration; where that fails, it lapses."""
DEATH_LOOK_S = 5.0
"""Seconds between looks for dead workers. One that is silent for two looks is dead: after an outage
of Redis all workers need a moment to register anew."""
ShortText = Annotated[str, Field(max_length=128)]
SILENT = "no heartbeat: killed, out of memory, frozen or cut off"


class WorkerStatus(BaseModel):
    """A worker as operators see it. The worker stores the first fields; the rest is added by
    `list_workers`."""

    model_config = ConfigDict(frozen=True)

    grader: str
    """name@revision."""
    host: ShortText = "unknown"
    slots: int = 0
    release: ShortText = "unknown"
    age_s: float = 0.0
    """Seconds since its start; when it is stored, at the heartbeat."""
    ttl_s: float = HEARTBEAT_TTL_S
    """Seconds for which a heartbeat registers it."""
    ended: ShortText = ""
    """Type of the error that ended it."""
    name: str = ""
    silent_s: float = 0.0
    """Seconds since its last heartbeat."""
    is_dead: bool = False

    @property
    def cause(self) -> str:
        """Return why it died; empty for a live worker."""
        return (self.ended or SILENT) if self.is_dead else ""


class Registration:
    """One worker's registration. `registered_at`: time of the last heartbeat that was accepted, of
    `time.monotonic`."""

    def __init__(
        self, broker: Broker, worker: str, info: GraderInfo, description: GraderDescription
    ) -> None:
        self._broker = broker
        self._worker = worker
        self._info = info
        self._description = description
        self._started_at = time.monotonic()
        self.registered_at: float | None = None

    @property
    def is_current(self) -> bool:
        """Whether the store still has the registration."""
        at = self.registered_at
        return at is not None and time.monotonic() - at < HEARTBEAT_TTL_S

    async def keep_alive(self) -> None:
        while True:
            pause_s = HEARTBEAT_TTL_S / 3
            try:
                await self._broker.heartbeat(self._worker, self._info, HEARTBEAT_TTL_S)
                self.registered_at = time.monotonic()
                await self._broker.save_note(
                    f"grader:{self._info.grader}",
                    self._description.model_dump_json(),
                    2 * HEARTBEAT_TTL_S,
                )
                await self._save_status()
            except QueueFault as fault:
                log.warning("cannot send a heartbeat, trying again: %s", fault.message)
                pause_s = RETRY_S  # the registration may be over when the queue is back
            await asyncio.sleep(pause_s)

    async def end(self, error: BaseException | None = None) -> None:
        """Remove the registration; after an error let it lapse now, with the error's type."""
        with suppress(QueueFault, TimeoutError):
            async with asyncio.timeout(LEAVE_S):
                if error is not None:
                    await self._save_status(type(error).__name__)
                await self._broker.heartbeat(self._worker, self._info, 0.001 if error else 0)

    async def _save_status(self, ended: str = "") -> None:
        status = WorkerStatus(
            grader=self._info.grader,
            host=socket.gethostname(),
            slots=self._info.slots,
            release=__version__,
            age_s=time.monotonic() - self._started_at,
            ttl_s=HEARTBEAT_TTL_S,
            ended=ended,
        )
        key = build_status_key(f"{self._info.name}:{self._worker}")
        await self._broker.save_note(key, status.model_dump_json(), DEATH_KEPT_S)


async def wait_for_queue(broker: Broker, grader: str, stop: asyncio.Event) -> bool:
    """Return True once the grader's queue answers, False when `stop` is set before. The broker logs
    what it waits for."""
    while not stop.is_set():
        try:
            await broker.depth(grader)
            return True
        except QueueFault:
            await asyncio.sleep(RETRY_S)
    return False


def build_status_key(registered_name: str) -> str:
    """Return the key of the status of `GRADER:WORKER`, within what the grader's Redis user may
    write."""
    grader, _, worker = registered_name.partition(":")
    return f"grader:{grader}@worker:{worker}"


async def list_workers(broker: Broker) -> list[WorkerStatus]:
    """Return live workers, and those that died in the last hour, by grader and name. Raises
    QueueFault."""
    ends = await broker.get_registrations()
    now = await broker.get_time()
    keys = {name: build_status_key(name) for name in sorted(ends)}
    notes = await broker.get_notes(list(keys.values()))
    workers = []
    for name, key in keys.items():
        grader, _, worker = name.partition(":")
        stored = WorkerStatus(grader=grader)  # of a release that announces none
        with suppress(ValidationError):
            announced = WorkerStatus.model_validate_json(notes.get(key, ""))
            if announced.grader.startswith(f"{grader}@"):  # and nothing of another grader
                stored = announced
        silent_s = max(now - ends[name] + stored.ttl_s, 0.0)
        seen = {
            "name": worker,
            "age_s": stored.age_s + silent_s,
            "silent_s": silent_s,
            "is_dead": now > ends[name],
        }
        workers.append(stored.model_copy(update=seen))
    return workers


class DeathLog:
    """Logs each worker that dies while this process looks, once."""

    def __init__(self) -> None:
        self._look_at = 0.0
        self._silent: set[str] = set()
        """Workers that were dead at the last look."""
        self._known: set[str] | None = None
        """Workers whose death was logged or came before the first look; None until that."""

    async def look(self, broker: Broker) -> None:
        """Look at most once in `DEATH_LOOK_S` seconds. Raises QueueFault."""
        if time.monotonic() < self._look_at:
            return
        self._look_at = time.monotonic() + DEATH_LOOK_S
        workers = await list_workers(broker)
        dead = {f"{worker.grader} {worker.name}": worker for worker in workers if worker.is_dead}
        if self._known is None:
            self._known = set(dead)
        died = (dead.keys() & self._silent) - self._known
        for key in died:
            fields = dead[key].model_dump(include={"grader", "name", "host", "silent_s"})
            log.warning("worker died", extra={"fields": fields | {"cause": dead[key].cause}})
        self._known = (self._known | died) & dead.keys()
        self._silent = set(dead)


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
        if key in notes:
            return GraderDescription.model_validate_json(notes[key], extra="ignore")
    except ValidationError:
        pass
    return None
