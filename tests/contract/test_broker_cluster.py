"""The queue in a Redis Cluster: partitions in slots of their own, slots that move, masters that
die. `test_broker.py` asserts of one partition what every broker does."""

from __future__ import annotations

import asyncio
import hashlib
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from redis.asyncio import Redis
from redis.crc import key_slot

from gradus.descriptions import GraderInfo
from gradus.errors import Misuse, QueueFault
from services.broker import (
    DEAD_AFTER_S,
    MAX_DELIVERIES,
    BrokerSettings,
    Claim,
    FairShare,
    Job,
    QueueFull,
    QueueState,
    QueueStats,
)
from services.broker.from_url import open_broker
from services.broker.partitioned import PartitionedBroker
from services.broker.streams import StreamsBroker
from tests.ports import free_port
from tests.redis_cluster import RedisCluster

SOON_S = 60.0
"""Longer than anything here takes on a busy machine; nothing waits for it to pass."""
N_PARTITIONS = 5
OCAML = GraderInfo(
    name="ocaml", revision="r1", toolchain="4", rubrics=("ocaml/graduated@1",), sandbox="none"
)
Open = Callable[..., PartitionedBroker]


@pytest.fixture
def prefix() -> str:
    return f"test-{uuid.uuid4().hex}:"


@pytest.fixture
async def open_cluster(redis_cluster: RedisCluster, prefix: str) -> AsyncIterator[Open]:
    """Opens brokers on the cluster of the session."""
    opened: list[PartitionedBroker] = []

    def open_one(settings: BrokerSettings | None = None) -> PartitionedBroker:
        url = redis_cluster.build_url(N_PARTITIONS)
        opened.append(PartitionedBroker(url, settings, prefix=prefix))
        return opened[-1]

    yield open_one
    for broker in opened:
        await broker.close()


def jobs(n_jobs: int, name: str = "job") -> list[Job]:
    return [Job(f"ocaml:{name}-{n}", "ocaml", "{}") for n in range(n_jobs)]


def ids(of: list[Job]) -> list[str]:
    return [job.id for job in of]


def grade(job_id: str) -> str:
    """The right result."""
    return hashlib.sha256(job_id.encode()).hexdigest()


async def take(broker: PartitionedBroker, n_jobs: int, worker: str = "w") -> list[Claim]:
    claims: list[Claim] = []
    async with asyncio.timeout(SOON_S):
        while len(claims) < n_jobs:
            claims += await broker.claim("ocaml", worker, n_jobs - len(claims), 1.0)
    return claims


def spread(n_jobs: int, name: str = "job") -> list[Job]:
    """One job of each of the first partitions."""
    found: dict[int, Job] = {}
    for job in jobs(100, name):
        found.setdefault(_find(job.id), job)
    return [found[number] for number in range(n_jobs)]


def _find(job_id: str) -> int:
    broker = PartitionedBroker(f"redis+cluster://host/?partitions={N_PARTITIONS}")
    return broker._find(job_id)


# ------------------------------------------------------------------------------------- partitions


async def test_all_keys_of_a_partition_lie_in_one_slot_and_every_key_in_a_partition(
    open_cluster: Open, redis_cluster: RedisCluster, prefix: str
) -> None:
    asking, grading = open_cluster(), open_cluster()
    batch = jobs(40)
    await asking.submit(batch, FairShare("key run"))
    await grading.heartbeat("w", OCAML, 60)
    await asking.keep_job("a", "text", 60, FairShare("key"), await asking.get_time() + 60)
    for claim in await take(grading, 40):
        assert await grading.finish(claim, "{}", cache=True, dead_letter=True)
    assert len([one async for one in asking.wait(ids(batch), SOON_S)]) == 40
    keys: set[str] = set()
    for node in redis_cluster.nodes:
        async with Redis.from_url(node.url, decode_responses=True) as redis:
            keys.update([key async for key in redis.scan_iter(f"{prefix}*", count=1000)])
    tags = {key.removeprefix(prefix).partition("}")[0] for key in keys}
    assert tags == {f"{{{n}" for n in range(N_PARTITIONS)}
    kinds = {key.split("}:")[1].split(":")[0] for key in keys}
    assert kinds > {"dead", "inbox", "kept", "note", "result", "worker", "workers"}


