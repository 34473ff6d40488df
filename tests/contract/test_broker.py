"""What every broker does, said once and held against both; below it, what only a broker on Redis
can get wrong."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import socket
import socketserver
import struct
import threading
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from redis.asyncio import Redis

from gradus.descriptions import GraderInfo
from gradus.errors import Misuse, QueueFault
from services.broker import (
    DEAD_AFTER_S,
    KEY_PARTS,
    MAX_DELIVERIES,
    MAX_FAIR_SHARES,
    MIN_NOTE_BYTES,
    PUT_OFF_TURNS,
    RESERVED_PART,
    TRAINING_PART,
    Broker,
    BrokerSettings,
    Claim,
    FairShare,
    Job,
    Priority,
    QueueFull,
    QueueState,
    QueueStats,
)
from services.broker.from_url import open_broker
from services.broker.memory import MemoryBroker
from services.broker.partitioned import PartitionedBroker
from services.broker.signing import CANCELLED
from services.broker.streams import StreamsBroker
from services.broker.streams.cluster import is_cluster
from services.broker.streams.redis_url import redact_url

SOON_S = 20.0
"""Longer than anything here takes on a busy machine; nothing waits for it to pass."""
SHORT_LEASE = BrokerSettings(lease_s=0.3)

OCAML = GraderInfo(
    name="ocaml",
    revision="r1",
    toolchain="ocaml 4.14.1",
    rubrics=("ocaml/graduated@1",),
    sandbox="bubblewrap",
)


class Place:
    """Where brokers meet: one prefix in a Redis or a cluster, or the one memory broker."""

    def __init__(self, redis_url: str | None) -> None:
        self.redis_url = redis_url
        self.prefix = f"test-{uuid.uuid4().hex}:"
        self.opened: list[Broker] = []

    def open(self, broker_settings: BrokerSettings | None = None) -> Broker:
        """Another API or worker process, as it were."""
        if self.redis_url is not None:
            kind = PartitionedBroker if is_cluster(self.redis_url) else StreamsBroker
            self.opened.append(kind(self.redis_url, broker_settings, prefix=self.prefix))
        elif not self.opened:
            self.opened.append(MemoryBroker(broker_settings))
        return self.opened[-1]

    async def close(self) -> None:
        for broker in self.opened:
            await broker.close()


@pytest.fixture(params=["memory", "redis", pytest.param("cluster", marks=pytest.mark.slow)])
async def place(request: pytest.FixtureRequest) -> AsyncIterator[Place]:
    """The cluster has one partition: most of what is asserted of several ones is theirs alone."""
    url = None
    urls: list[str] = []
    if request.param == "redis":
        url = request.getfixturevalue("redis_url")
        urls = [url]
    if request.param == "cluster":
        cluster = request.getfixturevalue("redis_cluster")
        url = cluster.build_url(1)
        urls = [node.url for node in cluster.nodes]
    place = Place(url)
    yield place
    await place.close()
    for url in urls:
        await assert_every_key_expires(url, place.prefix)


async def assert_every_key_expires(url: str, prefix: str) -> None:
    async with Redis.from_url(url) as redis:
        keys = [key async for key in redis.scan_iter(match=f"{prefix}*", count=1000)]
        async with redis.pipeline(transaction=False) as pipeline:
            for key in keys:
                pipeline.ttl(key)
            ttls = await pipeline.execute()
        assert [key for key, ttl in zip(keys, ttls, strict=True) if ttl < 0] == []
        for key in keys:  # one at a time: in a cluster they have several slots
            await redis.unlink(key)


@pytest.fixture
def broker(place: Place) -> Broker:
    return place.open()


async def wait_until(happened: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(SOON_S):
        while not await happened():  # noqa: ASYNC110  (it happens in Redis, where no event of ours is set)
            await asyncio.sleep(0.02)


def jobs(n_jobs: int, name: str = "job") -> list[Job]:
    return [Job(f"{name}-{i}", "ocaml", json.dumps({"n": i})) for i in range(n_jobs)]


def ids(of: Iterable[Job]) -> list[str]:
    return [job.id for job in of]


def ids_of(claims: Iterable[Claim]) -> list[str]:
    return [claim.job.id for claim in claims]


async def take(broker: Broker, n_jobs: int, worker: str = "w") -> list[Claim]:
    claims: list[Claim] = []
    async with asyncio.timeout(SOON_S):
        while len(claims) < n_jobs:
            claims += await broker.claim("ocaml", worker, n_jobs - len(claims), 1.0)
    return claims


async def take_one(broker: Broker, worker: str = "w") -> Claim:
    return (await take(broker, 1, worker))[0]


async def nothing_to_take(broker: Broker, worker: str = "w") -> bool:
    return await broker.claim("ocaml", worker, 1, 0) == []


async def answers(
    broker: Broker, job_ids: Iterable[str], timeout_s: float = SOON_S
) -> list[tuple[str, str]]:
    return [answer async for answer in broker.wait(job_ids, timeout_s)]


async def answering(broker: Broker, job_ids: Iterable[str]) -> asyncio.Task[list[tuple[str, str]]]:
    """A wait that has begun."""
    waiting = asyncio.create_task(answers(broker, job_ids))
    await asyncio.sleep(0)
    return waiting


@contextlib.asynccontextmanager
async def working(
    broker: Broker, worker: str = "w", result: str = "{}"
) -> AsyncIterator[list[Claim]]:
    """A worker that finishes everything; gives what it claimed."""
    seen: list[Claim] = []

    async def work() -> None:
        while True:
            claims = await broker.claim("ocaml", worker, 32, 0.2)
            seen.extend(claims)
            await asyncio.gather(*(broker.finish(claim, result, cache=True) for claim in claims))

    task = asyncio.create_task(work())
    yield seen
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


# ---------------------------------------------------------------------- submit and answer


async def test_a_job_goes_from_submission_to_its_waiter(broker: Broker) -> None:
    [job] = jobs(1)
    await broker.submit([job])
    claim = await take_one(broker)
    assert (claim.job, claim.deliveries) == (job, 1)
    assert await broker.finish(claim, '{"reward": 1}', cache=True)
    assert await answers(broker, [job.id]) == [(job.id, '{"reward": 1}')]


async def test_answers_come_in_the_order_of_completion(broker: Broker) -> None:
    await broker.submit(jobs(3))
    waiting = await answering(broker, ids(jobs(3)))
    claims = await take(broker, 3)
    for claim in (claims[2], claims[0], claims[1]):
        await broker.finish(claim, "{}", cache=True)
    assert [job_id for job_id, _ in await waiting] == ["job-2", "job-0", "job-1"]


async def test_jobs_are_claimed_in_the_order_of_submission(broker: Broker) -> None:
    await broker.submit(jobs(5))
    assert ids_of(await take(broker, 5)) == ids(jobs(5))


async def test_a_claim_takes_no_more_than_its_limit(broker: Broker) -> None:
    await broker.submit(jobs(5))
    assert len(await broker.claim("ocaml", "w", 2, 1.0)) == 2


async def test_a_waiting_claim_gets_the_job_that_comes(broker: Broker) -> None:
    claiming = asyncio.create_task(broker.claim("ocaml", "w", 8, SOON_S))
    await asyncio.sleep(0)
    await broker.submit(jobs(1))
    assert ids_of(await claiming) == ["job-0"]


async def test_graders_have_queues_of_their_own(broker: Broker) -> None:
    await broker.submit([Job("a", "rust", "{}")])
    assert await broker.claim("ocaml", "w", 1, 0) == []
    assert ids_of(await broker.claim("rust", "w", 1, SOON_S)) == ["a"]


async def test_an_empty_submission_does_nothing(broker: Broker) -> None:
    await broker.submit([])
    assert await answers(broker, []) == []


async def test_a_wait_ends_when_its_time_is_over(broker: Broker) -> None:
    await broker.submit(jobs(2))
    await broker.finish(await take_one(broker), "{}", cache=True)
    assert await answers(broker, ids(jobs(2)), timeout_s=0.3) == [("job-0", "{}")]


async def test_a_wait_for_an_unknown_job_gets_nothing(broker: Broker) -> None:
    assert await answers(broker, ["never-submitted"], timeout_s=0.1) == []
    assert await broker.results(["never-submitted"]) == {}


async def test_a_wait_yields_each_id_once(broker: Broker) -> None:
    await broker.submit(jobs(1))
    await broker.finish(await take_one(broker), "{}", cache=True)
    assert await answers(broker, ["job-0", "job-0"]) == [("job-0", "{}")]


async def test_every_waiter_of_a_job_is_answered(broker: Broker) -> None:
    await broker.submit(jobs(1))
    waits = [await answering(broker, ["job-0"]) for _ in range(3)]
    await broker.finish(await take_one(broker), "{}", cache=True)
    assert await asyncio.gather(*waits) == [[("job-0", "{}")]] * 3


async def test_a_batch_of_4096_is_refused_answered_and_delivered_from_the_cache_in_full(
    place: Place,
) -> None:
    broker_settings = BrokerSettings(max_depth=4200)
    asking, grading = place.open(broker_settings), place.open(broker_settings)
    batch, before = jobs(4096), jobs(105, "before")
    await asking.submit(before)
    with pytest.raises(QueueFull):
        await asking.submit(batch)
    assert await asking.depth("ocaml") == 105
    await asking.cancel("ocaml", ["before-0"])
    assert await asking.submit(batch) == {}
    assert await asking.depth("ocaml") == 4200
    async with working(grading) as seen:
        answered = await answers(asking, ids(batch))
    assert sorted(job_id for job_id, _ in answered) == sorted(ids(batch))
    assert set(ids_of(seen)) >= set(ids(batch))
    assert len(seen) == len(set(ids_of(seen)))
    assert await place.open(broker_settings).submit(batch) == dict(answered)


@pytest.mark.parametrize("text", ["żółć 🐫 \u2028 \x01", "x" * 1_000_000], ids=["unicode", "long"])
async def test_texts_arrive_unchanged(broker: Broker, text: str) -> None:
    job = Job("a", "ocaml", json.dumps({"completion": text}, ensure_ascii=False))
    await broker.submit([job])
    claim = await take_one(broker)
    assert claim.job == job
    await broker.finish(claim, job.payload, cache=True)
    assert await answers(broker, ["a"]) == [("a", job.payload)]


# ---------------------------------------------------------------------- single flight and results


async def test_identical_work_of_two_askers_is_done_once(place: Place) -> None:
    first, second = place.open(), place.open()
    await first.submit(jobs(1))
    await second.submit(jobs(1))
    assert await first.depth("ocaml") == 1
    claim = await take_one(place.open())
    await second.submit(jobs(1))
    assert await nothing_to_take(first)
    await first.finish(claim, "{}", cache=True)
    assert await answers(first, ["job-0"]) == await answers(second, ["job-0"]) == [("job-0", "{}")]


async def test_identical_jobs_of_one_batch_are_one(broker: Broker) -> None:
    await broker.submit(jobs(1) * 3)
    assert await broker.depth("ocaml") == 1


async def test_a_verdict_is_delivered_from_the_cache(place: Place) -> None:
    first = place.open()
    await first.submit(jobs(2))
    await first.finish(await take_one(first), '{"reward": 1}', cache=True)
    second = place.open()
    assert await second.submit(jobs(2)) == {"job-0": '{"reward": 1}'}
    assert await answers(second, ["job-0"]) == [("job-0", '{"reward": 1}')]
    assert await second.depth("ocaml") == 1
    assert await second.results(ids(jobs(2))) == {"job-0": '{"reward": 1}'}


async def test_a_fault_reaches_its_waiters_and_is_not_cached(place: Place) -> None:
    first, second = place.open(), place.open()
    await first.submit(jobs(1))
    await first.finish(await take_one(first), '"fault"', cache=False)
    assert await answers(first, ["job-0"]) == [("job-0", '"fault"')]
    assert await first.results(["job-0"]) == {"job-0": '"fault"'}
    await second.submit(jobs(1))
    assert await answers(second, ["job-0"], timeout_s=0.1) == []
    await second.finish(await take_one(second), '"verdict"', cache=True)
    assert await answers(second, ["job-0"]) == [("job-0", '"verdict"')]


async def test_results_are_forgotten_after_their_time(place: Place) -> None:
    broker = place.open(BrokerSettings(result_ttl_s=0.1, uncached_ttl_s=0.1))
    await broker.submit(jobs(2))
    verdict, fault = await take(broker, 2)
    await broker.finish(verdict, "{}", cache=True)
    await broker.finish(fault, "{}", cache=False)

    async def forgotten() -> bool:
        return await broker.results(ids(jobs(2))) == {}

    await wait_until(forgotten)
    await broker.submit(jobs(2))
    assert await broker.depth("ocaml") == 2


async def test_notes_are_kept_for_their_time(broker: Broker) -> None:
    await broker.save_note("request", "jobs", 60)
    await broker.save_note("brief", "jobs", 0.05)
    await broker.save_note("request", "others", 60, replace=False)
    assert await broker.get_notes(["request", "other"]) == {"request": "jobs"}

    async def forgotten() -> bool:
        return await broker.get_notes(["brief"]) == {}

    await wait_until(forgotten)
    await broker.save_note("brief", "again", 60, replace=False)
    assert await broker.get_notes(["brief"]) == {"brief": "again"}


# ---------------------------------------------------------------------- leases and crashes


async def test_a_lapsed_lease_is_claimed_by_another_worker(on_redis: Place) -> None:
    dead, alive = on_redis.open(SHORT_LEASE), on_redis.open(SHORT_LEASE)
    await alive.submit(jobs(1))
    await take_one(dead, "dead")
    claim = await take_one(alive, "alive")
    assert (claim.job.id, claim.deliveries) == ("job-0", 2)
    assert await alive.finish(claim, "{}", cache=True)
    assert await answers(alive, ["job-0"]) == [("job-0", "{}")]


@pytest.mark.slow
async def test_a_dead_workers_job_is_with_another_within_twice_the_lease(on_redis: Place) -> None:
    broker_settings = BrokerSettings(lease_s=1.5)
    dead, alive = on_redis.open(broker_settings), on_redis.open(broker_settings)
    await alive.submit(jobs(1))
    await take_one(dead, "dead")
    assert ids_of(await alive.claim("ocaml", "alive", 1, 2 * broker_settings.lease_s)) == ["job-0"]


async def test_a_worker_that_renews_nothing_is_dead_long_before_its_lease_ends(
    on_redis: Place,
) -> None:
    broker = on_redis.open(BrokerSettings(lease_s=600))
    await broker.submit(jobs(2))
    dead, alive = await take_one(broker, "dead"), await take_one(broker, "alive")
    found: list[Claim] = []
    async with asyncio.timeout(SOON_S):
        while not found:
            found = await broker.claim("ocaml", "another", 2, 0.5)
            await broker.renew([alive])
    assert ids_of(found) == [dead.job.id]


async def test_after_an_outage_a_silent_worker_is_not_dead_at_once(on_redis: Place) -> None:
    broker = on_redis.open(BrokerSettings(lease_s=600))
    await broker.submit(jobs(1))
    claim = await take_one(broker, "frozen with Redis")
    await asyncio.sleep(DEAD_AFTER_S + 1)  # no worker looked
    assert await broker.claim("ocaml", "another", 1, 0.1) == []
    await broker.renew([claim])
    assert await broker.claim("ocaml", "another", 1, 1.5) == []


@pytest.mark.slow
async def test_an_outage_longer_than_the_lease_takes_no_job_from_who_renews_after_it(
    on_redis: Place,
) -> None:
    broker = on_redis.open(BrokerSettings(lease_s=1.0))
    await broker.submit(jobs(2))
    dead, alive = (
        await take_one(broker, "dead in the outage"),
        await take_one(broker, "frozen with Redis"),
    )
    await asyncio.sleep(4)  # no worker looked
    found = await broker.claim("ocaml", "another", 2, 0.1)
    async with asyncio.timeout(SOON_S):
        while not found:
            await broker.renew([alive])
            found = await broker.claim("ocaml", "another", 2, 0.2)
    await broker.renew([alive])
    assert ids_of([*found, *await broker.claim("ocaml", "another", 1, 0.5)]) == [dead.job.id]


@pytest.mark.slow
async def test_two_outages_in_a_row_take_no_job_from_a_worker_that_renews_after_them(
    on_redis: Place,
) -> None:
    broker = on_redis.open(BrokerSettings(lease_s=2.0))
    await broker.submit(jobs(1))
    claim = await take_one(broker, "frozen with Redis")
    assert await nothing_to_take(broker, "another")
    for _ in range(2):
        await asyncio.sleep(2.5)  # no worker looked, and none renewed in between
        assert await broker.claim("ocaml", "another", 1, 0.05) == []
    await broker.renew([claim])
    assert await broker.claim("ocaml", "another", 1, 0.05) == []


async def test_a_dead_letter_tells_who_had_the_job_and_how_it_ended(on_redis: Place) -> None:
    broker = on_redis.open(SHORT_LEASE)
    await broker.submit(jobs(1))
    await broker.release(await take_one(broker, "leaving"))
    await take_one(broker, "dead")
    await broker.finish(await take_one(broker, "last"), "{}", cache=False, dead_letter=True)
    [letter] = await broker.dead_letters("ocaml")
    assert [line.split(" ", 1)[1] for line in letter.history] == [
        "leaving gave it back",
        "dead let its lease lapse",
    ]
    assert all(abs(float(line.split(" ")[0]) - time.time()) < SOON_S for line in letter.history)


async def test_a_job_under_a_lease_is_nobody_elses(place: Place) -> None:
    first, second = place.open(), place.open()
    await first.submit(jobs(1))
    await take_one(first, "first")
    assert await nothing_to_take(second, "second")


async def test_a_renewed_lease_does_not_lapse(on_redis: Place) -> None:
    broker_settings = BrokerSettings(lease_s=1.0)
    slow, other = on_redis.open(broker_settings), on_redis.open(broker_settings)
    await slow.submit(jobs(1))
    claim = await take_one(slow, "slow")
    stealing = asyncio.create_task(other.claim("ocaml", "other", 1, 1.4))
    while not stealing.done():
        await slow.renew([claim])
        await asyncio.sleep(0.1)
    assert await stealing == []
    assert await slow.finish(claim, "{}", cache=True)


async def test_the_second_to_finish_is_told_so(on_redis: Place) -> None:
    first, second = on_redis.open(SHORT_LEASE), on_redis.open(SHORT_LEASE)
    await first.submit(jobs(1))
    lapsed = await take_one(first, "first")
    claim = await take_one(second, "second")
    assert await second.finish(claim, '"second"', cache=True)
    assert not await first.finish(lapsed, '"first"', cache=True)
    assert await answers(first, ["job-0"]) == [("job-0", '"second"')]


async def test_a_late_finisher_that_is_still_first_counts(on_redis: Place) -> None:
    first, second = on_redis.open(SHORT_LEASE), on_redis.open(SHORT_LEASE)
    await first.submit(jobs(1))
    lapsed = await take_one(first, "first")
    claim = await take_one(second, "second")
    assert await first.finish(lapsed, '"first"', cache=True)
    assert not await second.finish(claim, '"second"', cache=True)
    assert await first.results(["job-0"]) == {"job-0": '"first"'}


async def test_a_finisher_of_an_earlier_run_changes_nothing(on_redis: Place) -> None:
    broker = on_redis.open(SHORT_LEASE)
    await broker.submit(jobs(1))
    lapsed = await take_one(broker, "first")
    await broker.finish(await take_one(broker, "second"), '"fault"', cache=False)
    await broker.submit(jobs(1))
    assert not await broker.finish(lapsed, '"late"', cache=True)
    assert await broker.depth("ocaml") == 1


async def test_a_job_given_back_is_claimable_at_once(place: Place) -> None:
    leaving, staying = place.open(), place.open()
    await leaving.submit(jobs(1))
    claim = await take_one(leaving, "leaving")
    claiming = asyncio.create_task(staying.claim("ocaml", "staying", 1, SOON_S))
    await leaving.release(claim)
    [again] = await claiming
    assert (again.job.id, again.deliveries) == ("job-0", 2)
    assert not await leaving.finish(claim, "{}", cache=True)
    assert await staying.finish(again, "{}", cache=True)
    assert await answers(leaving, ["job-0"]) == [("job-0", "{}")]


async def test_a_lapsed_claim_cannot_be_given_back(on_redis: Place) -> None:
    first, second = on_redis.open(SHORT_LEASE), on_redis.open(SHORT_LEASE)
    await first.submit(jobs(1))
    lapsed = await take_one(first, "first")
    claim = await take_one(second, "second")
    await first.release(lapsed)
    assert await second.finish(claim, "{}", cache=True)
    assert await first.depth("ocaml") == 0


async def test_two_workers_never_get_the_same_job(place: Place) -> None:
    asking = place.open()
    batch = jobs(300)
    async with contextlib.AsyncExitStack() as stack:
        seen = [await stack.enter_async_context(working(place.open(), f"w{n}")) for n in range(3)]
        await asking.submit(batch)
        assert len(await answers(asking, ids(batch))) == 300
    assert sorted(job_id for claims in seen for job_id in ids_of(claims)) == sorted(ids(batch))


async def test_a_paused_queue_starts_nothing_until_it_is_resumed(place: Place) -> None:
    broker = place.open()
    await broker.set_queue_state("ocaml", QueueState.PAUSED)
    await broker.submit(jobs(2))
    assert await nothing_to_take(broker)
    assert await broker.get_queue_state("ocaml") is QueueState.PAUSED
    await broker.set_queue_state("ocaml", QueueState.OPEN)
    assert ids_of(await take(broker, 2)) == ["job-0", "job-1"]


@pytest.mark.parametrize("n_jobs", [1, 300])
async def test_a_draining_queue_takes_no_new_work_and_ends_what_it_has(
    place: Place, n_jobs: int
) -> None:
    broker = place.open()
    await broker.submit(jobs(2))
    await broker.set_queue_state("ocaml", QueueState.DRAINING)
    with pytest.raises(QueueFull):
        await broker.submit(jobs(n_jobs, "new"))
    await broker.submit(jobs(2))
    assert ids_of(await take(broker, 2)) == ["job-0", "job-1"]
    assert await broker.depth("ocaml") == 2


async def test_dead_letters_can_be_removed(place: Place) -> None:
    broker = place.open()
    await broker.submit(jobs(3))
    for claim in await take(broker, 3):
        await broker.finish(claim, "{}", cache=False, dead_letter=True)
    await broker.remove_dead_letters("ocaml", ["job-0", "job-2", "unknown"])
    assert [letter.job.id for letter in await broker.dead_letters("ocaml")] == ["job-1"]


async def test_the_census_says_how_many_jobs_are_where(on_redis: Place) -> None:
    asking, dying, other = (on_redis.open(SHORT_LEASE) for _ in range(3))
    assert await asking.get_queue_stats("ocaml") == QueueStats(
        queued=0, running=0, restarted=0, dead_letters=0
    )
    await asking.submit(jobs(3))
    await take(dying, 1, "dying")
    assert await asking.get_queue_stats("ocaml") == QueueStats(
        queued=2, running=1, restarted=0, dead_letters=0
    )
    claims = await take(other, 3, "other")
    again = next(claim for claim in claims if claim.deliveries > 1)
    stats = await asking.get_queue_stats("ocaml")
    assert (stats.queued, stats.running, stats.dead_letters) == (0, 3, 0)
    assert stats.restarted >= 1
    await other.finish(again, "{}", cache=False, dead_letter=True)
    assert (await asking.get_queue_stats("ocaml")).dead_letters == 1


async def test_a_job_that_kills_its_workers_is_buried_and_the_others_are_graded(
    on_redis: Place,
) -> None:
    asking = on_redis.open(SHORT_LEASE)
    batch = [*jobs(4, "innocent"), Job("killer", "ocaml", '"poison"')]
    await asking.submit(batch)
    waiting = await answering(asking, ids(batch))
    deaths = 0
    worker = on_redis.open(SHORT_LEASE)
    while not waiting.done():
        claims = await worker.claim("ocaml", f"w{deaths}", 8, 0.5)
        if any(claim.job.id == "killer" and claim.deliveries <= MAX_DELIVERIES for claim in claims):
            deaths += 1
            worker = on_redis.open(SHORT_LEASE)  # whatever the dead one held is left to lapse
            continue
        for claim in claims:
            dead_letter = claim.deliveries > MAX_DELIVERIES
            await worker.finish(
                claim,
                '"fault"' if dead_letter else '"verdict"',
                cache=not dead_letter,
                dead_letter=dead_letter,
            )
    expected = {job.id: '"verdict"' for job in batch} | {"killer": '"fault"'}
    assert (dict(await waiting), deaths) == (expected, MAX_DELIVERIES)
    [letter] = await asking.dead_letters("ocaml")
    assert letter.job == batch[-1]
    assert len(letter.history) == MAX_DELIVERIES
    assert all("let its lease lapse" in line for line in letter.history)


async def test_the_last_start_of_a_job_happens_alone(on_redis: Place) -> None:
    broker = on_redis.open(BrokerSettings(lease_s=600))
    await broker.submit(jobs(1))
    for worker in ("first", "second"):
        await broker.release(await take_one(broker, worker))
    await broker.submit(jobs(2, "other"))
    suspect = await take_one(broker)
    assert (suspect.job.id, suspect.deliveries) == ("job-0", MAX_DELIVERIES)
    assert await nothing_to_take(broker)
    await broker.finish(suspect, "{}", cache=True)
    assert len(await take(broker, 2)) == 2


async def test_a_busy_worker_takes_no_suspect(on_redis: Place) -> None:
    broker = on_redis.open(
        BrokerSettings(lease_s=2.0)
    )  # an idle worker looks for a suspect every quarter of it
    await broker.submit(jobs(1, "other"))
    held = await take_one(broker, "busy")
    await broker.submit(jobs(1))
    for worker in ("first", "second"):
        await broker.release(await take_one(broker, worker))
    assert await broker.claim("ocaml", "busy", 1, 0.3) == []
    await broker.finish(held, "{}", cache=True)
    assert (await take_one(broker, "busy")).deliveries == MAX_DELIVERIES


async def test_jobs_that_end_at_once_have_outcomes_of_their_own(place: Place) -> None:
    broker = place.open()
    n_jobs = 300
    await broker.submit(jobs(n_jobs))
    first = await take(broker, n_jobs)
    await broker.release(first[7])
    [again] = await take(broker, 1)
    claims = [*first[:7], *first[8:], again]
    calls = [
        broker.finish(claim, f'"{claim.job.id}"', cache=True) for claim in [*claims[:-1], *first]
    ]
    calls.append(broker.finish(again, '"dead"', cache=False, dead_letter=True))
    ends = [asyncio.create_task(call) for call in calls]
    await asyncio.sleep(0)
    ends[0].cancel()  # its worker is gone, and the others' results stay
    outcomes = await asyncio.gather(*ends, return_exceptions=True)
    assert outcomes[1:] == [*[True] * 298, *[False] * 300, True]
    assert dict(await answers(broker, ids(jobs(n_jobs)))) == {
        job_id: '"dead"' if job_id == again.job.id else f'"{job_id}"'
        for job_id in ids(jobs(n_jobs))
    }
    [letter] = await broker.dead_letters("ocaml")
    assert (letter.job, [line.split(" ", 1)[1] for line in letter.history]) == (
        again.job,
        ["w gave it back"],
    )


# ---------------------------------------------------------------------- bounds and cancelling


async def test_a_full_queue_refuses_the_whole_submission(place: Place) -> None:
    broker = place.open(BrokerSettings(max_depth=5))
    await broker.submit(jobs(3))
    with pytest.raises(QueueFull, match="'ocaml' is full"):
        await broker.submit(jobs(3, "more"))
    assert await broker.depth("ocaml") == 3
    await broker.submit(jobs(2, "few"))


async def test_a_refusal_names_the_bound(place: Place) -> None:
    broker = place.open(BrokerSettings(max_depth=RESERVED_PART))

    async def find_bound(run: str, batch: list[Job]) -> str:
        with pytest.raises(QueueFull) as refused:
            await broker.submit(batch, FairShare(run))
        return refused.value.bound

    await broker.submit(jobs(RESERVED_PART), FairShare("greedy"))
    assert await find_bound("greedy", [Job("one-more", "ocaml", "{}")]) == "run"
    for n in range(RESERVED_PART):
        await broker.submit([Job(f"small-{n}", "ocaml", "{}")], FairShare(f"small-{n}"))
    assert await find_bound("late", [Job("one-more", "ocaml", "{}")]) == "queue"
    await broker.set_queue_state("ocaml", QueueState.DRAINING)
    assert await find_bound("late", [Job("one-more", "ocaml", "{}")]) == "draining"


async def test_a_full_queue_still_serves_known_work(place: Place) -> None:
    broker = place.open(BrokerSettings(max_depth=1))
    await broker.submit(jobs(1))
    await broker.finish(await take_one(broker), "{}", cache=True)
    await broker.submit(jobs(1, "other"))
    await broker.submit([*jobs(1), *jobs(1, "other")])
    assert await answers(broker, ["job-0"]) == [("job-0", "{}")]


async def test_running_jobs_count_for_the_depth(broker: Broker) -> None:
    await broker.submit(jobs(3))
    claims = await take(broker, 2)
    assert await broker.depth("ocaml") == 3
    await broker.finish(claims[0], "{}", cache=True)
    assert await broker.depth("ocaml") == 2
    assert await broker.depth("rust") == 0


async def test_a_cancelled_job_is_never_claimed(broker: Broker) -> None:
    await broker.submit(jobs(3))
    await broker.cancel("ocaml", ["job-0", "job-2", "unknown"])
    assert ids_of(await take(broker, 1)) == ["job-1"]
    assert await nothing_to_take(broker)
    await broker.submit(jobs(1))
    assert ids_of(await take(broker, 1)) == ["job-0"]


async def test_a_job_that_another_wants_survives_cancelling(place: Place) -> None:
    first, second = place.open(), place.open()
    await first.submit(jobs(1))
    await second.submit(jobs(1))
    await first.cancel("ocaml", ["job-0"])
    assert await first.depth("ocaml") == 1
    await second.cancel("ocaml", ["job-0"])
    assert await first.depth("ocaml") == 0


async def test_a_job_that_another_request_of_the_process_wants_survives_cancelling(
    broker: Broker,
) -> None:
    await broker.submit(jobs(1))
    await broker.submit(jobs(1))
    await broker.cancel("ocaml", ["job-0"])
    assert await broker.depth("ocaml") == 1
    await broker.cancel("ocaml", ["job-0"])
    assert await broker.depth("ocaml") == 0


async def test_whoever_runs_a_job_that_nobody_wants_any_more_learns_of_it(broker: Broker) -> None:
    await broker.submit(jobs(2))
    unwanted, wanted = await take(broker, 2)
    assert await broker.renew([unwanted, wanted]) == []
    await broker.cancel("ocaml", ["job-0"])
    assert await broker.renew([unwanted, wanted]) == [unwanted]
    await broker.submit(jobs(1))
    assert await broker.renew([unwanted, wanted]) == []


async def test_a_running_job_that_another_wants_is_not_given_up(place: Place) -> None:
    first, second = place.open(), place.open()
    await first.submit(jobs(1))
    await second.submit(jobs(1))
    claim = await take_one(first)
    await first.cancel("ocaml", ["job-0"])
    assert await first.renew([claim]) == []
    await second.cancel("ocaml", ["job-0"])
    assert await first.renew([claim]) == [claim]


async def test_a_job_that_nobody_wants_is_not_started_again_when_its_worker_dies(
    on_redis: Place,
) -> None:
    broker = on_redis.open(SHORT_LEASE)
    await broker.submit(jobs(2))
    await take(broker, 2, "dead")
    await broker.cancel("ocaml", ["job-0"])
    assert ids_of(await take(broker, 1, "alive")) == ["job-1"]
    assert await nothing_to_take(broker, "alive")
    assert await broker.depth("ocaml") == 1


async def test_a_running_job_that_was_given_up_may_still_be_finished(broker: Broker) -> None:
    await broker.submit(jobs(1))
    claim = await take_one(broker)
    await broker.cancel("ocaml", ["job-0"])
    assert await broker.finish(claim, "{}", cache=True)
    assert await broker.results(["job-0"]) == {"job-0": "{}"}


async def test_a_cancelled_job_that_is_given_back_is_dropped(broker: Broker) -> None:
    await broker.submit(jobs(1))
    claim = await take_one(broker)
    await broker.cancel("ocaml", ["job-0"])
    await broker.release(claim)
    assert await broker.depth("ocaml") == 0
    await broker.submit(jobs(1))
    assert (await take_one(broker)).deliveries == 1


async def test_a_job_that_is_put_off_goes_behind_the_next_turns_of_all_others_and_no_further(
    broker: Broker,
) -> None:
    await broker.submit(jobs(1))
    claim = await take_one(broker)
    await broker.submit(jobs(10, "a"), FairShare("a"))
    await broker.release(claim, put_off=True)
    await broker.submit(jobs(PUT_OFF_TURNS + 50, "b"), FairShare("b"))
    found = ids_of(await take(broker, PUT_OFF_TURNS + 61))
    assert 0 <= found.index("job-0") - (PUT_OFF_TURNS + 10) <= 5


async def test_a_cancelled_job_that_is_put_off_is_dropped(broker: Broker) -> None:
    await broker.submit(jobs(1))
    claim = await take_one(broker)
    await broker.cancel("ocaml", ["job-0"])
    await broker.release(claim, put_off=True)
    assert await broker.depth("ocaml") == 0


# ---------------------------------------------------------------------- taking turns

EVALUATION = FairShare("nightly", Priority.EVALUATION)


async def order(broker: Broker, n_jobs: int) -> str:
    """The names of the next jobs, by their first letters."""
    return "".join(job_id[0] for job_id in ids_of(await take(broker, n_jobs)))


async def test_runs_take_turns_however_much_each_has_queued(place: Place) -> None:
    broker = place.open()
    await broker.submit(jobs(10_000, "big"), FairShare("big"))
    await broker.submit(jobs(10, "small"), FairShare("small"))
    assert await order(broker, 20) in ("bs" * 10, "sb" * 10)
    assert await order(broker, 5) == "bbbbb"


async def test_a_run_that_comes_late_waits_for_nobodys_backlog_and_catches_up_on_nothing(
    broker: Broker,
) -> None:
    await broker.submit(jobs(40, "a"), FairShare("a"))
    assert await order(broker, 20) == "a" * 20
    await broker.submit(jobs(20, "b"), FairShare("b"))
    assert sorted(await order(broker, 10)) == sorted("ab" * 5)


async def test_three_runs_share_alike_whatever_the_size_of_a_claim(broker: Broker) -> None:
    for run in "abc":
        await broker.submit(jobs(30, run), FairShare(run))
    taken = await order(broker, 7) + await order(broker, 1) + await order(broker, 22)
    assert [taken.count(run) for run in "abc"] == [10, 10, 10]


async def test_jobs_of_one_run_keep_their_order(broker: Broker) -> None:
    for name in ("first", "second"):
        await broker.submit(jobs(3, name), FairShare("a"))
        await broker.submit(jobs(3, f"other-{name}"), FairShare("b"))
    mine = [job_id for job_id in ids_of(await take(broker, 12)) if not job_id.startswith("other")]
    assert mine == [*ids(jobs(3, "first")), *ids(jobs(3, "second"))]


async def test_evaluation_comes_before_training(broker: Broker) -> None:
    await broker.submit(jobs(5, "training"), FairShare("a"))
    await broker.submit(jobs(3, "evaluation"), EVALUATION)
    assert await order(broker, 8) == "eeettttt"


@pytest.mark.parametrize("size", [1, 3, 5, 8])
async def test_training_gets_a_fifth_of_what_is_claimed_while_both_wait(
    broker: Broker, size: int
) -> None:
    await broker.submit(jobs(100, "evaluation"), EVALUATION)
    await broker.submit(jobs(60, "a"), FairShare("a"))
    await broker.submit(jobs(60, "b"), FairShare("b"))
    taken = "".join([await order(broker, size) for _ in range(40 // size)])
    assert abs(taken.count("a") + taken.count("b") - len(taken) / TRAINING_PART) <= 1
    assert abs(taken.count("a") - taken.count("b")) <= 1
    rest = await order(broker, 220 - len(taken))
    assert sorted(taken + rest) == sorted("e" * 100 + "a" * 60 + "b" * 60)
    while_both_wait = rest[: rest.rindex("e") + 1]
    n_training = len(while_both_wait) - while_both_wait.count("e")
    assert abs(n_training - len(while_both_wait) / TRAINING_PART) <= 1


async def test_training_that_comes_late_has_no_claim_on_the_turns_before(broker: Broker) -> None:
    await broker.submit(jobs(60, "evaluation"), EVALUATION)
    assert await order(broker, 20) + await order(broker, 20) == "e" * 40
    await broker.submit(jobs(20, "training"), FairShare("a"))
    assert sorted(await order(broker, 10)) == list("eeeeeeeett")


async def test_jobs_of_evaluation_that_made_room_keep_their_order(broker: Broker) -> None:
    await broker.submit(jobs(20, "evaluation"), EVALUATION)
    await broker.submit(jobs(20, "training"), FairShare("a"))
    taken = [job_id for _ in range(3) for job_id in ids_of(await take(broker, 7))]
    assert [job_id for job_id in taken if job_id[0] == "e"] == ids(jobs(17, "evaluation"))
    assert [job_id for job_id in taken if job_id[0] == "t"] == ids(jobs(4, "training"))


async def test_all_runs_of_an_api_key_have_the_turns_of_one(broker: Broker) -> None:
    for n in range(40):
        await broker.submit(jobs(10, f"big {n:02}"), FairShare(f"big {n:02}"))
    await broker.submit(jobs(60, "small"), FairShare("small"))
    taken = ids_of(await take(broker, 7)) + ids_of(await take(broker, 73))
    names = Counter(job_id.rpartition("-")[0] for job_id in taken)
    assert names.pop("small") == 40
    assert names == {f"big {n:02}": 1 for n in range(40)}


async def test_runs_of_an_api_key_share_its_turns_alike(broker: Broker) -> None:
    await broker.submit(jobs(40, "other"), FairShare("other"))
    await broker.submit(jobs(40, "a"), FairShare("key a"))
    assert sorted(await order(broker, 20)) == sorted("ao" * 10)
    await broker.submit(jobs(20, "b"), FairShare("key b"))
    assert sorted(await order(broker, 20)) == sorted("ooab" * 5)
    await broker.cancel("ocaml", ids(jobs(20, "b")))
    assert sorted(await order(broker, 10)) == sorted("ao" * 5)


async def test_a_job_that_another_run_of_the_key_wants_comes_at_its_turn(broker: Broker) -> None:
    await broker.submit([*jobs(50, "big"), Job("shared", "ocaml", "{}")], FairShare("key big"))
    await broker.submit([Job("shared", "ocaml", "{}")], FairShare("key small"))
    assert "shared" in ids_of(await take(broker, 2))


async def test_a_full_queue_keeps_a_part_of_its_bound_for_each_run_that_has_little_queued(
    place: Place,
) -> None:
    broker = place.open(BrokerSettings(max_depth=16 * RESERVED_PART))
    await broker.submit(jobs(16 * RESERVED_PART, "big"), FairShare("big"))
    with pytest.raises(QueueFull):
        await broker.submit(jobs(1, "more"), FairShare("big"))
    for small in (FairShare("small"), FairShare("big", Priority.EVALUATION)):
        await broker.submit(jobs(10, f"{small}"), small)
        await broker.submit(jobs(6, f"{small} again"), small)
        with pytest.raises(QueueFull):
            await broker.submit(jobs(1, f"{small} and more"), small)
    for n in range(14):
        await broker.submit(jobs(16, f"run {n}"), FairShare(f"key-{n}"))
    with pytest.raises(QueueFull):
        await broker.submit(jobs(16, "one too many"), FairShare("one too many"))
    assert await broker.depth("ocaml") == 32 * RESERVED_PART
    await take(broker, 32 * RESERVED_PART)
    with pytest.raises(QueueFull):
        await broker.submit(jobs(17, "of running jobs"), FairShare("small"))


async def test_many_runs_of_one_key_leave_other_keys_their_part(place: Place) -> None:
    broker = place.open(BrokerSettings(max_depth=16 * RESERVED_PART))
    await broker.submit(jobs(16 * RESERVED_PART, "big"), FairShare("big"))
    for n in range(KEY_PARTS):
        priority = list(Priority)[n % 2]
        await broker.submit(jobs(16, f"run {n}"), FairShare(f"big {n}", priority))
    for n in range(4, 40):
        with pytest.raises(QueueFull, match="all runs of this API key"):
            await broker.submit(jobs(1, "one too many"), FairShare(f"big {n}"))
    await broker.submit(jobs(16, "small"), FairShare("small"))
    await broker.submit(jobs(16, "small of a run"), FairShare("small run"))


async def test_jobs_of_a_key_past_their_deadlines_make_room_and_no_other_key_is_refused(
    place: Place,
) -> None:
    broker = place.open(BrokerSettings(max_note_bytes=3 * MIN_NOTE_BYTES))
    now = await broker.get_time()

    async def keep(name: str, fair_share: FairShare, deadline: float) -> bool:
        return await broker.keep_job(name, "items", 600, fair_share, deadline)

    async def get_kept(*names: str) -> list[str]:
        notes = await broker.get_notes([f"job:{name}" for name in names])
        return [name for name in names if f"job:{name}" in notes]

    big = FairShare("big")
    for number, deadline in enumerate((now + 600, now - 600, now - 300)):
        assert await keep(f"job{number}", big, deadline)
    await broker.save_note("done:job1", "end", 600)
    assert await keep("job3", FairShare("big run"), now + 600)
    assert await get_kept("job0", "job1", "job2", "job3") == ["job0", "job2", "job3"]
    assert not await broker.get_notes(["done:job1"])
    assert await keep("job4", big, now + 60)
    assert not await keep("job5", big, now + 60)
    assert await get_kept("job0", "job2", "job3", "job4", "job5") == ["job0", "job3", "job4"]
    assert await keep("job6", FairShare("small"), now + 60)


async def test_runs_of_a_service_without_keys_have_a_part_each(place: Place) -> None:
    broker = place.open(BrokerSettings(max_depth=16 * RESERVED_PART))
    await broker.submit(jobs(16 * RESERVED_PART, "big"), FairShare("default big"))
    for n in range(16):
        await broker.submit(jobs(16, f"run {n}"), FairShare(f"default {n}"))


async def test_a_batch_of_many_chunks_has_its_part_of_a_full_queue(place: Place) -> None:
    broker = place.open(BrokerSettings(max_depth=300 * RESERVED_PART))
    await broker.submit(jobs(300 * RESERVED_PART, "big"), FairShare("big"))
    with pytest.raises(QueueFull):
        await broker.submit(jobs(301, "small"), FairShare("small"))
    await broker.submit(jobs(300, "small"), FairShare("small"))
    await broker.set_queue_state("ocaml", QueueState.DRAINING)
    with pytest.raises(QueueFull):
        await broker.submit(jobs(257, "other"), FairShare("other"))


async def test_batches_that_come_together_keep_within_the_bound(place: Place) -> None:
    bound = 40 * RESERVED_PART
    brokers = [place.open(BrokerSettings(max_depth=bound)) for _ in range(2)]
    submits = []
    for n in range(12):
        batch = jobs(300, f"run {n}")
        submits.append(brokers[n % 2].submit(batch, FairShare(f"big {n}")))
    outcomes = await asyncio.gather(*submits, return_exceptions=True)
    assert {type(outcome) for outcome in outcomes} == {dict, QueueFull}
    assert await brokers[0].depth("ocaml") <= bound + KEY_PARTS * bound // RESERVED_PART
    await brokers[1].submit(jobs(40, "small"), FairShare("small"))


async def test_a_small_job_is_found_behind_large_ones_of_each_priority(broker: Broker) -> None:
    large, small = json.dumps("x" * 100), json.dumps("x")
    for priority in Priority:
        batch = [Job(f"{priority}-{n}", "ocaml", large) for n in range(80)]
        await broker.submit(batch, FairShare("big", priority))
    assert await broker.claim("ocaml", "w", 4, 0, 50) == []
    await broker.submit([Job("small", "ocaml", small)], FairShare("small"))
    assert ids_of(await broker.claim("ocaml", "w", 4, 0, 50)) == ["small"]
    assert len(await broker.claim("ocaml", "w", 4, 0)) == 4


async def test_evaluations_take_turns_too(broker: Broker) -> None:
    await broker.submit(jobs(6, "a"), FairShare("a", Priority.EVALUATION))
    await broker.submit(jobs(2, "b"), FairShare("b", Priority.EVALUATION))
    assert sorted(await order(broker, 4)) == list("aabb")


async def test_a_job_that_two_runs_want_comes_when_it_is_the_first_ones_turn(
    broker: Broker,
) -> None:
    await broker.submit([*jobs(50, "big"), Job("shared", "ocaml", "{}")], FairShare("big"))
    await broker.submit([Job("shared", "ocaml", "{}")], FairShare("small"))
    assert "shared" in ids_of(await take(broker, 2))
    await broker.submit(jobs(40, "big")[-1:], EVALUATION)
    assert ids_of(await take(broker, 1)) == ["big-39"]


async def test_a_job_given_back_is_the_next(broker: Broker) -> None:
    await broker.submit(jobs(5))
    await broker.release(await take_one(broker))
    assert ids_of(await take(broker, 5)) == ids(jobs(5))


async def test_what_a_run_cancelled_is_not_held_against_it(broker: Broker) -> None:
    await broker.submit(jobs(50, "a"), FairShare("a"))
    await broker.cancel("ocaml", ids(jobs(50, "a")))
    for run in "ab":
        await broker.submit(jobs(4, f"{run}-new"), FairShare(run))
    assert sorted(await order(broker, 4)) == list("aabb")


async def test_the_name_of_a_run_can_be_anything(broker: Broker) -> None:
    for run in ("", "now 0", "last 0 x", "1000000000000", "ż 🐫"):
        await broker.submit(jobs(2, f"of {run}"), FairShare(run))
    assert len(await take(broker, 10)) == 10


async def test_runs_beyond_number_are_forgotten_and_those_with_a_backlog_are_not(
    place: Place,
) -> None:
    broker = place.open()
    await broker.submit(jobs(100, "big"), FairShare("big"))
    for n in range(MAX_FAIR_SHARES + 50):
        await broker.submit([Job(f"one-{n}", "ocaml", "{}")], FairShare(f"run-{n}"))
    await take(broker, MAX_FAIR_SHARES + 52)  # a turn of everybody, and one more
    await broker.submit([Job("late", "ocaml", "{}")], FairShare("late"))
    await broker.submit(jobs(1, "more-of-big"), FairShare("big"))
    assert ids_of(await take(broker, 99))[-1] == "big-99"
    assert ids_of(await take(broker, 1)) == ["more-of-big-0"]


# ----------------------------------------------------------------------------------------- graders


async def test_slots_of_workers_of_one_revision_are_summed(place: Place) -> None:
    broker, other = place.open(), place.open()
    await broker.heartbeat("a", OCAML.model_copy(update={"slots": 4}), 60)
    await other.heartbeat("b", OCAML.model_copy(update={"slots": 2}), 60)
    await other.heartbeat("c", OCAML.model_copy(update={"revision": "r2"}), 60)
    await other.heartbeat("c", OCAML.model_copy(update={"revision": "r2"}), 60)
    summary = [(info.grader, info.workers, info.slots) for info in await broker.graders()]
    assert summary == [("ocaml@r1", 2, 6), ("ocaml@r2", 1, 1)]


async def test_a_worker_that_leaves_is_forgotten_at_once(broker: Broker) -> None:
    await broker.heartbeat("a", OCAML, 60)
    await broker.heartbeat("a", OCAML, 0)
    assert await broker.graders() == []


async def test_a_worker_that_falls_silent_is_forgotten(broker: Broker) -> None:
    await broker.heartbeat("silent", OCAML, 0.05)
    await broker.heartbeat("alive", OCAML, 60)

    async def one_left() -> bool:
        return [info.workers for info in await broker.graders()] == [1]

    await wait_until(one_left)


# ---------------------------------------------------------------------------------------- revoking


async def test_a_revoked_job_ends_for_every_client_and_a_running_one_becomes_unwanted(
    place: Place,
) -> None:
    one, other = place.open(), place.open()
    running, queued = jobs(2)
    await one.submit([running, queued], FairShare("a"))
    await other.submit([running], FairShare("b"))
    [claim] = await one.claim("ocaml", "w", 1, 5)
    seen = [
        (job.id, job.runs, job.is_running, job.starts)
        for job in await other.list_unfinished("ocaml")
    ]
    assert seen[0] == (running.id, ("a", "b"), True, 1)
    assert seen[1:] == [(queued.id, ("a",), False, 0)]
    assert await other.revoke("rust", [running.id, queued.id]) == 0, "they are another grader's"
    assert await other.revoke("ocaml", [running.id, queued.id, "unknown"]) == 2
    for broker in (one, other):
        assert await answers(broker, [running.id]) == [(running.id, CANCELLED)]
    assert await answers(one, [queued.id]) == [(queued.id, CANCELLED)]
    assert await one.renew([claim]) == [claim]
    await one.release(claim)
    assert await one.list_unfinished("ocaml") == []
    assert await one.revoke("ocaml", [running.id, queued.id]) == 0


async def test_a_run_is_revoked_where_it_alone_waits(place: Place) -> None:
    broker = place.open()
    shared, own, foreign = jobs(3)
    await broker.submit([shared, own], FairShare("a"))
    await broker.submit([shared, foreign], FairShare("b"))
    assert (
        await broker.revoke("ocaml", [job.id for job in await broker.list_unfinished("ocaml")], "a")
        == 1
    )
    assert [job.id for job in await broker.list_unfinished("ocaml")] == [shared.id, foreign.id]
    assert [job.id for job in await broker.list_unfinished("ocaml", limit=1)] == [shared.id]


async def test_a_revoked_job_that_is_submitted_again_is_graded(place: Place) -> None:
    broker = place.open()
    running, queued = jobs(2)
    await broker.submit([running, queued])
    [claim] = await broker.claim("ocaml", "w", 1, 5)
    await broker.revoke("ocaml", [running.id, queued.id])
    await broker.submit([running, queued])
    assert await broker.renew([claim]) == []
    assert await broker.results([running.id, queued.id]) == {}
    await broker.finish(claim, "well", cache=True)
    assert await answers(broker, [running.id]) == [(running.id, "well")]
    [claim] = await broker.claim("ocaml", "w", 1, 5)
    assert claim.job == queued
    await broker.finish(claim, "well", cache=True)


# ---------------------------------------------------------------------- both the same

FAIR_SHARES = [
    FairShare(run, priority)
    for run in ("default", "default run", "a", "a run", "a run2", "b run")
    for priority in Priority
]
STEPS = st.one_of(
    st.tuples(
        st.just("submit"),
        st.tuples(st.sets(st.integers(0, 11), min_size=1), st.sampled_from(FAIR_SHARES)),
    ),
    st.tuples(st.just("cancel"), st.integers(0, 11)),
    st.tuples(st.just("revoke"), st.tuples(st.integers(0, 11), st.sampled_from(["", "a"]))),
    st.tuples(st.sampled_from(["claim", "claim small"]), st.integers(1, 4)),
    st.tuples(
        st.sampled_from(["finish", "fail", "release", "put off", "renew"]), st.integers(0, 20)
    ),
)


async def told(broker: Broker, steps: list[tuple[str, Any]]) -> list[object]:
    """Everything that the broker lets its users see while they take `steps`."""
    seen: list[object] = []
    claims: list[Claim] = []
    everything = jobs(12)
    for verb, what in steps:
        if verb == "submit":
            await broker.submit([everything[i] for i in sorted(what[0])], what[1])
        elif verb == "cancel":
            await broker.cancel("ocaml", [everything[what].id])
        elif verb == "revoke":
            seen.append(await broker.revoke("ocaml", [everything[what[0]].id], what[1]))
        elif verb.startswith("claim"):
            max_bytes = len(everything[0].payload) if verb == "claim small" else 0
            claims += (new := await broker.claim("ocaml", "w", what, 0, max_bytes))
            seen.append([(claim.job, claim.deliveries) for claim in new])
        elif claims:
            seen.append(await told_of(broker, verb, claims[what % len(claims)]))
        seen.append((await broker.depth("ocaml"), await broker.results(ids(everything))))
    return seen


async def told_of(broker: Broker, verb: str, claim: Claim) -> object:
    if verb == "renew":
        return ids_of(await broker.renew([claim]))
    if verb in ("release", "put off"):
        if claim.deliveries > 1:  # when a suspect is handed out again differs
            return None
        return await broker.release(claim, put_off=verb == "put off")
    return await broker.finish(
        claim, json.dumps(verb), cache=verb == "finish", dead_letter=verb == "fail"
    )


@settings(max_examples=50, deadline=None)
@given(steps=st.lists(STEPS, max_size=30))
def test_both_brokers_tell_the_same_story(redis_url: str, steps: list[tuple[str, Any]]) -> None:
    async def stories() -> tuple[list[object], list[object]]:
        memory, redis = Place(None), Place(redis_url)
        both = await told(memory.open(), steps), await told(redis.open(), steps)
        await redis.close()
        return both

    in_memory, on_redis = asyncio.run(stories())
    assert in_memory == on_redis


# ---------------------------------------------------------------------- only on Redis: faults


async def test_killed_redis_loses_nothing(redis_server: Callable[..., Any]) -> None:
    server = redis_server(append_only=True)
    asking, grading = (
        StreamsBroker(server.url, BrokerSettings(lease_s=1.0), patience_s=SOON_S) for _ in range(2)
    )
    batch = jobs(200)
    await asking.submit(batch)
    waiting = await answering(asking, ids(batch))
    await grading.finish(await take_one(grading), "{}", cache=True)
    await take(grading, 10)
    async with working(grading) as seen:
        server.stop()
        server.start()
        assert sorted(job_id for job_id, _ in await waiting) == sorted(ids(batch))
    assert len(seen) >= 189
    await assert_every_key_expires(server.url, "gradus:")
    await asking.close()
    await grading.close()
    server.stop()


async def test_what_an_emptied_redis_forgot_is_submitted_again(
    redis_server: Callable[..., Any],
) -> None:
    server = redis_server(append_only=False)
    asking, grading = (StreamsBroker(server.url, patience_s=SOON_S) for _ in range(2))
    await asking.submit(jobs(300))
    await take(grading, 10)
    waiting = await answering(asking, ids(jobs(300)))
    server.stop()
    server.start()
    async with working(grading):
        assert len(await waiting) == 300
    await asking.close()
    await grading.close()
    server.stop()


async def test_redis_that_stays_away_ends_calls_with_a_fault_and_waits_at_their_timeout(
    redis_server: Callable[..., Any],
) -> None:
    server = redis_server()
    broker = StreamsBroker(server.url, patience_s=0.2)
    await broker.submit(jobs(1))
    server.stop()
    assert await answers(broker, ["job-0"], timeout_s=1.0) == []
    for call in (
        broker.submit(jobs(1, "other")),
        broker.claim("ocaml", "w", 1, 0),
        broker.depth("ocaml"),
    ):
        with pytest.raises(QueueFault, match="cannot reach Redis"):
            await cast("Awaitable[object]", call)
    await broker.close()


@pytest.mark.slow
async def test_a_frozen_redis_ends_calls_with_a_fault(redis_server: Callable[..., Any]) -> None:
    server = redis_server()
    broker = StreamsBroker(server.url, patience_s=0.2)
    await broker.submit(jobs(1))
    server.stop(signal.SIGSTOP)
    for call in (
        broker.submit(jobs(1, "other")),
        broker.claim("ocaml", "w", 1, 0),
        broker.depth("ocaml"),
    ):
        with pytest.raises(QueueFault, match="no reply"):
            await cast("Awaitable[object]", call)
    server.stop()
    await broker.close()


async def test_a_demoted_master_ends_neither_claims_nor_waits(
    redis_server: Callable[..., Any],
) -> None:
    server = redis_server()
    asking, grading = (StreamsBroker(server.url, patience_s=SOON_S) for _ in range(2))
    await asking.submit(jobs(1, "first"))
    await grading.finish(await take_one(grading), "{}", cache=True)
    claiming = asyncio.create_task(take(grading, 3))
    await asking.submit(jobs(3))  # one is claimed at once
    waiting = await answering(asking, ids(jobs(3)))
    async with Redis.from_url(server.url) as redis:
        await wait_until(lambda: _blocked(redis))
        await redis.execute_command("REPLICAOF", "127.0.0.1", "1")
        await asyncio.sleep(0.1)
        await redis.execute_command("REPLICAOF", "NO", "ONE")
    for claim in await claiming:
        await grading.finish(claim, "{}", cache=True)
    assert sorted(job_id for job_id, _ in await waiting) == ids(jobs(3))
    idle = asyncio.create_task(grading.claim("ocaml", "w", 1, SOON_S))
    async with Redis.from_url(server.url) as redis:
        await wait_until(lambda: _blocked(redis))
        await redis.execute_command("REPLICAOF", "127.0.0.1", "1")
        await redis.execute_command("REPLICAOF", "NO", "ONE")
    await asking.submit(jobs(1, "last"))
    assert ids_of(await idle) == ["last-0"]
    await asking.close()
    await grading.close()
    server.stop()


async def _blocked(redis: Redis) -> bool:
    """Whether a client waits inside Redis; the inbox's listener is one."""
    return bool((await redis.info("clients"))["blocked_clients"])


