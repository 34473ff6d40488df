"""The worker, on both brokers and as real processes: every job is answered once, whatever graders
and signals do."""

from __future__ import annotations

import asyncio
import inspect
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from gradus.contract import (
    RESULT,
    Faulted,
    Graded,
    OcamlSubmission,
    Stage,
    Submission,
    TestCount,
    compute_job_id,
)
from gradus.descriptions import GraderDescription, GraderInfo
from gradus.errors import FaultKind, InternalFault, Misuse, QueueFault, SandboxFault
from gradus.tasks.ocaml import OcamlLimits
from services.broker import MAX_DELIVERIES, Broker, BrokerSettings, Claim, Job
from services.broker.from_url import open_broker
from services.broker.jobs import JobPayload
from services.broker.memory import MemoryBroker
from services.broker.streams import StreamsBroker
from services.broker.workers import Registration
from services.graders.ocaml.grader import OcamlGrader
from services.local_grading import grade_in_order
from services.sandbox.cancellation import NeedsTime, is_brief
from services.worker import LARGE_BYTES, MAX_ATTEMPTS, Worker, grade_with_retries
from tests.graders import described
from tests.redis_server import RedisServer

RUBRIC = "ocaml/graduated@1"
SOON_S = 60.0
"""Longer than anything here takes on a busy machine; nothing waits for it to pass."""
INFO = GraderInfo(
    name="ocaml",
    revision="t1",
    toolchain="tiny 1",
    rubrics=(RUBRIC, "ocaml/strict@1"),
    sandbox="none",
)


