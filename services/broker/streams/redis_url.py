"""Connections to the Redis of a URL, by redis-py.

    redis+sentinel://[user:password@]host:port,host:port/NAME/DB[?sentinel_username=...&sentinel_password=...]

Every new connection asks the Sentinels where the master is. User, password and the rest of the
query are for the master. TLS to the Sentinels is not supported. `cluster` has the URLs of clusters.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from redis.asyncio import ConnectionPool, Redis
from redis.asyncio.connection import AbstractConnection, parse_url
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel, SentinelConnectionPool
from redis.backoff import NoBackoff

from services.broker.streams.cluster import is_cluster, split_cluster_url

ASK_S = 1.0
"""Seconds until the next Sentinel is asked."""
DEFAULT_PORT = 26379

OPTIONS: dict[str, Any] = {
    "decode_responses": True,
    "protocol": 2,  # replies have another shape in protocol 3
    "retry": Retry(NoBackoff(), 0),
}


def make_connector(
    url: str, connect_timeout_s: float
) -> tuple[Callable[[], AbstractConnection], list[Redis]]:
    """Return the constructor of connections to the Redis of `url` (in a cluster, to a node that
    `SlotMaster` names), and clients of its Sentinels. Raises ValueError for any other URL."""
    options = {
        **OPTIONS,
        # bytes that are no text become a job that cannot be read, not an exception here
        "encoding_errors": "replace",
        "socket_connect_timeout": connect_timeout_s,
        "socket_keepalive": True,
        "socket_timeout": None,
    }
    # Connections send no CLIENT SETINFO: the roles may not, and Redis 7.2 and later log that as
    # refused.
    if "driver_info" in signature(AbstractConnection.__init__).parameters:
        options["driver_info"] = None
    else:
        options |= {"lib_name": None, "lib_version": None}
    if is_cluster(url):
        url = split_cluster_url(url).node_url
    if urlsplit(url).scheme != "redis+sentinel":
        return ConnectionPool(**{**parse_url(url), **options}).make_connection, []
    sentinels, name, master_url = _split_sentinel_url(url)
    pool = SentinelConnectionPool(  # type: ignore[no-untyped-call]
        name, sentinels, **{**parse_url(master_url), **options}
    )
    return pool.make_connection, sentinels.sentinels


def redact_url(url: str) -> str:
    """`url` without user, password and query."""
    parts = urlsplit(url)
    login, at, address = parts.netloc.rpartition("@")
    return f"{parts.scheme}://{'***@' if login else at}{address}{parts.path}"


def _split_sentinel_url(url: str) -> tuple[Sentinel, str, str]:
    """Return the Sentinels, the name of their master, and a URL with the options for it.

    Raises ValueError when it cannot be read.
    """
    parts = urlsplit(url)
    login, at, hosts = parts.netloc.rpartition("@")
    name, _, db = parts.path.strip("/").partition("/")
    if not hosts or not name:
        raise ValueError("it should read redis+sentinel://host:port,host:port/NAME/DB")
    query = dict(parse_qsl(parts.query))
    sentinel_options = {key: query.pop(f"sentinel_{key}", None) for key in ("username", "password")}
    nodes = [urlsplit(f"//{address}") for address in hosts.split(",")]
    sentinels = Sentinel(  # type: ignore[no-untyped-call]
        [(node.hostname, node.port or DEFAULT_PORT) for node in nodes],
        sentinel_kwargs={
            **OPTIONS,
            **sentinel_options,
            "socket_connect_timeout": ASK_S,
            "socket_timeout": ASK_S,  # one that hangs must not keep the others from being asked
        },
    )
    return sentinels, name, f"redis://{login}{at}master/{db or 0}?{urlencode(query)}"