async def test_at_the_memory_limit_new_work_is_refused_and_accepted_work_is_answered(
    redis_server: Callable[..., Any],
) -> None:
    server = redis_server(options=["--maxmemory", "32mb", "--maxmemory-policy", "noeviction"])
    asking, grading = (StreamsBroker(server.url, BrokerSettings(lease_s=5)) for _ in range(2))
    accepted: list[Job] = []
    async with Redis.from_url(server.url) as redis:
        for n in range(10_000):
            batch = [Job(f"large-{n}-{i}", "ocaml", json.dumps("x" * 20_000)) for i in range(20)]
            try:
                await asking.submit(batch)
            except QueueFull:
                break
            accepted += batch
        assert (await redis.info("memory"))["used_memory"] < 33 * 2**20
        await redis.config_set("maxmemory", "16mb")  # far past the limit
        with pytest.raises(QueueFull, match="`maxmemory`"):
            await asking.submit(jobs(1, "refused"))
        await grading.heartbeat("w", OCAML, 60)
        waiting = await answering(asking, ids(accepted))
        async with working(grading):
            answered = await waiting
        assert sorted(job_id for job_id, _ in answered) == sorted(ids(accepted))
        assert await redis.pttl(f"gradus:result:{accepted[-1].id}") <= 60_000, (
            "the cache did not shrink"
        )
        assert await asking.depth("ocaml") == 0
        await redis.flushall()
        await wait_until(lambda: _accepts(asking))
    await asking.close()
    await grading.close()
    server.stop()


