"""Faults to inject into a cluster, one function each; each leaves it able to work. Asks and judges
nothing.

A cluster that is kept starts its dead again by itself.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from types import MappingProxyType

from redis.asyncio import Redis

from tests.chaos.cluster import Cluster, ClusterProcess
from tests.chaos.previous_release import ROOT

Disturbance = Callable[[Cluster, random.Random], Awaitable[None]]


async def kill_worker(cluster: Cluster, rng: random.Random) -> None:
    rng.choice(cluster.workers).signal(signal.SIGKILL)


async def kill_api(cluster: Cluster, rng: random.Random) -> None:
    rng.choice(cluster.apis).signal(signal.SIGKILL)


async def stop_worker(cluster: Cluster, rng: random.Random) -> None:
    rng.choice(cluster.workers).signal(signal.SIGTERM)


async def stop_api(cluster: Cluster, rng: random.Random) -> None:
    rng.choice(cluster.apis).signal(signal.SIGTERM)


async def freeze_worker(cluster: Cluster, rng: random.Random) -> None:
    """Past its lease: others take its jobs, then it wakes up and finishes them."""
    frozen = rng.choice(cluster.workers)
    frozen.signal(signal.SIGSTOP)
    try:
        await asyncio.sleep(cluster.lease_s * rng.uniform(1.25, 2))
    finally:
        frozen.signal(signal.SIGCONT)


async def kill_redis(cluster: Cluster, rng: random.Random) -> None:
    await asyncio.to_thread(cluster.redis.stop, signal.SIGKILL)
    try:
        await asyncio.sleep(rng.uniform(0, 1))
    finally:
        await asyncio.to_thread(cluster.redis.start)


async def restart_redis(cluster: Cluster, rng: random.Random) -> None:
    """SIGTERM, and a start on the append-only file that it left."""
    await asyncio.to_thread(cluster.redis.stop, signal.SIGTERM)
    await asyncio.to_thread(cluster.redis.start)


async def freeze_redis(cluster: Cluster, seconds: float) -> None:
    """Redis answers nothing for so long, with every connection open."""
    os.kill(cluster.redis.pid, signal.SIGSTOP)
    try:
        await asyncio.sleep(seconds)
    finally:
        os.kill(cluster.redis.pid, signal.SIGCONT)


async def demote_redis(cluster: Cluster, rng: random.Random) -> None:
    """The master becomes the replica of a server that is not there, and the master again."""
    async with Redis.from_url(cluster.redis.url) as redis:
        await redis.execute_command("REPLICAOF", "127.0.0.1", "1")
        try:
            await asyncio.sleep(rng.uniform(0.5, 2))
        finally:
            await redis.execute_command("REPLICAOF", "NO", "ONE")


async def lose_power(cluster: Cluster, n_bytes: int) -> None:
    """Redis dies and forgets the last writes that it had confirmed."""
    await asyncio.to_thread(cluster.redis.stop, signal.SIGKILL)
    try:
        cluster.drop_last_writes(n_bytes)
    finally:
        await asyncio.to_thread(cluster.redis.start)


async def cut_network(cluster: Cluster, rng: random.Random) -> None:
    """The isolated worker cannot reach Redis for longer than a lease; no connection is closed."""
    assert cluster.namespace is not None
    cluster.namespace.cut()
    try:
        await asyncio.sleep(cluster.lease_s * rng.uniform(1.25, 2))
    finally:
        cluster.namespace.restore()


async def cut_one_direction(cluster: Cluster, rng: random.Random) -> None:
    """The isolated worker's requests reach Redis and the replies do not reach it, or the
    requests do not."""
    assert cluster.namespace is not None
    with (
        cluster.namespace.drop_incoming()
        if rng.random() < 0.5
        else cluster.namespace.drop_outgoing()
    ):
        await asyncio.sleep(cluster.lease_s * rng.uniform(1.25, 2))


async def restart_in_turn(cluster: Cluster, processes: list[ClusterProcess]) -> None:
    """A rolling restart: the next one is told to stop once the one before has a successor at
    work."""
    for process in processes:
        before = process.pid
        process.signal(signal.SIGTERM)
        await asyncio.to_thread(cluster.wait_until_complete, without=before)


async def upgrade(cluster: Cluster, processes: list[ClusterProcess]) -> None:
    """A rolling upgrade to the code of this checkout, in the order of `processes`."""
    for process in processes:
        process.code = ROOT
    await restart_in_turn(cluster, processes)


async def reset_connections(cluster: Cluster, rng: random.Random) -> None:
    """A firewall or a proxy resets half of the connections to Redis, ten times within a second."""
    assert cluster.proxy is not None
    for _ in range(10):
        cluster.proxy.reset(0.5)
        await asyncio.sleep(rng.uniform(0.02, 0.2))


async def kill_master(cluster: Cluster, rng: random.Random) -> None:
    """SIGKILL the master of a partition; its replica takes over, and it comes back as a replica."""
    servers = cluster.redis_cluster
    prefix = _draw_partition(cluster, rng)

    def kill() -> None:
        assert servers is not None
        servers.kill_master(prefix).server.start()
        servers.wait_until_whole()

    await _run_to_the_end(kill)


async def move_slot(cluster: Cluster, rng: random.Random) -> None:
    """Move a partition to another master, key by key."""
    servers = cluster.redis_cluster
    prefix = _draw_partition(cluster, rng)

    def move() -> None:
        assert servers is not None
        servers.move_slot(prefix)

    await _run_to_the_end(move)


def _draw_partition(cluster: Cluster, rng: random.Random) -> str:
    """Return the prefix of its keys."""
    return f"gradus:{{{rng.randrange(cluster.partitions)}}}:"


async def _run_to_the_end(work: Callable[[], None]) -> None:
    """Run `work` in a thread, to its end where this is cancelled too."""
    running = asyncio.create_task(asyncio.to_thread(work))
    try:
        await asyncio.shield(running)
    except asyncio.CancelledError:
        await running
        raise


OF_PROCESSES: dict[str, Disturbance] = {
    "a worker killed (SIGKILL)": kill_worker,
    "a worker restarted (SIGTERM)": stop_worker,
    "a worker frozen past its lease (SIGSTOP)": freeze_worker,
    "an API killed (SIGKILL)": kill_api,
    "an API restarted (SIGTERM)": stop_api,
}
OF_REDIS: dict[str, Disturbance] = {
    "Redis killed (SIGKILL) and restarted": kill_redis,
    "Redis restarted (SIGTERM)": restart_redis,
    "Redis frozen for 3 s (SIGSTOP)": lambda cluster, _: freeze_redis(cluster, 3),
    "Redis demoted to a replica and promoted": demote_redis,
}
OF_A_REDIS_CLUSTER: dict[str, Disturbance] = {
    "the master of a partition killed (SIGKILL) and back as a replica": kill_master,
    "a partition moved to another master": move_slot,
}
LONG_FREEZES: dict[str, Disturbance] = {
    "Redis frozen for 8 s (SIGSTOP)": lambda cluster, _: freeze_redis(cluster, 8),
    "Redis frozen for 25 s (SIGSTOP)": lambda cluster, _: freeze_redis(cluster, 25),
}
RESETS: dict[str, Disturbance] = {"half of the connections to Redis reset": reset_connections}
A_CUT: dict[str, Disturbance] = {
    "a worker cut off from the network past its lease": cut_network,
    "a worker's network cut in one direction past its lease": cut_one_direction,
}


class Chaos:
    """One disturbance after the other, drawn by chance, each begun a pause after the last one began
    to end."""

    def __init__(
        self,
        cluster: Cluster,
        rng: random.Random,
        pause_s: tuple[float, float] = (0.3, 1.5),
        more: Mapping[str, Disturbance] = MappingProxyType({}),
    ) -> None:
        """`more`: disturbances beside those of each cluster."""
        self._cluster = cluster
        self._random = rng
        self._pause_s = pause_s
        of_servers = OF_A_REDIS_CLUSTER if cluster.redis_cluster else OF_REDIS
        self._possible = OF_PROCESSES | of_servers | dict(more)
        if cluster.namespace:
            self._possible |= A_CUT
        if cluster.proxy:
            self._possible |= RESETS
        self.done: Counter[str] = Counter({name: 0 for name in self._possible})

    @asynccontextmanager
    async def injecting(self) -> AsyncIterator[None]:
        """While the block runs. What has begun then is ended properly."""
        injecting = asyncio.create_task(self._inject())
        try:
            yield
        finally:
            injecting.cancel()
            await asyncio.gather(injecting, return_exceptions=True)

    async def _inject(self) -> None:
        """Goes through all kinds in a random order, then again, so that none is left out."""
        while True:
            for name in self._random.sample(list(self._possible), len(self._possible)):
                await asyncio.sleep(self._random.uniform(*self._pause_s))
                await self._possible[name](self._cluster, self._random)
                self.done[name] += 1
