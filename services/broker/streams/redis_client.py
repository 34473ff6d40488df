"""Client of one Redis: connections, retries, scripts, and QueueFault in place of redis-py's errors.

Whatever a connection raises that is no reply of Redis is a RedisUnavailable: beside redis-py's own
errors come the system's, uvloop's RuntimeError for a transport that was just closed, and
AttributeErrors of redis-py for a connection without a stream.

Only redis-py's connections are used, which log in, speak TLS and parse replies: its client, its
pools and its encoder cost twice the CPU per command. Its retries stay off: they nest (every command
retry reconnects with retries of its own), so their duration has no bound. Its socket timeout stays
off too: it sends through `asyncio.wait_for`, which on Python 3.11 can swallow a cancellation, so
that a cancelled task runs on for ever.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from typing import Any, TypeVar

from hiredis import pack_command
from redis import exceptions as redis_errors
from redis.asyncio.connection import AbstractConnection

from gradus.errors import QueueFault
from services.broker.jobs import Job
from services.broker.streams.cluster import SlotMaster, is_cluster
from services.broker.streams.outage import OutageLog
from services.broker.streams.redis_faults import (
    NoFunction,
    NoGroup,
    NoMemory,
    NoPermission,
    RedisUnavailable,
    build_fault,
)
from services.broker.streams.redis_url import make_connector, redact_url
from services.broker.streams.scripts import Script, build_library

COMMAND_CONNECTIONS = 64
"""Connections of commands. A process has one more for its inbox and for each of its workers, which
wait."""
CONNECT_S = 2.0
"""Longest time for a new connection: an address that does not answer is another attempt's."""
FIRST_PAUSE_S = 0.02
LAST_PAUSE_S = 0.5

CHUNK_ITEMS = 64
CHUNK_CHARS = 4_000_000
"""Bounds of one script call: a job takes some 0.1 ms, in which Redis serves no other client."""

LOAD = ("FUNCTION", "LOAD", "REPLACE")

Argument = str | int | float
Slots = AbstractAsyncContextManager[None]
Item = TypeVar("Item", str, Job)