async def test_a_key_that_holds_much_of_the_memory_queues_no_more_and_others_do(
    redis_server: Callable[..., Any],
) -> None:
    """99 jobs of 0.9 MB each filled a Redis of 96 MB, and every other key got 429."""
    server = redis_server(options=["--maxmemory", "16mb", "--maxmemory-policy", "noeviction"])
    asking = StreamsBroker(server.url, BrokerSettings(lease_s=5))
    attacker = FairShare("attacker")
    n_accepted = 0
    with pytest.raises(QueueFull, match="this API key's part of Redis' memory") as refusal:  # noqa: PT012
        for n in range(1000):
            await asking.submit([Job(f"large-{n}", "ocaml", json.dumps("x" * 200_000))], attacker)
            n_accepted += 1
    assert refusal.value.bound == "key_memory"
    assert 16 < n_accepted < 64  # it had more than its part as long as there was room
    for n in range(50):
        await asking.submit(jobs(1, f"small-{n}"), FairShare("neighbour"))
    await asking.cancel("ocaml", [f"large-{n}" for n in range(n_accepted)])
    asking.memory.next_look = 0.0
    await asking.submit([Job("afterwards", "ocaml", json.dumps("x" * 200_000))], attacker)
    async with Redis.from_url(server.url) as redis:
        await redis.config_set("maxmemory", 0)  # no limit, so no parts of it
    asking.memory.next_look = 0.0
    for n in range(2 * n_accepted):
        await asking.submit([Job(f"more-{n}", "ocaml", json.dumps("x" * 200_000))], attacker)
    await asking.close()
    server.stop()