async def test_what_partitions_hold_is_added_up(open_cluster: Open) -> None:
    broker = open_cluster(BrokerSettings(max_dead_letters=100))
    batch = spread(N_PARTITIONS)
    await broker.submit(batch, FairShare("key run"))
    assert await broker.depth("ocaml") == N_PARTITIONS
    claims = await take(broker, 2)
    assert await broker.get_queue_stats("ocaml") == QueueStats(3, 2, 0, 0)
    assert len({claim.token for claim in claims}) == 2
    listed = await broker.list_unfinished("ocaml")
    assert [job.is_running for job in listed] == [True] * 2 + [False] * 3
    assert sorted(job.id for job in listed) == sorted(ids(batch))
    assert len(await broker.list_unfinished("ocaml", 1)) == 2
    assert await broker.renew(claims) == []
    await broker.cancel("ocaml", [claims[0].job.id])
    assert await broker.renew(claims) == [claims[0]]
    await broker.release(claims[1])
    assert await broker.revoke("ocaml", ids(batch)) == 4
    await broker.set_queue_state("ocaml", QueueState.DRAINING)
    with pytest.raises(QueueFull):
        await broker.submit(jobs(1, "refused"))
    assert await broker.get_queue_state("ocaml") == QueueState.DRAINING
    assert await broker.migrate() == await broker.migrate()
    assert await broker.get_memory_fill() == 0


async def test_registrations_are_in_every_partition_and_count_once(open_cluster: Open) -> None:
    broker = open_cluster()
    for worker in ("one", "two"):
        await broker.heartbeat(worker, OCAML, 60)
    assert [info.workers for info in await broker.graders()] == [2]
    ends = await broker.get_registrations()
    assert sorted(ends) == ["ocaml:one", "ocaml:two"]
    assert min(ends.values()) > await broker.get_time()
    await broker.heartbeat("one", OCAML, 0)
    assert [info.workers for info in await broker.graders()] == [1]


async def test_notes_of_a_job_lie_together(open_cluster: Open) -> None:
    broker = open_cluster(BrokerSettings(max_note_bytes=N_PARTITIONS * 5000))
    past, later = [await broker.get_time() + seconds for seconds in (-1000, 1000)]
    key = FairShare("key")
    assert await broker.keep_job("a", "x", 60, key, past)
    await broker.save_note("done:a", "y", 60)
    assert await broker.get_notes(["job:a", "done:a"]) == {"job:a": "x", "done:a": "y"}
    kept = 0
    for n in range(100):  # at least two in each partition, whose part has room for two
        kept += await broker.keep_job(f"b{n}", "x", 60, key, later)
    assert kept == 2 * N_PARTITIONS
    assert await broker.get_notes(["job:a", "done:a"]) == {}


async def test_a_refused_batch_leaves_nothing_in_any_partition(open_cluster: Open) -> None:
    broker = open_cluster(BrokerSettings(max_depth=2 * N_PARTITIONS))
    with pytest.raises(QueueFull):
        await broker.submit(jobs(20 * N_PARTITIONS))
    assert await broker.depth("ocaml") == 0
    await broker.submit(spread(N_PARTITIONS))
    assert await broker.depth("ocaml") == N_PARTITIONS


@pytest.mark.slow
async def test_a_suspect_of_one_partition_runs_beside_no_job_of_another(
    open_cluster: Open,
) -> None:
    broker = open_cluster(BrokerSettings(lease_s=0.2))
    suspect, *others = spread(3)
    await broker.submit([suspect])
    for n in range(MAX_DELIVERIES - 1):
        await take(broker, 1, f"dead-{n}")
    holding = open_cluster()
    await holding.submit(others)
    held = await take(holding, 2)
    async with asyncio.timeout(SOON_S):
        while not holding._partitions[0].is_reserved("ocaml", "w"):  # until the last lease lapses
            assert await holding.renew(held) == []
            assert await holding.claim("ocaml", "w", 8, 0.1) == []
    await holding.submit(spread(3, "later"))
    assert await holding.claim("ocaml", "w", 8, 0.3) == [], "it waits until it holds nothing"
    for claim in held:
        await holding.finish(claim, "{}", cache=True)
    [alone] = await holding.claim("ocaml", "w", 8, SOON_S)
    assert (alone.job, alone.deliveries) == (suspect, MAX_DELIVERIES)
    assert await holding.claim("ocaml", "w", 8, 0.1) == []
    await holding.finish(alone, "{}", cache=True)
    assert len(await take(holding, 3)) == 3


