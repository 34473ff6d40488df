"""Redis behind Sentinels: every new connection asks them where the master is.

    redis+sentinel://[user:password@]host:port,host:port/NAME/DB[?sentinel_username=...&sentinel_password=...]

User, password and the rest of the query are for the master. TLS to the Sentinels is not supported.
"""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from redis import exceptions as redis_errors
from redis.asyncio import Connection, Redis
from redis.asyncio.connection import parse_url
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

SCHEME = "redis+sentinel"
ASK_S = 1.0
"""Seconds until the next Sentinel is asked."""
DEFAULT_PORT = 26379


class Sentinels:
    """Those of one URL. Raises ValueError when it cannot be read."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        login, at, hosts = parts.netloc.rpartition("@")
        self.name, _, db = parts.path.strip("/").partition("/")
        if not hosts or not self.name:
            raise ValueError(f"it should read {SCHEME}://host:port,host:port/NAME/DB")
        query = dict(parse_qsl(parts.query))
        own = {key: query.pop(f"sentinel_{key}", None) for key in ("username", "password")}
        self.master_options: dict[str, Any] = {
            **parse_url(f"redis://{login}{at}master/{db or 0}?{urlencode(query)}"),
            "connection_class": MasterConnection,
            "sentinels": self,
        }
        self._clients = [_client(address, own) for address in hosts.split(",")]

    async def master(self) -> tuple[str, int]:
        """Where the first that answers says it is. Raises redis-py's ConnectionError when none does."""
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


def _client(address: str, login: dict[str, str | None]) -> Redis:
    host, colon, port = address.rpartition(":")
    if not colon or port.endswith("]"):
        host, port = address, str(DEFAULT_PORT)
    return Redis(
        host=host.strip("[]"),
        port=int(port),
        username=login["username"],
        password=login["password"],
        decode_responses=True,
        protocol=2,
        retry=Retry(NoBackoff(), 0),
        socket_timeout=None,
        socket_connect_timeout=ASK_S,
    )