async def _accepts(broker: Broker) -> bool:
    try:
        await broker.submit(jobs(1, "afterwards"))
    except QueueFull:
        return False
    return True


async def test_a_busy_redis_is_asked_again(redis_server: Callable[..., Any]) -> None:
    server = redis_server()
    broker = StreamsBroker(server.url, patience_s=SOON_S)
    async with Redis.from_url(server.url) as redis, Redis.from_url(server.url) as other:
        await redis.config_set("busy-reply-threshold", 50)
        busy = asyncio.create_task(redis.eval("while true do end", 0))
        await asyncio.sleep(0.2)
        asked = asyncio.create_task(broker.depth("ocaml"))
        await asyncio.sleep(0.2)
        await other.script_kill()
        assert await asked == 0
        with pytest.raises(Exception, match="killed"):
            await busy
    await broker.close()
    server.stop()


RESET = struct.pack("ii", 1, 0)
"""SO_LINGER: closing says RST."""
NO_REDIS = [
    b"",
    b"HTTP/1.1 400 Bad Request\r\n\r\n",
    b"\x00\xff\xfe\r\n",
    b"$5\r\nab",
    b"*2\r\n:1\r\n",
    b"-LOADING Redis is loading the dataset in memory\r\n",
    b"-READONLY You can't write against a read only replica.\r\n",
    b"-MISCONF Errors writing to the AOF file\r\n",
    b"-NOPERM this user has no permissions\r\n",
    b"-OOM command not allowed when used memory > 'maxmemory'\r\n",
    b"-\r\n",
]


