"""Connections to the Redis of a URL: redis-py's for redis:// and rediss://, ours for a Redis behind
Sentinels.

    redis+sentinel://[user:password@]host:port,host:port/NAME/DB[?sentinel_username=...&sentinel_password=...]

Every new connection asks the Sentinels where the master is. User, password and the rest of the
query are for the master. TLS to the Sentinels is not supported.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from inspect import signature
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from redis import exceptions as redis_errors
from redis.asyncio import Connection, Redis
from redis.asyncio.connection import AbstractConnection, parse_url
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

ASK_S = 1.0
"""Seconds until the next Sentinel is asked."""
DEFAULT_PORT = 26379

OPTIONS: dict[str, Any] = {
    "decode_responses": True,
    "protocol": 2,  # replies have another shape in protocol 3
    "retry": Retry(NoBackoff(), 0),
    "socket_timeout": None,
}


def connector(
    url: str, connect_timeout_s: float
) -> tuple[Callable[[], AbstractConnection], Sentinels | None]:
    """The constructor of connections to the Redis of `url`, and its Sentinels. Raises ValueError
    for any other URL."""
    sentinels = Sentinels(url) if urlsplit(url).scheme == "redis+sentinel" else None
    options = {
        **(sentinels.master_options if sentinels else parse_url(url)),
        **OPTIONS,
        # bytes that are no text become a job that cannot be read, not an exception here
        "encoding_errors": "replace",
        "socket_connect_timeout": connect_timeout_s,
        "socket_keepalive": True,
    }
    # Connections send no CLIENT SETINFO: the roles may not, and Redis 7.2 and later log that as
    # refused.
    if "driver_info" in signature(AbstractConnection.__init__).parameters:
        options["driver_info"] = None
    else:
        options |= {"lib_name": None, "lib_version": None}
    return partial(options.pop("connection_class", Connection), **options), sentinels


def redacted(url: str) -> str:
    """`url` without user, password and query."""
    parts = urlsplit(url)
    login, at, address = parts.netloc.rpartition("@")
    return f"{parts.scheme}://{'***@' if login else at}{address}{parts.path}"


class Sentinels:
    """Those of one URL. Raises ValueError when it cannot be read."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        login, at, hosts = parts.netloc.rpartition("@")
        self.name, _, db = parts.path.strip("/").partition("/")
        if not hosts or not self.name:
            raise ValueError("it should read redis+sentinel://host:port,host:port/NAME/DB")
        query = dict(parse_qsl(parts.query))
        own = {key: query.pop(f"sentinel_{key}", None) for key in ("username", "password")}
        self.master_options: dict[str, Any] = {
            **parse_url(f"redis://{login}{at}master/{db or 0}?{urlencode(query)}"),
            "connection_class": MasterConnection,
            "sentinels": self,
        }
        self._clients = []
        for address in hosts.split(","):
            node = urlsplit(f"//{address}")
            place = {"host": node.hostname, "port": node.port or DEFAULT_PORT}
            options = {**OPTIONS, **own, **place, "socket_connect_timeout": ASK_S}
            self._clients.append(Redis(**options))

    async def master(self) -> tuple[str, int]:
        """Where the first that answers says it is. Raises redis-py's ConnectionError when none
        does."""
        for client in self._clients:
            try:
                async with asyncio.timeout(ASK_S):
                    found = await client.execute_command(  # type: ignore[no-untyped-call]
                        "SENTINEL", "GET-MASTER-ADDR-BY-NAME", self.name
                    )
            except (TimeoutError, redis_errors.RedisError):
                continue
            if found:
                return found[0], int(found[1])
        raise redis_errors.ConnectionError(f"no Sentinel says where the master {self.name!r} is")

    async def close(self) -> None:
        for client in self._clients:
            await client.aclose()


class MasterConnection(Connection):
    """Goes wherever the master is at the moment of connecting."""

    def __init__(self, *, sentinels: Sentinels, **options: Any) -> None:
        self._sentinels = sentinels
        super().__init__(**options)

    async def connect(self) -> None:
        if not self.is_connected:
            self.host, self.port = await self._sentinels.master()
        await super().connect()  # type: ignore[no-untyped-call]
