"""A queue over two real Redis servers: both are used, what belongs together meets, and one may be
away."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from gradus.errors import Misuse, QueueFault
from services.broker import (
    MAX_DELIVERIES,
    Broker,
    BrokerSettings,
    Claim,
    DeadLetter,
    FairShare,
    Job,
    Priority,
    QueueFull,
    QueueState,
    QueueStats,
)
from services.broker.from_url import open_broker
from services.broker.shards import ShardedBroker
from tests.conftest import RedisServer
from tests.fake_grader import INFO

SOON_S = 30.0
"""Longer than anything here takes on a busy machine; nothing waits for it to pass."""
Servers = list[RedisServer]


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Servers]:
    made = []
    for number in range(2):
        folder = tmp_path / f"redis-{number}"
        folder.mkdir()
        made.append(RedisServer(folder, append_only=True))
        made[-1].start()
    yield made
    for server in made:
        server.stop()


def url_of(servers: Servers) -> str:
    return " ".join(server.url for server in servers)


@asynccontextmanager
async def opened(
    servers: Servers, number: int = 1, settings: BrokerSettings | None = None
) -> AsyncIterator[list[Broker]]:
    brokers = [open_broker(url_of(servers), settings) for _ in range(number)]
    try:
        yield brokers
    finally:
        for broker in brokers:
            await broker.close()


async def depths(servers: Servers) -> list[int]:
    found = []
    for server in servers:
        broker = open_broker(server.url)
        found.append(await broker.depth("ocaml"))
        await broker.close()
    return found


def jobs(number: int, name: str = "job") -> list[Job]:
    return [Job(f"ocaml:{name}-{n}", "ocaml", "{}") for n in range(number)]


@asynccontextmanager
async def working(servers: Servers, number: int = 6) -> AsyncIterator[list[str]]:
    """Workers, four of the first shard and two of the second; the ids of the jobs that they
    finished first."""
    done: list[str] = []

    async def work(name: str) -> None:
        async with opened(servers) as [broker]:
            while True:
                try:
                    await broker.heartbeat(name, INFO, 5)
                    claims = await broker.claim("ocaml", name, 4, 0.5)
                    assert await broker.renew(claims) == []
                    for claim in claims:
                        if await broker.finish(claim, "{}", cache=True):
                            done.append(claim.job.id)
                        assert not await broker.finish(claim, "{}", cache=True)
                except QueueFault:
                    await asyncio.sleep(0.1)

    tasks = [asyncio.create_task(work(f"fleet-{n}")) for n in range(number)]
    try:
        yield done
    finally:
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        assert [error for error in ended if not isinstance(error, asyncio.CancelledError)] == []


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(SOON_S):
        while not condition():  # noqa: ASYNC110 - other processes act
            await asyncio.sleep(0.05)


async def slots(broker: Broker, number: int) -> None:
    """Returns when that many workers are known."""
    async with asyncio.timeout(SOON_S):
        while sum(info.workers for info in await broker.graders()) != number:  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def answered(broker: Broker, batch: list[Job]) -> list[str]:
    return sorted([job_id async for job_id, _ in broker.wait([job.id for job in batch], SOON_S)])


async def test_both_shards_have_jobs_and_all_are_answered_whichever_process_asks(
    servers: Servers,
) -> None:
    batch = jobs(600)
    ids = sorted(job.id for job in batch)
    async with opened(servers, 2) as (asking, other), working(servers) as done:
        await slots(asking, 6)
        await slots(other, 6)
        await asking.submit(batch)
        await other.submit(batch[:300])
        assert await answered(asking, batch) == ids
        assert await answered(other, batch[:300]) == sorted(job.id for job in batch[:300])
        assert sorted(await other.submit(batch)) == ids
        assert sorted(done) == ids
        found = [await stored(server, ids) for server in servers]
        assert all(100 < number < 500 for number in found)
        assert sum(found) == 600
        assert await depths(servers) == [0, 0]


async def stored(server: RedisServer, ids: list[str]) -> int:
    broker = open_broker(server.url)
    number = len(await broker.results(ids))
    await broker.close()
    return number


async def test_jobs_in_a_shard_without_workers_are_found(servers: Servers) -> None:
    async with opened(servers) as [asking]:
        await asking.submit(jobs(20))
        assert all(await depths(servers))
        async with working(servers, 1) as done:
            assert await answered(asking, jobs(20)) == sorted(job.id for job in jobs(20))
            await until(
                lambda: len(done) == 20
            )  # a client may have the last result before its worker knows


async def test_a_shard_gets_jobs_by_the_slots_of_its_workers(servers: Servers) -> None:
    async with opened(servers) as [asking]:
        for server, n_slots in zip(servers, (6, 2), strict=True):
            broker = open_broker(server.url)
            await broker.heartbeat("w", INFO.model_copy(update={"slots": n_slots}), 60)
            await broker.heartbeat(
                "v", INFO.model_copy(update={"name": "rust", "slots": 9}), 60 * (n_slots == 2)
            )
            await broker.close()
        assert [(info.name, info.workers, info.slots) for info in await asking.graders()] == [
            ("ocaml", 2, 8),
            ("rust", 1, 9),
        ]
        await asking.submit(jobs(800))
        assert abs((await depths(servers))[0] - 600) < 60
        await asking.submit([Job(f"rust:{n}", "rust", "{}") for n in range(20)])
        only = open_broker(servers[1].url)
        assert await only.depth("rust") == 20
        await only.close()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
async def test_a_shard_that_is_away_stops_neither_new_work_nor_what_waited_in_it(
    servers: Servers, how: signal.Signals
) -> None:
    async with opened(servers) as [asking], working(servers) as done:
        await slots(asking, 6)
        before, during = jobs(40, "before"), jobs(40, "during")
        await asking.set_queue_state("ocaml", QueueState.PAUSED)
        await asking.submit(before)
        assert all(await depths(servers))
        servers[0].stop(how)
        left = open_broker(servers[1].url)
        await left.set_queue_state("ocaml", QueueState.OPEN)
        await left.close()
        await asking.submit(during)
        looking = asyncio.create_task(keep_looking(asking))
        async with asyncio.timeout(SOON_S):
            assert await answered(asking, [*before, *during]) == sorted(
                job.id for job in [*before, *during]
            )
        if how == signal.SIGKILL:
            servers[0].start()
        else:
            os.kill(servers[0].pid, signal.SIGCONT)
        await slots(asking, 6)
        await asking.set_queue_state("ocaml", QueueState.OPEN)
        after = jobs(200, "after")
        await asking.submit(after)
        assert await answered(asking, after) == sorted(job.id for job in after)
        await until(lambda: set(done) >= {job.id for job in [*before, *during, *after]})
        looking.cancel()


async def keep_looking(broker: Broker) -> None:
    """As an API does once a second."""
    while True:
        await broker.graders()
        await asyncio.sleep(0.5)


async def test_a_worker_gives_up_a_result_for_a_shard_that_is_away_past_the_lease(
    servers: Servers,
) -> None:
    async with opened(servers, settings=BrokerSettings(lease_s=3.0)) as [broker]:
        await broker.submit(jobs(20))
        claims: list[Claim] = []
        async with asyncio.timeout(SOON_S):
            while len(claims) < 20:
                claims += await broker.claim("ocaml", "w", 20, 0.1)
        servers[0].stop()

        async def finished(claim: Claim) -> bool:
            while True:
                with suppress(QueueFault):
                    return await broker.finish(claim, "{}", cache=True)

        async with asyncio.timeout(SOON_S):
            outcomes = set(await asyncio.gather(*map(finished, claims)))
        assert outcomes == {True, False}
        assert len(await broker.results([claim.job.id for claim in claims])) in range(1, 20)


async def test_a_queue_whose_shards_are_all_away_is_a_fault(servers: Servers) -> None:
    for server in servers:
        server.stop()
    async with opened(servers) as [asking]:
        with pytest.raises(QueueFault) as fault:
            await asking.submit(jobs(1))
        assert fault.value.retryable
        for server in servers:
            server.start()
        await keep_until_up(asking)
        await asking.submit(jobs(1))


async def keep_until_up(broker: Broker) -> None:
    async with asyncio.timeout(SOON_S):
        while True:
            try:
                await broker.graders()
                return
            except QueueFault:
                await asyncio.sleep(0.1)


async def test_when_one_shard_is_full_nothing_is_queued(servers: Servers) -> None:
    async with opened(servers, settings=BrokerSettings(max_depth=8)) as [asking]:
        with pytest.raises(QueueFull):
            await asking.submit(jobs(40))
        assert await depths(servers) == [0, 0]


async def test_cancelling_reaches_each_job_in_its_shard(servers: Servers) -> None:
    async with opened(servers) as [asking]:
        await asking.submit(jobs(50), FairShare("nightly", Priority.EVALUATION))
        assert {job.id for job in await asking.unfinished("ocaml")} == {job.id for job in jobs(50)}
        assert await asking.revoke("ocaml", [job.id for job in jobs(10)]) == 10
        await asking.cancel("ocaml", [job.id for job in jobs(50)])
        assert await depths(servers) == [0, 0]


async def test_operators_see_one_queue(servers: Servers) -> None:
    async with opened(servers, settings=BrokerSettings(lease_s=0.2)) as [broker]:
        await broker.put_note("key", "text", 60)
        assert await broker.get_notes(["key", "other"]) == {"key": "text"}
        await broker.submit(jobs(20))
        letters: list[DeadLetter] = []
        for server in servers:
            worker = open_broker(server.url, BrokerSettings(lease_s=0.2))
            for n in range(MAX_DELIVERIES):
                async with asyncio.timeout(SOON_S):
                    while not (claims := await worker.claim("ocaml", f"w{n}", 1, 1.0)):
                        pass
                if n < MAX_DELIVERIES - 1:
                    await worker.release(claims[0])
            assert await worker.finish(claims[0], "{}", cache=False, dead_letter=True)
            letters += await worker.dead_letters("ocaml")
            await worker.close()
        assert await broker.dead_letters("ocaml") == letters
        assert await broker.queue_stats("ocaml") == QueueStats(18, 0, 0, 2)
        await broker.remove_dead_letters("ocaml", [letter.job.id for letter in letters])
        assert await broker.dead_letters("ocaml") == []
        await broker.set_queue_state("ocaml", QueueState.PAUSED)
        assert await broker.queue_state("ocaml") is QueueState.PAUSED
        assert await broker.memory_fill() == 0.0
        assert len(await broker.results([letter.job.id for letter in letters])) == 2


async def test_a_file_may_hold_several_urls(servers: Servers, tmp_path: Path) -> None:
    file = tmp_path / "redis.url"
    file.write_text("\n".join(server.url for server in servers) + "\n")
    broker = open_broker(f"file:{file}")
    assert isinstance(broker, ShardedBroker)
    await broker.submit(jobs(40))
    assert all(await depths(servers))
    await broker.close()


@pytest.mark.parametrize(
    "url", ["redis://h:1/0 http://h", "redis://h:1/0 file:/x", "redis://h:1/0 redis+sentinel://"]
)
def test_each_of_several_urls_must_be_one(url: str) -> None:
    with pytest.raises(Misuse, match="broker URL"):
        open_broker(url)