@contextlib.contextmanager
def serving(reply: bytes, n_replies: int, option: bytes | None) -> Iterator[str]:
    """A server that says `reply` to each of so many texts, and then breaks off.

    With threads: asyncio's server leaves a connection open that it accepted in the loop's last
    turn.
    """

    class Serve(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.settimeout(SOON_S)
            with contextlib.suppress(OSError):
                for _ in range(n_replies):
                    self.request.recv(65536)
                    self.request.sendall(reply)
            if option is not None:
                self.request.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, option)

    class Server(socketserver.ThreadingTCPServer):
        def shutdown_request(self, request: Any) -> None:
            self.close_request(request)  # without an orderly end of its own, so that a reset is one

    with Server(("127.0.0.1", 0), Serve) as server:
        running = threading.Thread(target=server.serve_forever, args=(0.01,))
        running.start()
        try:
            yield f"redis://127.0.0.1:{server.server_address[1]}/0"
        finally:
            server.shutdown()
            running.join()


async def no_faults(url: str) -> list[object]:
    """What calls at `url` end with, other than a queue fault."""
    broker = StreamsBroker(url, patience_s=0.05)
    try:
        calls: list[Awaitable[object]] = [
            broker.submit(jobs(1)),
            answers(broker, ["job-0"]),
            broker.results(["job-0"]),
            broker.claim("ocaml", "w", 1, 0),
            broker.renew([Claim(jobs(1)[0], "1-1 1 w", 1, 0.0)]),
            broker.finish(Claim(jobs(1)[0], "1-1 1 w", 1, 0.0), "{}", cache=True),
            broker.graders(),
            broker.get_queue_stats("ocaml"),
        ]
        found = await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), SOON_S)
        return [one for one in found if not isinstance(one, QueueFault)]
    finally:
        await broker.close()


