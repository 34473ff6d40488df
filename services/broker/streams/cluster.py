"""The master of a hash slot in a Redis Cluster, which failovers and resharding change.

    redis+cluster://[user:password@]host:port,host:port/[?partitions=8]

rediss+cluster:// for TLS. Some nodes are enough: they name the others. All keys of one connection
have one slot, so it leads to one master, and nothing follows redirections.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlencode, urlsplit

from redis import exceptions as redis_errors
from redis.asyncio.connection import AbstractConnection
from redis.crc import key_slot

SCHEMES = ("redis+cluster", "rediss+cluster")
ASK_S = 1.0
"""Seconds until the next node is asked."""
DEFAULT_PORT = 6379
DEFAULT_PARTITIONS = 8
UNKNOWN_HOSTS = (None, "", "?")
"""What a node announces in place of its host where it is the one asked, or does not know."""


Address = tuple[str, int]


class ClusterUrl(NamedTuple):
    """The parts of a cluster's URL."""

    nodes: list[Address]
    node_url: str
    """URL with the options of each node."""
    partitions: int


def is_cluster(url: str) -> bool:
    return urlsplit(url).scheme in SCHEMES


def split_cluster_url(url: str) -> ClusterUrl:
    """Raise ValueError when `url` cannot be read."""
    parts = urlsplit(url)
    login, at, hosts = parts.netloc.rpartition("@")
    if not hosts:
        raise ValueError("it should read redis+cluster://host:port,host:port/?partitions=8")
    query = dict(parse_qsl(parts.query))
    partitions = int(query.pop("partitions", DEFAULT_PARTITIONS))
    if partitions < 1:
        raise ValueError("partitions is below 1")
    nodes = []
    for address in hosts.split(","):
        node = urlsplit(f"//{address}")
        nodes.append((node.hostname or "localhost", node.port or DEFAULT_PORT))
    scheme = parts.scheme.removesuffix("+cluster")
    return ClusterUrl(nodes, f"{scheme}://{login}{at}node/0?{urlencode(query)}", partitions)


class SlotMaster:
    """Finds the master of the slot of all keys with one prefix."""

    def __init__(
        self, url: str, prefix: str, new_connection: Callable[[], AbstractConnection]
    ) -> None:
        """Raises ValueError when `url` cannot be read. `new_connection`: to any node."""
        self._seeds = split_cluster_url(url).nodes
        self._nodes = self._seeds
        self._slot = key_slot(prefix.encode())
        self._new_connection: Callable[[], Any] = new_connection

    async def lead(self, connection: Any) -> None:
        """Let a closed connection lead to the master. Raises redis-py's errors.

        Nodes are asked in an order drawn by chance: one that is cut off from the others knows an
        old master, and the next attempt probably asks another one.
        """
        for node in random.sample(self._nodes, len(self._nodes)):
            announced = list(self._seeds)
            masters = []
            for first, last, *servers in await self._list_slots(node):
                addresses = [_read_address(server, node) for server in servers]
                announced += addresses
                if first <= self._slot <= last:
                    masters.append(addresses[0])
            if masters:
                self._nodes = list(dict.fromkeys(announced))
                [(connection.host, connection.port)] = masters
                return
        raise redis_errors.ConnectionError("no node of the cluster knows the master")

    async def _list_slots(self, node: Address) -> list[Any]:
        """Return the reply to CLUSTER SLOTS; empty where the node does not answer."""
        connection = self._new_connection()
        connection.host, connection.port = node
        try:
            async with asyncio.timeout(ASK_S):
                await connection.connect()
                await connection.send_command("CLUSTER", "SLOTS")
                return list(await connection.read_response())
        except (redis_errors.AuthenticationError, redis_errors.ResponseError):
            raise
        except Exception:  # noqa: BLE001 - uvloop and redis-py raise errors of many classes
            return []
        finally:
            with suppress(Exception):
                await connection.disconnect(nowait=True)


def _read_address(server: Any, node: Address) -> Address:
    """Return the address that CLUSTER SLOTS announces; without a host it is that of the node that
    was asked."""
    host, port, *_ = server
    return (node[0] if host in UNKNOWN_HOSTS else host), port