class RetryingRedis:
    """Commands over pooled connections, retried for `patience_s` while Redis is unreachable."""

    def __init__(self, url: str, *, prefix: str, patience_s: float) -> None:
        """`prefix` of every key. Raises ValueError when `url` cannot be read. Connects when first
        used."""
        self.prefix = prefix
        self.patience_s = patience_s
        self._shown = redact_url(url)
        self._outage = OutageLog(self._shown)
        self._new_connection, self._sentinels = make_connector(url, min(patience_s, CONNECT_S))
        self._slot_master = None
        if is_cluster(url):
            self._slot_master = SlotMaster(url, prefix, self._new_connection)
        self._slots = asyncio.Semaphore(COMMAND_CONNECTIONS)
        self._connections: set[AbstractConnection] = set()
        self._idle: list[AbstractConnection] = []
        """Connections that are not in use, those used last at the end. Closed ones are opened again
        when needed."""

    def key(self, kind: str, name: str) -> str:
        return f"{self.prefix}{kind}:{name}"

    def keys(self, kinds: Sequence[str], grader: str) -> list[str]:
        return [self.key(kind, grader) for kind in kinds]

    async def call(self, *command: Argument) -> Any:
        """Return the reply. Retries while Redis is unreachable; raises QueueFault after
        `patience_s`."""
        return await self.call_with_retries(
            lambda: self._attempt(self._slots, self.patience_s, command)
        )

    async def run(self, script: Script, keys: Sequence[str], *args: Argument) -> Any:
        """Return the script's reply, like `call`. It must be idempotent: it runs twice when the
        first reply is lost.

        Loads the library into a Redis that lacks it, where the user may; else waits until `gradus
        queue migrate` or another client has.
        """
        command = ("FCALL", script.function, len(keys), *keys, *args)

        async def attempt() -> Any:
            try:
                return await self._attempt(self._slots, self.patience_s, command)
            except NoFunction:
                with suppress(NoPermission):
                    await self._attempt(self._slots, self.patience_s, LOAD + (build_library(),))
                return await self._attempt(self._slots, self.patience_s, command)

        return await self.call_with_retries(attempt)

    async def read(self, block_s: float, *command: Argument) -> Any:
        """Make one attempt at a command that Redis answers within `block_s`. Raises
        RedisUnavailable and NoGroup."""
        return await self._attempt(nullcontext(), block_s + self.patience_s, command)

    async def call_with_retries(self, attempt: Callable[[], Awaitable[Any]]) -> Any:
        """Return the outcome of `attempt`, made again after each RedisUnavailable for
        `patience_s`. Logs an outage."""
        give_up_at = time.monotonic() + self.patience_s
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                outcome = await attempt()
            except (NoGroup, NoMemory):
                raise
            except QueueFault as fault:
                is_passing = isinstance(fault, RedisUnavailable)
                needs_help = not is_passing or isinstance(fault, NoFunction)
                self._outage.record_failure(fault, passes=not needs_help)
                if not is_passing or time.monotonic() + pause_s > give_up_at:
                    raise
            else:
                self._outage.record_success()
                return outcome
            await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))
            pause_s = min(2 * pause_s, LAST_PAUSE_S)

    async def close(self) -> None:
        """Close every connection; an exchange under way ends with an error."""
        self._idle = []
        await asyncio.gather(
            *(connection.disconnect() for connection in self._connections), return_exceptions=True
        )
        await asyncio.sleep(
            0
        )  # a connection that broke is closed at the loop's next turn, which may be its last
        for client in self._sentinels:
            await client.aclose()

    async def _attempt(self, slots: Slots, timeout_s: float, command: Sequence[Argument]) -> Any:
        packed = pack_command(tuple(command))  # type: ignore[arg-type]
        try:
            async with asyncio.timeout(timeout_s), slots:
                return await self._exchange(packed)
        except Exception as error:  # uvloop and redis-py raise errors of many classes
            fault = build_fault(error, self._shown, timeout_s)
            if isinstance(fault, RedisUnavailable):
                # The master may be elsewhere now, and the idle connections lead to the old one or
                # to one that hangs.
                for connection in list(self._idle):
                    await _disconnect(connection)
            raise fault from error

    async def _exchange(self, packed: Any) -> Any:
        connection = self._idle.pop() if self._idle else self._new_connection()
        self._connections.add(connection)
        try:
            try:
                is_stale = connection.is_connected and await connection.can_read()
            except redis_errors.ConnectionError:
                is_stale = True
            if is_stale:  # it was closed, or holds the reply to another command
                await _disconnect(connection)
            if not connection.is_connected:
                if self._slot_master:
                    await self._slot_master.lead(connection)
                await connection.connect()  # type: ignore[no-untyped-call]
            await connection.send_packed_command(packed)
            reply = await connection.read_response()
        except redis_errors.ResponseError:
            self._idle.append(connection)  # that was a whole reply
            raise
        except (
            BaseException
        ):  # also a cancellation: half a reply may be on its way, or the login is incomplete
            await _disconnect(connection)
            self._idle.insert(0, connection)
            raise
        self._idle.append(connection)
        return reply


async def _disconnect(connection: AbstractConnection) -> None:
    """Close the connection without waiting; one whose transport is closed already raises errors."""
    with suppress(Exception):
        await connection.disconnect(nowait=True)


def parse_info(reply: str) -> dict[str, str]:
    """Return the fields of a reply to INFO."""
    return dict(line.split(":", 1) for line in reply.splitlines() if ":" in line)


def parse_fields(flat: Sequence[str]) -> dict[str, str]:
    """Return the fields of a stream entry, from its alternating names and values."""
    return dict(zip(flat[::2], flat[1::2], strict=True))


def to_ms(seconds: float) -> int:
    return max(1, round(seconds * 1000))


def split_chunks(items: Iterable[Item]) -> Iterator[list[Item]]:
    """`items` in lists of at most `CHUNK_ITEMS` and, where there are several, `CHUNK_CHARS`."""
    chunk: list[Item] = []
    n_chars = 0
    for item in items:
        size = len(item.payload if isinstance(item, Job) else item)
        if chunk and (len(chunk) == CHUNK_ITEMS or n_chars + size > CHUNK_CHARS):
            yield chunk
            chunk = []
            n_chars = 0
        chunk.append(item)
        n_chars += size
    if chunk:
        yield chunk