@pytest.mark.parametrize("option", [None, RESET], ids=["closed", "reset"])
@pytest.mark.parametrize("n_replies", [0, 1, 2, 3, pytest.param(20, marks=pytest.mark.slow)])
async def test_a_server_that_breaks_off_or_is_no_redis_ends_every_call_with_a_fault(
    n_replies: int, option: bytes | None
) -> None:
    with contextlib.ExitStack() as stack:
        urls = [stack.enter_context(serving(reply, n_replies, option)) for reply in NO_REDIS]
        found = await asyncio.gather(*(no_faults(url) for url in urls))
    assert dict(zip(NO_REDIS, found, strict=True)) == {reply: [] for reply in NO_REDIS}


async def test_the_fault_names_the_url_without_its_password() -> None:
    broker = StreamsBroker("redis://me:geheim@127.0.0.1:1/0?client_name=geheim", patience_s=0.05)
    with pytest.raises(QueueFault) as fault:
        await broker.depth("ocaml")
    assert "redis://***@127.0.0.1:1/0" in fault.value.message
    assert "geheim" not in fault.value.message
    assert fault.value.retryable
    await broker.close()


async def test_a_wrong_password_is_refused_at_once(redis_url: str) -> None:
    broker = StreamsBroker(redis_url.replace("127", "me:geheim@127", 1), patience_s=SOON_S)
    started = time.monotonic()
    with pytest.raises(QueueFault, match="refuses") as fault:
        await broker.depth("ocaml")
    assert time.monotonic() - started < SOON_S / 2, "a refusal was tried again"
    assert not fault.value.retryable
    assert "geheim" not in fault.value.message
    await broker.close()


