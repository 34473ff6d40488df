"""A pool of connections to one Redis, without retries.

Only redis-py's connections are used, which log in, speak TLS and parse replies: its client and its pools cost as much
CPU per command again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from inspect import signature
from typing import Any

from redis import exceptions as redis_errors
from redis.asyncio.connection import AbstractConnection, Connection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

Argument = str | int | float

_ANONYMOUS: dict[str, Any] = (
    {"driver_info": None}
    if "driver_info" in signature(AbstractConnection.__init__).parameters
    else {"lib_name": None, "lib_version": None}
)
"""ConnectionPool do not send CLIENT SETINFO: the roles may not, and Redis 7.2 and later log that as refused."""


class ConnectionPool:
    """At most `limit` connections; further requests wait. Connects when first used."""

    def __init__(self, where: dict[str, Any], limit: int, connect_timeout_s: float) -> None:
        """`where`: redis-py's options, which may name a class of connections."""
        self._class: type[AbstractConnection] = where.get("connection_class", Connection)
        self._options: dict[str, Any] = {
            **{name: value for name, value in where.items() if name != "connection_class"},
            "decode_responses": True,
            "encoding_errors": "replace",  # what is no text becomes a job that cannot be read, not an exception here
            "protocol": 2,  # replies have another shape in protocol 3
            "retry": Retry(NoBackoff(), 0),
            "socket_timeout": None,
            "socket_connect_timeout": connect_timeout_s,
            "socket_keepalive": True,
            **_ANONYMOUS,
        }
        self._slots = asyncio.Semaphore(limit)
        self._idle: list[AbstractConnection] = []
        self._open: set[AbstractConnection] = set()
        self._closed: list[AbstractConnection] = []
        """To be opened again: one that speaks TLS has read its certificates."""

    async def ask(self, command: Sequence[Argument]) -> Any:
        """The reply. Raises redis-py's errors, and the system's."""
        async with self._slots:
            connection = await self._connected()
            try:
                await connection.send_command(*command)
                reply = await connection.read_response()
            except redis_errors.ResponseError:
                self._idle.append(connection)  # that was a whole reply
                raise
            except BaseException:  # a caller that was cancelled too: half a reply may be on its way
                await self._drop(connection)
                raise
            self._idle.append(connection)
            return reply

    async def _connected(self) -> AbstractConnection:
        """The connection used last, if it is in order, so that those not needed stay idle. A new one if none is."""
        while self._idle:
            connection = self._idle.pop()
            if await self._is_in_order(connection):
                return connection
            await self._drop(connection)
        connection = self._closed.pop() if self._closed else self._class(**self._options)
        self._open.add(connection)
        try:
            await connection.connect()  # type: ignore[no-untyped-call]
        except BaseException:  # cancelled in the middle of logging in, it is of no use to the next one
            await self._drop(connection)
            raise
        return connection

    async def _is_in_order(self, connection: AbstractConnection) -> bool:
        """Open, with nothing to read: else it is at its end, or out of step."""
        try:
            return connection.is_connected and not await connection.can_read()
        except redis_errors.ConnectionError:
            return False

    async def _drop(self, connection: AbstractConnection) -> None:
        self._open.discard(connection)
        await connection.disconnect(nowait=True)
        self._closed.append(connection)

    async def close_idle(self) -> None:
        """Close those that are not lent: they lead to the wrong place."""
        idle, self._idle = self._idle, []
        for connection in idle:
            await self._drop(connection)

    async def close(self) -> None:
        """All of them; an exchange under way ends with an error."""
        self._idle = []
        closing = (connection.disconnect() for connection in self._open)
        await asyncio.gather(*closing, return_exceptions=True)
        await asyncio.sleep(0)  # what was dropped is closed at the loop's next turn, which may be its last
