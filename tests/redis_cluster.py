"""A Redis Cluster of real processes on this machine: three masters, each with a replica."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from redis import Redis
from redis.crc import key_slot
from redis.exceptions import RedisError

from tests.ports import free_port
from tests.redis_server import RedisServer

N_MASTERS = 3
N_SLOTS = 16384
SOON_S = 60.0
"""Longer than a failover takes on a busy machine."""
NODE_TIMEOUT_MS = 1000
HANDSHAKE_S = 5.0
"""Several times that: what is not a node by then has lapsed."""


class ClusterNode:
    """One server, and commands to it."""

    def __init__(self, folder: Path, acl_file: Path | None) -> None:
        folder.mkdir()
        self.bus = free_port()
        options = ["--cluster-enabled", "yes", "--cluster-port", str(self.bus)]
        options += ["--cluster-node-timeout", str(NODE_TIMEOUT_MS)]
        # A replica follows at once and stands for election however old its data is.
        options += ["--repl-diskless-sync-delay", "0", "--cluster-replica-validity-factor", "0"]
        options += ["--aclfile", str(acl_file)] if acl_file else []
        self.server = RedisServer(folder, append_only=False, options=options)
        self.url = f"redis://{'admin:admin@' if acl_file else ''}127.0.0.1:{self.server.port}"

    def call(self, *command: Any) -> Any:
        with Redis.from_url(self.url, decode_responses=True) as redis:
            return redis.execute_command(*command)

    def call_as(self, user: str, *command: Any) -> Any:
        """`user`: also the password."""
        with Redis.from_url(self.url.replace("admin", user)) as redis:
            return redis.execute_command(*command)

    def get_id(self) -> str:
        return str(self.call("CLUSTER", "MYID"))

    def is_master_of(self, slot: int) -> bool:
        with suppress(RedisError):
            for line in self._list_nodes():
                if "myself,master" in line:
                    return slot in list_slots(line)
        return False

    def is_master(self) -> bool:
        return self.knows("myself,master", 1)

    def migrate(self, keys: list[str], target: ClusterNode) -> None:
        self.call("MIGRATE", "127.0.0.1", target.server.port, "", 0, 5000, "KEYS", *keys)

    def knows(self, text: str, number: int) -> bool:
        with suppress(RedisError):
            return sum(text in line for line in self._list_nodes()) == number
        return False

    def is_linked(self) -> bool:
        """Whether the cluster serves every slot and, of a replica, that it follows its master."""
        with suppress(RedisError):
            info = self.call("INFO", "replication")
            is_up = info.get("master_link_status", "up") == "up"
            return is_up and "cluster_state:ok" in self.call("CLUSTER", "INFO")
        return False

    def _list_nodes(self) -> list[str]:
        return str(self.call("CLUSTER", "NODES")).splitlines()


def list_slots(line: str) -> set[int]:
    """Return the slots of a line of CLUSTER NODES."""
    slots: set[int] = set()
    for text in line.split()[8:]:
        if not text.startswith("["):  # one that moves
            first, _, last = text.partition("-")
            slots.update(range(int(first), int(last or first) + 1))
    return slots


class RedisCluster:
    """`replicated`: with a replica for each master. `acl_file`: users, with `admin:admin` among
    them."""

    def __init__(
        self, folder: Path, *, replicated: bool = True, acl_file: Path | None = None
    ) -> None:
        n_nodes = 2 * N_MASTERS if replicated else N_MASTERS
        self.nodes = [ClusterNode(folder / f"node-{n}", acl_file) for n in range(n_nodes)]

    def build_url(self, partitions: int, login: str = "") -> str:
        addresses = ",".join(f"127.0.0.1:{node.server.port}" for node in self.nodes)
        return f"redis+cluster://{login}{addresses}/?partitions={partitions}"

    @contextmanager
    def running(self) -> Iterator[RedisCluster]:
        try:
            for node in self.nodes:
                node.server.start()
            self._form()
            yield self
        finally:
            for node in self.nodes:
                node.server.stop()

    def _form(self) -> None:
        masters = self.nodes[:N_MASTERS]
        replicas = self.nodes[N_MASTERS:]
        for n, node in enumerate(masters):
            first, after = (N_SLOTS * m // N_MASTERS for m in (n, n + 1))
            node.call("CLUSTER", "ADDSLOTSRANGE", first, after - 1)
        for n, node in enumerate(self.nodes):
            node.call("CLUSTER", "SET-CONFIG-EPOCH", n + 1)
        self._meet()
        for master, replica in zip(masters, replicas, strict=False):
            replica.call("CLUSTER", "REPLICATE", master.get_id())
        self.wait_until_whole()

    def _meet(self) -> None:
        """Introduce all nodes to the first, again where a handshake took too long. Handshakes that
        are under way count as nodes, so they get the time to end or lapse."""
        give_up_at = time.monotonic() + SOON_S
        while not self._has_met():
            assert time.monotonic() < give_up_at, "the nodes do not meet"
            for node in self.nodes[1:]:
                address = ("127.0.0.1", self.nodes[0].server.port, self.nodes[0].bus)
                node.call("CLUSTER", "MEET", *address)
            again_at = time.monotonic() + HANDSHAKE_S
            while not self._has_met() and time.monotonic() < again_at:
                time.sleep(0.02)

    def _has_met(self) -> bool:
        return all(node.knows(" connected", len(self.nodes)) for node in self.nodes)

    def wait_until_whole(self) -> None:
        """Every slot is served, and every replica follows its master."""
        for node in self.nodes:
            wait_until(node.is_linked)
            wait_until(lambda node=node: node.knows("slave", len(self.nodes) - N_MASTERS))

    def find_master(self, slot: int) -> ClusterNode:
        found: list[ClusterNode] = []

        def look() -> bool:
            found[:] = [node for node in self.nodes if node.is_master_of(slot)]
            return len(found) == 1

        wait_until(look)
        return found[0]

    def kill_master(self, prefix: str) -> ClusterNode:
        """SIGKILL the master of the keys of `prefix`; return it once its replica is the master.
        Start it again, and it is a replica."""
        slot = key_slot(prefix.encode())
        killed = self.find_master(slot)
        killed.server.stop()
        self.find_master(slot)
        return killed

    def move_slot(self, prefix: str, pause_s: float = 0.0) -> None:
        """Move the keys of `prefix` to another master, as `redis-cli --cluster reshard` does, with
        a pause after each ten keys."""
        slot = key_slot(prefix.encode())
        source = self.find_master(slot)
        target = next(node for node in self.nodes if node.is_master() and node is not source)
        self.begin_move(slot, source, target)
        while keys := source.call("CLUSTER", "GETKEYSINSLOT", slot, 10):
            source.migrate(keys, target)
            time.sleep(pause_s)
        self.end_move(slot, source, target)

    def begin_move(self, slot: int, source: ClusterNode, target: ClusterNode) -> None:
        target.call("CLUSTER", "SETSLOT", slot, "IMPORTING", source.get_id())
        source.call("CLUSTER", "SETSLOT", slot, "MIGRATING", target.get_id())

    def end_move(self, slot: int, source: ClusterNode, target: ClusterNode) -> None:
        """Move the keys that are left, and make `target` the master."""
        while keys := source.call("CLUSTER", "GETKEYSINSLOT", slot, 10):
            source.migrate(keys, target)
        for node in (target, source):
            node.call("CLUSTER", "SETSLOT", slot, "NODE", target.get_id())


def wait_until(happened: Any) -> None:
    give_up_at = time.monotonic() + SOON_S
    while not happened():
        assert time.monotonic() < give_up_at, "the cluster does not get there"
        time.sleep(0.02)