@pytest.mark.slow
async def test_looking_for_lapsed_leases_does_not_look_at_every_worker_each_time(
    redis_server: Callable[..., Any],
) -> None:
    server = redis_server()
    broker = StreamsBroker(server.url, BrokerSettings(lease_s=0.1))
    await broker.claim("ocaml", "w", 1, 1.0)
    async with Redis.from_url(server.url) as redis:
        stats = await redis.info("commandstats")
    assert stats["cmdstat_xrange"]["calls"] > 5
    assert stats["cmdstat_xinfo|consumers"]["calls"] == 1
    await broker.close()
    server.stop()


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    async with Redis.from_url(redis_url, decode_responses=True) as redis:
        yield redis


@pytest.fixture
async def on_redis(redis_url: str) -> AsyncIterator[Place]:
    place = Place(redis_url)
    yield place
    await place.close()
    await assert_every_key_expires(redis_url, place.prefix)


@pytest.mark.parametrize("n_steps", range(8))
async def test_closing_ends_whatever_is_under_way(on_redis: Place, n_steps: int) -> None:
    broker = on_redis.open()
    await broker.submit(jobs(1))
    for _ in range(n_steps):
        await asyncio.sleep(0)
    async with asyncio.timeout(SOON_S):
        await broker.close()


async def test_a_lost_consumer_group_is_made_anew(on_redis: Place, redis: Redis) -> None:
    broker = on_redis.open()
    await broker.submit(jobs(1))
    await take_one(broker)
    await redis.xgroup_destroy(f"{on_redis.prefix}jobs:ocaml", "workers")
    assert ids_of(await take(broker, 1)) == ["job-0"]