@pytest.fixture(autouse=True)
def _quick_claims(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that stops waits for its claim to run out."""
    monkeypatch.setattr("services.worker.CLAIM_WAIT_S", 0.1)


class TinyGrader:
    """Does what the completion's first word says (`_act`)."""

    def __init__(self, *, unable: bool = False) -> None:
        self.unable = unable
        self.calls: Counter[str] = Counter()
        """By completion."""
        self.started: list[str] = []
        """Completions, in order."""
        self.at_once: Counter[int] = Counter()
        """By slot: how many it grades now."""
        self.most_at_once = 0
        self.let_go = threading.Event()
        self._lock = threading.Lock()

    waiting_slots: int | None = None

    def description(self) -> GraderDescription:
        return described(self.info())

    def info(self) -> GraderInfo:
        return INFO

    def self_test(self) -> None:
        if self.unable:
            raise SandboxFault("no box holds here", retryable=False)

    def grade(self, submission: Submission, rubric: str, slot: int) -> Graded:
        what = submission.completion
        with self._lock:
            self.calls[what] += 1
            self.started.append(what)
            self.at_once[slot] += 1
            assert self.at_once[slot] == 1, "two at a time in one slot"
            self.most_at_once = max(self.most_at_once, sum(self.at_once.values()))
            attempt = self.calls[what]
        try:
            self._act(what.split(" ")[0], attempt)
        finally:
            with self._lock:
                self.at_once[slot] -= 1
        return Graded(
            id=submission.id,
            reward=1.0,
            passed=True,
            stage=Stage.TESTS,
            components={"tests": 1.0},
            tests=TestCount(passed=1, total=1),
            rubric=rubric,
            grader=INFO.grader,
            toolchain=INFO.toolchain,
            cpu_ms=1.0,
            wall_ms=1.0,
        )

    def _act(self, what: str, attempt: int) -> None:
        match what:
            case "slow" if is_brief():
                raise NeedsTime
            case "flaky" if attempt == 1:
                raise SandboxFault("the box broke")
            case "fault":
                raise SandboxFault("the box breaks every time")
            case "hopeless":
                raise InternalFault("no such package", retryable=False)
            case "surprise":
                raise ValueError("secret of the submission")
            case "misuse":
                raise Misuse("no such rubric")
            case "hold":
                assert self.let_go.wait(SOON_S)
            case "break":
                assert self.let_go.wait(SOON_S)
                raise SandboxFault("the box broke")


def submission(completion: str, submission_id: str | None = None) -> OcamlSubmission:
    task = {"tests": "let () = assert (f 1 = 2)"}
    return OcamlSubmission.model_validate(
        {"id": submission_id or completion, "completion": completion, "task": task}
    )


def job(completion: str, *, deadline_s: float = 600.0, info: GraderInfo = INFO, **task: Any) -> Job:
    made = submission(completion)
    made = made.model_copy(update={"task": made.task.model_copy(update=task)})
    more = {"rubric": RUBRIC, "grader": info.grader, "deadline": time.time() + deadline_s}
    payload = JobPayload(submission=made.model_dump(mode="json"), **more)
    return Job(compute_job_id(info.grader, RUBRIC, made), "ocaml", payload.model_dump_json())


class Place:
    """Where brokers meet: one Redis prefix, or the one memory broker."""

    def __init__(self, redis_url: str | None) -> None:
        self._redis_url = redis_url
        self.prefix = f"worker-{uuid.uuid4().hex}:"
        self.opened: list[Broker] = []

    def open(self, terms: BrokerSettings | None = None) -> Broker:
        if self._redis_url is not None:
            self.opened.append(StreamsBroker(self._redis_url, terms, prefix=self.prefix))
        elif not self.opened:
            self.opened.append(MemoryBroker(terms))
        return self.opened[-1]


@pytest.fixture(params=[pytest.param("memory", marks=pytest.mark.slow), "redis"])
async def place(request: pytest.FixtureRequest) -> AsyncIterator[Place]:
    place = Place(request.getfixturevalue("redis_url") if request.param == "redis" else None)
    yield place
    for broker in place.opened:
        await broker.close()


@asynccontextmanager
async def working(
    grader: Any, broker: Broker, *, slots: int = 4, **more: Any
) -> AsyncIterator[Worker]:
    stop = asyncio.Event()
    worker = Worker(grader, broker, slots=slots, **({"name": "w"} | more))
    running = asyncio.create_task(worker.run(stop))
    try:
        yield worker
    finally:
        if isinstance(grader, TinyGrader):
            grader.let_go.set()
        stop.set()
        await running


async def answers(
    broker: Broker, jobs: Sequence[Job], within_s: float = SOON_S
) -> dict[str, Graded | Faulted]:
    """By submission id, for all of `jobs`."""
    job_ids = [job.id for job in jobs]
    found = [RESULT.validate_json(text) async for _, text in broker.wait(job_ids, within_s)]
    assert len(found) == len(jobs)
    return {result.id: result for result in found}


async def until(happened: Callable[[], Any]) -> None:
    """`happened` may be asynchronous."""
    async with asyncio.timeout(SOON_S):
        # it happens in other threads and processes, where no event of ours is set
        while not (await found if inspect.isawaitable(found := happened()) else found):  # noqa: ASYNC110
            await asyncio.sleep(0.01)


# --------------------------------------------------------------------------------------- one grade


def attempt(what: str) -> tuple[Graded | Faulted | None, int]:
    grader = TinyGrader()
    return grade_with_retries(grader, submission(what), RUBRIC, 0, brief=False), grader.calls[what]


def test_a_verdict_is_a_verdict() -> None:
    result, calls = attempt("right")
    assert isinstance(result, Graded)
    assert calls == 1


def test_a_fault_that_passes_is_not_reported() -> None:
    result, calls = attempt("flaky")
    assert isinstance(result, Graded)
    assert calls == 2


@pytest.mark.parametrize(
    ("what", "kind", "retryable", "calls"),
    [
        ("fault", FaultKind.SANDBOX, True, MAX_ATTEMPTS),
        ("hopeless", FaultKind.INTERNAL, False, 1),
        ("misuse", FaultKind.INTERNAL, False, 1),
        ("surprise", FaultKind.INTERNAL, True, MAX_ATTEMPTS),
    ],
)
def test_a_fault_is_reported_after_bounded_attempts(
    what: str, kind: FaultKind, retryable: bool, calls: int
) -> None:
    result, called = attempt(what)
    assert isinstance(result, Faulted)
    assert (result.id, result.fault.kind, result.fault.retryable, called) == (
        what,
        kind,
        retryable,
        calls,
    )


def test_a_surprise_is_told_by_its_type_alone() -> None:
    result, _ = attempt("surprise")
    assert isinstance(result, Faulted)
    assert result.fault.message == "the grader broke: ValueError"


# ---------------------------------------------------------------------- from the queue


async def test_every_job_is_answered_and_bad_ones_harm_no_other(place: Place) -> None:
    broker = place.open()
    jobs = [
        job(what)
        for what in ("right a", "surprise", "right b", "hopeless", "flaky", "fault", "right c")
    ]
    async with working(TinyGrader(), broker):
        await broker.submit(jobs)
        results = await answers(broker, jobs)
    kinds = {
        name: result.status if isinstance(result, Graded) else result.fault.kind
        for name, result in results.items()
    }
    assert kinds == {
        "right a": "graded",
        "right b": "graded",
        "right c": "graded",
        "flaky": "graded",
        "fault": "sandbox",
        "hopeless": "internal",
        "surprise": "internal",
    }


def assert_slow_ones_went_last(grader: TinyGrader) -> None:
    """By two slots, the last of the others and the first of the slow ones may be started
    together."""
    again = [what for n, what in enumerate(grader.started) if what in grader.started[:n]]
    slow = {what for what in grader.started if what.startswith("slow")}
    assert len(again) == len(slow)
    assert {*again} == slow
    assert (
        len(grader.started) - grader.started.index(again[0], grader.started.index(again[0]) + 1)
        <= len(slow) + 1
    )


async def test_what_takes_long_is_graded_when_its_neighbours_are_done(place: Place) -> None:
    broker = place.open()
    grader = TinyGrader()
    jobs = [job(f"slow {n}") for n in range(4)] + [job(f"right {n}") for n in range(20)]
    await broker.submit(jobs)
    async with working(grader, broker, slots=2):
        results = await answers(broker, jobs)
    assert {result.status for result in results.values()} == {"graded"}
    assert_slow_ones_went_last(grader)


async def test_no_more_is_graded_at_one_time_than_there_are_slots(place: Place) -> None:
    broker = place.open()
    grader = TinyGrader()
    jobs = [job(f"right {n}") for n in range(40)]
    async with working(grader, broker, slots=3):
        await broker.submit(jobs)
        await answers(broker, jobs)
    assert sum(grader.calls.values()) == 40
    assert 1 <= grader.most_at_once <= 3


async def test_all_slots_are_used(place: Place) -> None:
    broker = place.open()
    grader = TinyGrader()
    jobs = [job(f"hold {n}") for n in range(3)]
    async with working(grader, broker, slots=3):
        await broker.submit(jobs)
        await until(lambda: grader.most_at_once == 3)
        grader.let_go.set()
        await answers(broker, jobs)


async def test_a_worker_announces_itself_and_leaves(place: Place) -> None:
    broker = place.open()
    async with working(TinyGrader(), broker, slots=5):
        await until(broker.graders)
        assert await broker.graders() == [INFO.model_copy(update={"slots": 5})]
    assert await broker.graders() == []


async def test_a_worker_that_cannot_prove_itself_announces_and_claims_nothing(place: Place) -> None:
    broker = place.open()
    grader = TinyGrader(unable=True)
    await broker.submit([job("right")])
    with pytest.raises(SandboxFault, match="no box holds here"):
        await Worker(grader, broker, slots=1).run(asyncio.Event())
    assert await broker.graders() == []
    assert grader.calls.total() == 0


async def test_what_comes_after_its_deadline_is_a_fault_and_is_not_graded(place: Place) -> None:
    broker = place.open()
    grader = TinyGrader()
    late, good = job("right late", deadline_s=-1), job("right")
    async with working(grader, broker):
        await broker.submit([late, good])
        results = await answers(broker, [late, good])
    fault = results["right late"]
    assert isinstance(fault, Faulted)
    assert (fault.fault.kind, fault.fault.retryable) == (FaultKind.DEADLINE, True)
    assert isinstance(results["right"], Graded)
    assert grader.calls["right late"] == 0


async def test_a_job_that_killed_its_workers_is_buried_and_not_started_again(
    redis_url: str,
) -> None:
    place = Place(redis_url)
    grader = TinyGrader()
    broker = place.open(BrokerSettings(lease_s=0.2))
    killer, good = job("right killer"), job("right")
    await broker.submit([killer])
    for n in range(MAX_DELIVERIES):
        async with asyncio.timeout(SOON_S):
            while not await broker.claim("ocaml", f"dead-{n}", 1, 1.0):
                pass
    async with working(grader, broker):
        await broker.submit([good])
        results = await answers(broker, [killer, good])
    fault = results["right killer"]
    assert isinstance(fault, Faulted)
    assert (fault.fault.kind, fault.fault.retryable) == (FaultKind.WORKER, False)
    assert grader.calls["right killer"] == 0
    assert [letter.job for letter in await broker.dead_letters("ocaml")] == [killer]
    await broker.close()


@pytest.mark.parametrize("payload", ["{}", "[]", "no json", '{"submission": {"id": "x"}}'])
async def test_a_job_that_cannot_be_read_is_a_fault_and_buried(place: Place, payload: str) -> None:
    broker = place.open()
    odd = Job(f"odd-{uuid.uuid4().hex}", "ocaml", payload)
    good = job("right")
    async with working(TinyGrader(), broker):
        await broker.submit([odd, good])
        results = await answers(broker, [odd, good])
    fault = results[odd.id]
    assert isinstance(fault, Faulted)
    assert "different versions" in fault.fault.message
    assert [letter.job for letter in await broker.dead_letters("ocaml")] == [odd]


class _Executed:
    """Makes a folder when it is unpickled."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self._folder),)


HOSTILE = [
    b"\x80\x04",
    b"\xff\xfe\x00",
    b"",
    b"null",
    b"[" * 100_000,
    b'{"a":' * 100_000,
    b"1e999999",
    b'{"submission": {"id": "' + b"x" * 1_000_000 + b'"}, "rubric": "r", "deadline": NaN}',
]


async def test_hostile_bytes_in_redis_become_faults_and_stop_no_worker(
    redis_url: str, tmp_path: Path
) -> None:
    made = tmp_path / "made by a job"
    hostile = [
        *HOSTILE,
        pickle.dumps(_Executed(made)),
        f"\"__import__('os').mkdir({str(made)!r})\"".encode(),
    ]
    place = Place(redis_url)
    broker = place.open()
    odd = [Job(f"odd-{n}", "ocaml", "{}") for n in range(len(hostile))]
    await broker.submit(odd)
    async with Redis.from_url(redis_url) as redis:
        for one, payload in zip(odd, hostile, strict=True):
            await redis.hset(f"{place.prefix}job:{one.id}", "payload", payload)
        await redis.hdel(f"{place.prefix}job:odd-2", "payload")
        for entry in (
            {"id": "odd-0"},
            {"id": b"\xff"},
            {"nonsense": "1"},
            {"payload": hostile[-2], "id": "none"},
        ):
            await redis.xadd(f"{place.prefix}jobs:ocaml", entry)
        await redis.zadd(f"{place.prefix}queue:ocaml", {b"\xff\x80": 0, "no such job": -1e300})
    async with working(TinyGrader(), broker):
        results = await answers(broker, odd)
        await broker.submit([job("right")])
        assert isinstance((await answers(broker, [job("right")]))["right"], Graded)
    assert {result.fault.kind for result in results.values() if isinstance(result, Faulted)} == {
        FaultKind.INTERNAL
    }
    assert len(results) == len(hostile)
    assert not made.exists()
    await broker.close()


async def test_work_that_lasts_longer_than_a_lease_is_done_once(redis_url: str) -> None:
    place = Place(redis_url)
    terms = BrokerSettings(lease_s=1.0)
    broker = place.open(terms)
    other_broker = place.open(terms)
    grader = TinyGrader()
    held = job("hold")
    async with working(grader, broker), working(grader, other_broker, name="other"):
        await broker.submit([held])
        await until(lambda: grader.calls["hold"])
        await asyncio.sleep(1.5)
        grader.let_go.set()
        results = await answers(broker, [held])
    assert isinstance(results["hold"], Graded)
    assert grader.calls["hold"] == 1
    for one in place.opened:
        await one.close()


async def given_up(worker: Worker) -> None:
    [work] = worker._running_jobs.values()
    await until(lambda: work.cancel_token.is_cancelled)


async def test_a_running_job_that_nobody_wants_any_more_is_not_tried_again_and_its_slot_is_free(
    place: Place,
) -> None:
    broker = place.open(BrokerSettings(lease_s=0.4))
    grader = TinyGrader()
    stop = asyncio.Event()
    worker = Worker(grader, broker, slots=1, name="w")
    running = asyncio.create_task(worker.run(stop))
    await broker.submit([job("break")])
    await until(lambda: grader.calls["break"])
    await broker.cancel("ocaml", [job("break").id])
    await given_up(worker)
    grader.let_go.set()
    await broker.submit([job("right")])
    assert isinstance((await answers(broker, [job("right")]))["right"], Graded)
    stop.set()
    await running
    assert grader.calls["break"] == 1
    assert await broker.results([job("break").id]) == {}
    assert await broker.depth("ocaml") == 0


async def test_the_verdict_of_a_job_that_nobody_wants_any_more_is_kept_for_the_next(
    place: Place,
) -> None:
    broker = place.open(BrokerSettings(lease_s=0.4))
    grader = TinyGrader()
    stop = asyncio.Event()
    worker = Worker(grader, broker, slots=1, name="w")
    running = asyncio.create_task(worker.run(stop))
    await broker.submit([job("hold")])
    await until(lambda: grader.calls["hold"])
    await broker.cancel("ocaml", [job("hold").id])
    await given_up(worker)
    grader.let_go.set()
    await until(lambda: broker.results([job("hold").id]))
    stop.set()
    await running


async def test_a_job_that_somebody_wants_again_is_done_after_all(place: Place) -> None:
    broker = place.open(BrokerSettings(lease_s=0.4))
    grader = TinyGrader()
    stop = asyncio.Event()
    worker = Worker(grader, broker, slots=1, name="w")
    running = asyncio.create_task(worker.run(stop))
    await broker.submit([job("break")])
    await until(lambda: grader.calls["break"])
    await broker.cancel("ocaml", [job("break").id])
    await given_up(worker)
    await broker.submit([job("break")])
    grader.let_go.set()
    assert isinstance((await answers(broker, [job("break")]))["break"], Faulted)
    stop.set()
    await running
    assert grader.calls["break"] > MAX_ATTEMPTS


class Recording(MemoryBroker):
    """Away when told to; notes how jobs were finished."""

    def __init__(self) -> None:
        super().__init__()
        self.away: Counter[str] = Counter()
        """By call: how many more of them fail."""
        self.finished: dict[str, bool] = {}
        """Submission id -> whether the result is to be kept for later askers."""

    def _check(self, call: str) -> None:
        if self.away[call]:
            self.away[call] -= 1
            raise QueueFault("the queue is away")

    async def claim(self, *args: Any) -> list[Claim]:
        self._check("claim")
        return await super().claim(*args)

    async def finish(
        self, claim: Claim, result: str, *, cache: bool, dead_letter: bool = False
    ) -> bool:
        self._check("finish")
        self.finished[RESULT.validate_json(result).id] = cache
        return await super().finish(claim, result, cache=cache, dead_letter=dead_letter)

    async def heartbeat(self, worker: str, info: GraderInfo, ttl_s: float) -> None:
        self._check("heartbeat")
        await super().heartbeat(worker, info, ttl_s)


async def test_a_queue_that_is_away_for_a_while_costs_no_result() -> None:
    broker = Recording()
    grader = TinyGrader()
    broker.away.update(claim=1, finish=2, heartbeat=1)
    async with working(grader, broker):
        await broker.submit([job("right")])
        assert isinstance((await answers(broker, [job("right")]))["right"], Graded)
    assert grader.calls["right"] == 1


async def test_large_jobs_leave_a_quarter_of_the_slots_of_a_model_to_small_ones(
    place: Place,
) -> None:
    grader = TinyGrader()
    broker = place.open()
    grader.waiting_slots = 8
    large = [job(f"hold {n}", tests="x" * LARGE_BYTES) for n in range(12)]
    small = [job("right 1"), job("right 2")]
    async with working(grader, broker, slots=8):
        await broker.submit(large)
        await until(lambda: len(grader.started) == 6)
        await broker.submit(small)
        assert len(await answers(broker, small)) == 2
        assert len(grader.started) == 8
        grader.let_go.set()
        assert len(await answers(broker, large)) == 12


async def test_slots_go_on_while_results_are_delivered_but_not_without_end() -> None:
    broker = Recording()
    grader = TinyGrader()
    broker.away.update(finish=8)
    jobs = [job(f"right {n}") for n in range(10)]
    async with working(grader, broker, slots=2):
        await broker.submit(jobs)
        await until(
            lambda: broker.away["finish"] <= 4
        )  # four results were refused, and wait for the next attempt
        assert grader.calls.total() == 4
        await answers(broker, jobs)
    assert grader.calls.total() == 10


async def test_verdicts_are_kept_for_later_askers_and_faults_are_not() -> None:
    broker = Recording()
    jobs = [
        job("right"),
        job("hopeless"),
        job("right other", info=INFO.model_copy(update={"revision": "t0"})),
    ]
    async with working(TinyGrader(), broker):
        await broker.submit(jobs)
        await answers(broker, jobs)
    # the last was asked of another revision: this one's verdict answers it, but is not remembered
    # as the other's
    assert broker.finished == {"right": True, "hopeless": False, "right other": False}


# ---------------------------------------------------------------------------------------- stopping


async def test_a_worker_that_stops_finishes_what_it_began_and_takes_nothing_new(
    place: Place,
) -> None:
    broker = place.open()
    grader = TinyGrader()
    stop = asyncio.Event()
    held = [job("hold a"), job("hold b")]
    later = job("right later")
    running = asyncio.create_task(Worker(grader, broker, slots=2, name="w").run(stop))
    await broker.submit(held)
    await until(lambda: grader.calls.total() == 2)
    stop.set()
    await asyncio.sleep(0.1)
    await broker.submit([later])
    asyncio.get_running_loop().call_later(0.3, grader.let_go.set)
    await running
    assert set(await broker.results([one.id for one in held])) == {one.id for one in held}
    assert grader.calls["right later"] == 0
    assert await broker.depth("ocaml") == 1


async def test_what_a_stopping_worker_cannot_finish_goes_back_and_is_done_by_another(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.worker.DRAIN_S", 0.1)
    terms = BrokerSettings(
        lease_s=10 * SOON_S
    )  # longer than anybody waits: it has to be given back
    broker = place.open(terms)
    slow = TinyGrader()
    quick = TinyGrader()
    stop = asyncio.Event()
    quick.let_go.set()
    running = asyncio.create_task(Worker(slow, broker, slots=1, name="slow").run(stop))
    await broker.submit([job("hold")])
    await until(lambda: slow.calls["hold"])
    stop.set()
    await running
    async with working(quick, place.open(terms), name="quick"):
        results = await answers(broker, [job("hold")])
    slow.let_go.set()
    assert isinstance(results["hold"], Graded)
    assert quick.calls["hold"] == 1


async def test_a_worker_leaves_soon_though_redis_is_away(
    redis_server: Callable[..., RedisServer],
) -> None:
    server = redis_server()
    grader = TinyGrader()
    broker = StreamsBroker(server.url, patience_s=SOON_S)
    registration = Registration(broker, "leaving", grader.info(), grader.description())
    heartbeats = asyncio.create_task(registration.keep_alive())
    await until(broker.graders)
    server.stop()
    began_at = time.monotonic()
    heartbeats.cancel()
    await registration.end()
    assert time.monotonic() - began_at < SOON_S / 2
    await broker.close()


@pytest.mark.slow
async def test_an_idle_worker_costs_less_than_five_commands_a_second(
    redis_server: Callable[..., RedisServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Redis counts them: those that scripts call, too."""
    monkeypatch.undo()  # quick claims would be the worker's own cost
    server = redis_server()
    broker = StreamsBroker(server.url)
    async with working(TinyGrader(), broker), Redis.from_url(server.url) as redis:
        await until(broker.graders)
        before = (await redis.info("stats"))["total_commands_processed"]
        since = time.monotonic()
        await asyncio.sleep(3)
        seconds = time.monotonic() - since
        after = (await redis.info("stats"))["total_commands_processed"]
    await broker.close()
    server.stop()
    assert after - before < 5 * seconds


# ---------------------------------------------------------------------- real processes


def started(*argv: str) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    return subprocess.Popen([sys.executable, *argv], env=environment, stderr=subprocess.PIPE)


@pytest.mark.slow
async def test_a_worker_process_that_is_told_to_stop_finishes_what_it_began_with_status_0(
    redis_server: Callable[..., RedisServer], ocaml_grader: OcamlGrader
) -> None:
    redis_url = redis_server().url  # a process uses the usual key prefix
    broker = open_broker(redis_url)
    endless = job(
        "let rec f x = f (x + 1)", info=ocaml_grader.info(), limits=OcamlLimits(cpu_s=0.3)
    )
    running = started("-m", "gradus", "worker", "ocaml", "--redis", redis_url, "--slots", "2")
    try:
        await broker.submit([endless])
        await until(lambda: began(broker, running))
        running.send_signal(signal.SIGTERM)
        _, log = await asyncio.to_thread(running.communicate, None, SOON_S)
    finally:
        running.kill()
        running.communicate()
    assert (running.returncode, b"Traceback" in log) == (0, False), log
    assert await broker.graders() == []
    assert isinstance(
        RESULT.validate_json((await broker.results([endless.id]))[endless.id]), Graded
    )
    await broker.close()


async def began(broker: Broker, running: subprocess.Popen[bytes]) -> bool:
    assert running.poll() is None, running.communicate()[1]
    return (await broker.get_queue_stats("ocaml")).running == 1


def test_a_worker_process_without_a_queue_says_how_to_name_one() -> None:
    running = started("-m", "gradus", "worker", "ocaml")
    _, log = running.communicate(timeout=SOON_S)
    assert (running.returncode, b"--redis redis://" in log, b"Traceback" in log) == (2, True, False)


# ----------------------------------------------------------------------------------------- offline


def test_offline_results_come_in_order_and_identical_work_is_done_once() -> None:
    grader = TinyGrader()
    asked = [
        submission(what, str(n))
        for n, what in enumerate(["right a", "right b", "right a", "hopeless", "right a"])
    ]
    results = list(grade_in_order(grader, asked, RUBRIC, 3))
    assert [(result.id, result.status) for result in results] == [
        ("0", "graded"),
        ("1", "graded"),
        ("2", "graded"),
        ("3", "faulted"),
        ("4", "graded"),
    ]
    assert grader.calls == {"right a": 1, "right b": 1, "hopeless": 1}


def test_offline_grading_that_is_closed_ends_with_what_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    grader = TinyGrader()

    class Pool(ThreadPoolExecutor):
        """Lets the running grade end when it is too late for another to begin."""

        def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
            super().shutdown(wait=False, cancel_futures=cancel_futures)
            grader.let_go.set()
            super().shutdown(wait=wait)

    monkeypatch.setattr("services.local_grading.ThreadPoolExecutor", Pool)
    asked = [submission("right 0"), submission("hold"), submission("right 2")]
    results = grade_in_order(grader, asked, RUBRIC, 1)
    assert next(results).id == "right 0"
    results.close()  # type: ignore[attr-defined]
    assert grader.calls["right 2"] == 0