async def test_a_waiting_claim_is_woken_by_any_partition(open_cluster: Open) -> None:
    asking, grading = open_cluster(), open_cluster()
    for job in spread(N_PARTITIONS):
        claiming = asyncio.create_task(grading.claim("ocaml", "w", 8, SOON_S))
        await asyncio.sleep(0.05)
        await asking.submit([job])
        [claim] = await claiming
        assert claim.job == job
        await grading.finish(claim, "{}", cache=True)


async def test_a_plain_url_of_a_cluster_is_refused_with_the_right_one(
    redis_cluster: RedisCluster, prefix: str
) -> None:
    broker = StreamsBroker(redis_cluster.nodes[0].url, prefix=prefix)
    with pytest.raises(QueueFault, match=r"is a cluster: begin its URL with redis\+cluster://"):
        await broker.submit(jobs(1))
    await broker.close()


async def test_a_redis_that_is_no_cluster_says_so(redis_url: str) -> None:
    url = redis_url.replace("redis://", "redis+cluster://me:geheim@")
    broker = PartitionedBroker(redis_url.replace("redis://", "redis+cluster://"), patience_s=0.2)
    with pytest.raises(QueueFault, match="cluster support disabled"):
        await broker.submit(jobs(1))
    await broker.close()
    broker = PartitionedBroker(url, patience_s=0.2)
    with pytest.raises(QueueFault) as fault:
        await broker.submit(jobs(1))
    assert "geheim" not in fault.value.message
    await broker.close()


@pytest.mark.parametrize("query", ["?partitions=0", "?partitions=x"])
def test_a_cluster_url_that_cannot_be_read_is_misuse(query: str) -> None:
    for url in ("redis+cluster://", f"redis+cluster://host:1/{query}", "redis+cluster://host:x/"):
        with pytest.raises(Misuse, match="broker URL"):
            open_broker(url)


async def test_calls_that_find_a_partition_away_together_share_one_probe() -> None:
    url = f"redis+cluster://127.0.0.1:{free_port()}/?partitions=1"
    broker = PartitionedBroker(url, patience_s=0.1)
    looks = [broker.claim("ocaml", f"w{n}", 1, 0) for n in range(3)]
    outcomes = await asyncio.gather(*looks, return_exceptions=True)
    assert all(isinstance(outcome, QueueFault) for outcome in outcomes)
    names = [getattr(task.get_coro(), "__name__", "") for task in asyncio.all_tasks()]
    assert names.count("_probe") == 1
    await broker.close()


# ------------------------------------------------------------------------------------- slots move


@pytest.mark.slow
async def test_a_script_changes_nothing_while_its_slot_moves(
    redis_cluster: RedisCluster, prefix: str
) -> None:
    """Redis would end it at the first key that moved: its job would have left the queue."""
    own = f"{prefix}{{0}}:"
    url = redis_cluster.build_url(1)
    patient = PartitionedBroker(url, prefix=prefix, patience_s=SOON_S)
    await patient.submit(jobs(3))
    await take(patient, 1)  # now there is every key that the script names
    slot = key_slot(own.encode())
    source = redis_cluster.find_master(slot)
    target = next(node for node in redis_cluster.nodes if node is not source)
    redis_cluster.begin_move(slot, source, target)
    source.migrate([f"{own}job:ocaml:job-1"], target)
    claiming = asyncio.create_task(take(patient, 1))
    asking = asyncio.create_task(patient.submit(jobs(1, "new")))
    await asyncio.sleep(0.3)
    assert source.call("ZRANGE", f"{own}queue:ocaml", 0, -1) == ["ocaml:job-1", "ocaml:job-2"]
    assert not claiming.done()
    assert not asking.done()
    target.call("FUNCTION", "FLUSH")  # a master that never had a partition
    await asyncio.to_thread(redis_cluster.end_move, slot, source, target)
    await asking
    [claim] = await claiming
    # On a busy machine the reply to a claim can come too late: then another job is the next.
    assert claim.job.id in ("ocaml:job-1", "ocaml:job-2")
    await patient.close()