async def depth_is(broker: Broker, depth: int) -> None:
    async def reached() -> bool:
        await broker.claim("ocaml", "healer", 1, 0.1)
        return await broker.depth("ocaml") == depth

    await wait_until(reached)


async def test_a_running_job_without_a_lease_goes_back_in_line(
    on_redis: Place, redis: Redis
) -> None:
    broker = on_redis.open(SHORT_LEASE)
    await broker.submit(jobs(2))
    lost, held = await take(broker, 2, "forgotten")
    await redis.xack(f"{on_redis.prefix}jobs:ocaml", "workers", lost.token.split()[0])
    again = await take_one(broker, "other")
    assert again.job == lost.job
    assert await broker.finish(again, "{}", cache=True)
    assert await broker.finish(held, "{}", cache=True)
    assert await broker.depth("ocaml") == 0


async def test_a_running_job_without_a_lease_that_nobody_wants_is_dropped(
    on_redis: Place, redis: Redis
) -> None:
    broker = on_redis.open(SHORT_LEASE)
    await broker.submit(jobs(1))
    lost = await take_one(broker)
    await redis.xack(f"{on_redis.prefix}jobs:ocaml", "workers", lost.token.split()[0])
    await broker.cancel("ocaml", ["job-0"])
    await depth_is(broker, 0)
    await broker.submit(jobs(1))
    assert (await take_one(broker)).deliveries == 1


async def test_entries_that_a_forgetful_redis_left_behind_do_not_count_for_long(
    on_redis: Place, redis: Redis
) -> None:
    broker = on_redis.open(SHORT_LEASE)
    stream = f"{on_redis.prefix}jobs:ocaml"
    await broker.submit(jobs(1))
    held = await take_one(broker)
    for n in range(250):
        await redis.xadd(stream, {"id": f"gone-{n}"})
    await redis.xgroup_setid(stream, "workers", "$")
    await broker.finish(held, "{}", cache=True)
    assert await broker.depth("ocaml") == 250
    await depth_is(broker, 0)


@pytest.mark.parametrize("entry", ["", "1-1"])
async def test_a_job_record_without_its_job_does_not_keep_the_job_from_being_queued(
    on_redis: Place, redis: Redis, entry: str
) -> None:
    broker = on_redis.open()
    await broker.submit(jobs(1, "other"))
    await broker.finish(await take_one(broker), "{}", cache=True)
    assert await answers(
        broker, ["other-0"]
    )  # it looks up what it waits for when it starts, and every 30 s
    left = {
        "grader": "ocaml",
        "payload": "old",
        "entry": entry,
        "starts": 2,
        "turn": 7,
        "history": "",
        "inbox": 1,
    }
    await redis.hset(f"{on_redis.prefix}job:job-0", mapping=left)
    await redis.pexpire(f"{on_redis.prefix}job:job-0", 60_000)
    await broker.submit(jobs(1))
    claim = await take_one(broker)
    assert (claim.job, claim.deliveries) == (jobs(1)[0], 1)


async def test_jobs_that_a_worker_of_an_earlier_release_took_are_no_runs_turn(
    on_redis: Place, redis: Redis
) -> None:
    broker = on_redis.open()
    for name in "abc":
        await broker.submit(jobs(4, name), FairShare(f"key {name}"))
    taken = [job_id for job_id, _ in await redis.zpopmin(f"{on_redis.prefix}queue:ocaml", 2)]
    assert taken == ["a-0", "a-1"]
    assert sorted(await order(broker, 4)) == list("bbcc")
    assert sorted(await order(broker, 6)) == list("aabbcc")
    assert not await redis.exists(f"{on_redis.prefix}runs:ocaml")


async def test_an_entry_that_is_no_job_is_dropped(on_redis: Place, redis: Redis) -> None:
    broker = on_redis.open()
    await broker.submit(jobs(1))
    await redis.xadd(f"{on_redis.prefix}jobs:ocaml", {"nonsense": "1"})
    assert ids_of(await broker.claim("ocaml", "w", 8, 1.0)) == ["job-0"]
    assert await broker.depth("ocaml") == 1


async def test_a_finished_job_leaves_only_its_result(on_redis: Place, redis: Redis) -> None:
    asking, grading = on_redis.open(), on_redis.open()
    await asking.submit(jobs(3))
    for claim in await take(grading, 3):
        await grading.finish(claim, "{}", cache=True)
    await answers(asking, ids(jobs(3)))
    kinds = [
        key.removeprefix(on_redis.prefix).split(":")[0]
        async for key in redis.scan_iter(f"{on_redis.prefix}*")
    ]
    assert sorted(kinds) == ["inbox", "jobs", "result", "result", "result", "turns"]
    assert await redis.xlen(f"{on_redis.prefix}jobs:ocaml") == 0


async def test_a_job_that_cannot_be_finished_harms_none_that_ends_with_it(
    on_redis: Place, redis: Redis
) -> None:
    broker = on_redis.open()
    await broker.submit(jobs(3))
    claims = await take(broker, 3)
    await redis.set(f"{on_redis.prefix}job:job-1", "no record", px=60_000)
    ends = (
        broker.finish(claim, "{}", cache=True, dead_letter=claim is claims[1]) for claim in claims
    )
    outcomes = await asyncio.gather(*ends, return_exceptions=True)
    assert (outcomes[0], outcomes[2], type(outcomes[1])) == (True, True, QueueFault)
    assert "WRONGTYPE" in str(outcomes[1])


async def test_a_lapsed_holder_cannot_renew_what_another_holds(
    on_redis: Place, redis: Redis
) -> None:
    first, second = on_redis.open(SHORT_LEASE), on_redis.open(SHORT_LEASE)
    await first.submit(jobs(1))
    lapsed = await take_one(first, "first")
    await take_one(second, "second")
    await first.renew([lapsed])
    [pending] = await redis.xpending_range(f"{on_redis.prefix}jobs:ocaml", "workers", "-", "+", 10)
    assert pending["consumer"] == "second"


async def test_answers_of_an_asker_that_died_are_not_kept_for_it(
    on_redis: Place, redis: Redis
) -> None:
    asking, grading = on_redis.open(), on_redis.open()
    await asking.submit(jobs(1))
    [inbox] = [key async for key in redis.scan_iter(f"{on_redis.prefix}inbox:*")]
    await redis.delete(inbox)
    assert await grading.finish(await take_one(grading), "{}", cache=True)
    assert await redis.exists(inbox) == 0


async def test_an_announcement_of_another_release_does_not_hide_the_others(
    on_redis: Place, redis: Redis
) -> None:
    broker = on_redis.open()
    await broker.heartbeat("old", OCAML, 60)
    await broker.heartbeat("new", OCAML, 60)
    await redis.set(f"{on_redis.prefix}worker:ocaml:new", '{"name": "cobol"}', ex=60)
    assert [info.workers for info in await broker.graders()] == [1]


# ----------------------------------------------------------------------------------------- opening


async def test_a_redis_url_opens_streams_with_the_given_terms() -> None:
    broker = open_broker("rediss://example.test:6380/2", BrokerSettings(lease_s=4))
    assert isinstance(broker, StreamsBroker)
    assert broker.lease_s == 4
    await broker.close()


@pytest.mark.parametrize(
    "url", ["amqp://localhost", "localhost:6379", "", "redis://localhost:port/0"]
)
def test_another_url_is_misuse(url: str) -> None:
    with pytest.raises(Misuse, match="broker URL"):
        open_broker(url)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://:secret@host:6379/0", "redis://***@host:6379/0"),
        ("redis://host/1?password=secret", "redis://host/1"),
        ("rediss://a:b%40c@[::1]:1/0", "rediss://***@[::1]:1/0"),
    ],
)
def test_urls_are_shown_without_secrets(url: str, shown: str) -> None:
    assert redact_url(url) == shown