class Load:
    """Clients that submit and repeat what failed, and workers that finish what they claim."""

    def __init__(self, url: str, prefix: str) -> None:
        self._url = url
        self._prefix = prefix
        self.submitted: list[Job] = []
        self.answers: Counter[tuple[str, str]] = Counter()
        self.n_finished: Counter[str] = Counter()

    def _open(self) -> PartitionedBroker:
        return PartitionedBroker(self._url, BrokerSettings(lease_s=5.0), prefix=self._prefix)

    async def ask(self, name: str, stop: asyncio.Future[None]) -> None:
        """Submit batches until `stop` is done."""
        broker = self._open()
        while not stop.done():
            batch = jobs(10, f"{name}-{len(self.submitted)}")
            self.submitted += batch
            async with asyncio.timeout(SOON_S):
                await self._ask(broker, batch)
        await broker.close()

    async def _ask(self, broker: PartitionedBroker, batch: list[Job]) -> None:
        missing = {job.id: job for job in batch}
        while missing:
            with suppress(QueueFault):  # as a client that gets 503
                for job_id, result in (await broker.submit(list(missing.values()))).items():
                    self.answers[job_id, result] += 1
                    del missing[job_id]
                async for job_id, result in broker.wait(list(missing), SOON_S):
                    self.answers[job_id, result] += 1
                    del missing[job_id]

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        """Three processes with four slots each."""
        brokers = [self._open() for _ in range(3)]
        slots = [
            asyncio.create_task(self._work(broker, f"w{m}-{n}"))
            for m, broker in enumerate(brokers)
            for n in range(4)
        ]
        yield
        for slot in slots:
            slot.cancel()
        await asyncio.gather(*slots, return_exceptions=True)
        for broker in brokers:
            await broker.close()

    async def _work(self, broker: PartitionedBroker, name: str) -> None:
        while True:
            with suppress(QueueFault):
                for claim in await broker.claim("ocaml", name, 1, 1.0):
                    await self._finish(broker, claim)

    async def _finish(self, broker: PartitionedBroker, claim: Claim) -> None:
        job_id = claim.job.id
        await asyncio.sleep(0.005)
        for _ in range(5):
            with suppress(QueueFault):
                self.n_finished[job_id] += await broker.finish(claim, grade(job_id), cache=True)
                return


@pytest.fixture
def replicated(tmp_path: Path) -> Iterator[RedisCluster]:
    with RedisCluster(tmp_path).running() as cluster:
        yield cluster


async def run_load(cluster: RedisCluster, disturb: Callable[[], None], prefix: str) -> Load:
    load = Load(cluster.build_url(4), prefix)
    disturbing = asyncio.ensure_future(asyncio.to_thread(disturb))
    async with load.working():
        await asyncio.gather(*(load.ask(f"client-{n}", disturbing) for n in range(12)))
    await disturbing
    assert load.submitted
    assert load.answers == {(job.id, grade(job.id)): 1 for job in load.submitted}
    return load


@pytest.mark.slow
async def test_a_master_that_is_killed_under_load_loses_nothing(
    replicated: RedisCluster, prefix: str
) -> None:
    def disturb() -> None:
        for n in (0, 3):
            killed = replicated.kill_master(f"{prefix}{{{n}}}:")
            killed.server.start()
            replicated.wait_until_whole()

    await run_load(replicated, disturb, prefix)


@pytest.mark.slow
async def test_a_slot_that_moves_under_load_loses_nothing_and_ends_no_job_twice(
    replicated: RedisCluster, prefix: str
) -> None:
    def disturb() -> None:
        for n in (0, 3, 0, 1, 2, 3):
            replicated.move_slot(f"{prefix}{{{n}}}:", pause_s=0.02)

    load = await run_load(replicated, disturb, prefix)
    assert set(load.n_finished.values()) == {1}


@pytest.mark.slow
async def test_a_partition_that_is_away_delays_no_other(
    replicated: RedisCluster, prefix: str
) -> None:
    """Its master and replica are both gone."""
    for node in replicated.nodes:
        node.call("CONFIG", "SET", "cluster-require-full-coverage", "no")
    broker = PartitionedBroker(replicated.build_url(4), prefix=prefix)
    await broker.submit(jobs(8, "before"))
    slot = key_slot(f"{prefix}{{0}}:".encode())
    master = replicated.find_master(slot)
    replica = replicated.nodes[replicated.nodes.index(master) + 3]
    for node in (replica, master):
        node.server.stop()
    await broker.heartbeat("w", OCAML, 60)
    assert [info.workers for info in await broker.graders()] == [1]
    others = [job for job in jobs(8, "before") if broker._find(job.id) != 0]
    claims = await take(broker, len(others))
    until = time.monotonic() + 2 * DEAD_AFTER_S
    while time.monotonic() < until:
        await broker.renew(claims)
        await asyncio.sleep(0.5)
    thief = PartitionedBroker(replicated.build_url(4), prefix=prefix)
    assert await thief.claim("ocaml", "thief", 8, 3.0) == []
    for claim in claims:
        assert claim.deliveries == 1
        assert await broker.finish(claim, "{}", cache=True)
    await broker.close()
    await thief.close()
