"""Machines in trouble: transports that break, loops that fail, leases that lapse under a live
worker, a Redis that is not there. `tests/chaos` has the same under load."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from redis.asyncio.connection import AbstractConnection, Connection

from gradus.contract import Graded, build_faulted
from gradus.errors import FaultKind, QueueFault
from services.api.app import create_app
from services.api.dispatch import parse_result
from services.api.settings import ApiSettings
from services.broker import MAX_DELIVERIES, Broker, BrokerSettings, Claim, Job
from services.broker.jobs import parse_payload
from services.broker.memory import MemoryBroker
from services.broker.streams import StreamsBroker
from services.broker.streams.redis_faults import RedisUnavailable
from services.broker.workers import DeathLog, Registration, list_workers
from services.embedded import serve_embedded
from services.worker import Worker
from services.worker_metrics import STALE_S, WorkerMetrics
from tests.conftest import Cli
from tests.contract.test_worker import INFO, TinyGrader, answers, job, until
from tests.fake_grader import submission
from tests.redis_server import RedisServer

SOON_S = 60.0
"""Longer than anything here takes on a busy machine; nothing waits for it to pass."""


@pytest.fixture(autouse=True)
def _quick_claims(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that stops waits for its claim to run out."""
    monkeypatch.setattr("services.worker.CLAIM_WAIT_S", 0.1)


@pytest.fixture
def prefix() -> str:
    return f"trouble-{uuid.uuid4().hex}:"


@asynccontextmanager
async def opened(url: str, prefix: str, **settings: float) -> AsyncIterator[StreamsBroker]:
    broker = StreamsBroker(url, BrokerSettings(**settings), prefix=prefix)  # type: ignore[arg-type]
    try:
        yield broker
    finally:
        await broker.close()


def open_client(broker: Broker) -> httpx.AsyncClient:
    """A client of an API over this broker."""
    transport = httpx.ASGITransport(create_app(broker, ApiSettings()))
    return httpx.AsyncClient(transport=transport, base_url="http://test")


# --------------------------------------------------------------------------------------- transport

CLOSED = "unable to perform operation on <TCPTransport closed=True reading=False>; the handler is"
ERRORS = [
    RuntimeError(f"{CLOSED} closed"),
    AttributeError("'NoneType' object has no attribute 'write'"),
    AssertionError(),
    BufferError("cannot close exported pointers exist"),
    asyncio.InvalidStateError("invalid state"),
]
STEPS = ["connect", "can_read", "send_packed_command", "read_response"]


def break_connections(
    monkeypatch: pytest.MonkeyPatch, step: str, error: Exception, times: int
) -> list[int]:
    """Let the next `times` calls of redis-py's `step` raise `error`. Returns the calls left."""
    owner: Any = Connection if step in vars(Connection) else AbstractConnection
    while step not in vars(owner):
        owner = owner.__mro__[1]
    original = getattr(owner, step)
    left = [times]

    async def broken(self: Any, *args: Any, **options: Any) -> Any:
        if left[0] > 0:
            left[0] -= 1
            raise error
        return await original(self, *args, **options)

    monkeypatch.setattr(owner, step, broken)
    return left


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("step", STEPS)
async def test_whatever_a_transport_raises_is_tried_again_and_else_a_queue_fault(
    redis_url: str, prefix: str, monkeypatch: pytest.MonkeyPatch, step: str, error: Exception
) -> None:
    async with opened(redis_url, prefix) as broker:
        await broker.depth("ocaml")
        if step == "connect":
            await broker._redis.close()
            broker._redis._idle = []
        left = break_connections(monkeypatch, step, error, 1)
        assert await broker.depth("ocaml") == 0
        assert left == [0]
        if step == "can_read":  # the next connection is new, and has nothing to read
            return
        monkeypatch.setattr(broker._redis, "patience_s", 0.05)
        left[0] = 1000
        if step == "connect":
            broker._redis._idle = []
        with pytest.raises(RedisUnavailable, match="cannot reach Redis"):
            await broker.depth("ocaml")


async def test_a_broken_transport_is_a_503_at_the_api(
    redis_url: str, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = StreamsBroker(redis_url, prefix=prefix, patience_s=0.05)
    async with open_client(broker) as client:
        await broker.heartbeat("w", INFO, 60)
        break_connections(monkeypatch, "send_packed_command", ERRORS[0], 1000)
        response = await client.post(
            "/v1/grade/ocaml", json={"submissions": [submission("a")], "deadline_s": 1}
        )
    assert response.status_code == 503
    assert "cannot reach Redis" in response.json()["detail"]
    await broker.close()


# ------------------------------------------------------------------------------------------- clocks


@pytest.mark.parametrize("ahead_s", [180, -180, 86_400, -86_400])
async def test_a_job_whose_api_has_another_date_is_graded_and_asked_about_elsewhere(
    redis_url: str, prefix: str, monkeypatch: pytest.MonkeyPatch, ahead_s: float
) -> None:
    """`tests/chaos` has whole processes with another date."""
    right_time = time.time
    async with (
        opened(redis_url, prefix) as here,
        opened(redis_url, prefix) as there,
        open_client(here) as asking,
        open_client(there) as other,
    ):
        await here.heartbeat("w", INFO, 60)
        sent = {"submissions": [submission("a")], "deadline_s": 60}
        with monkeypatch.context() as patch:
            patch.setattr(time, "time", lambda: right_time() + ahead_s)
            accepted = await asking.post("/v1/jobs/ocaml", json=sent)
        path = accepted.headers["location"]
        assert (await other.get(path)).json()["status"] == "queued"
        stop = asyncio.Event()
        running = asyncio.create_task(Worker(TinyGrader(), there, slots=1).run(stop))

        async def is_done() -> bool:
            return (await other.get(path)).json()["status"] == "done"

        await until(is_done)
        [result] = (await other.get(path)).json()["results"]
        stop.set()
        await running
    assert result["status"] == "graded"


# -------------------------------------------------------------------------------------- the worker


class FailingBroker(MemoryBroker):
    """Fails unexpectedly at the second call of one method."""

    def __init__(self, failing: str) -> None:
        super().__init__()
        self._failing = failing
        self._calls = 0
        self.released: list[Claim] = []

    def _fail_in(self, method: str) -> None:
        if method == self._failing:
            self._calls += 1
            if self._calls == 2:
                raise ZeroDivisionError("a defect")

    async def renew(self, claims: Any) -> list[Claim]:
        self._fail_in("renew")
        return await super().renew(claims)

    async def heartbeat(self, *args: Any) -> None:
        self._fail_in("heartbeat")
        await super().heartbeat(*args)

    async def claim(self, *args: Any) -> list[Claim]:
        self._fail_in("claim")
        return await super().claim(*args)

    async def finish(self, *args: Any, **options: Any) -> bool:
        self._fail_in("finish")
        return await super().finish(*args, **options)

    async def release(self, claim: Claim, **options: Any) -> None:
        self.released.append(claim)
        await super().release(claim, **options)


async def is_empty(broker: MemoryBroker) -> bool:
    return await broker.graders() == []


@pytest.mark.parametrize("failing", ["renew", "heartbeat", "claim", "finish"])
async def test_a_worker_whose_loop_fails_ends_and_returns_its_jobs(
    monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    monkeypatch.setattr("services.broker.workers.HEARTBEAT_TTL_S", 0.3)
    broker = FailingBroker(failing)
    grader = TinyGrader()
    held = job("hold")
    jobs = [job("right a"), job("right b"), held]
    await broker.submit(jobs)
    worker = Worker(grader, broker, slots=3, name="w")
    running = asyncio.create_task(worker.run(asyncio.Event()))
    await asyncio.wait([running], timeout=SOON_S)
    grader.let_go.set()
    [error] = running.exception().exceptions  # type: ignore[union-attr]
    assert isinstance(error, ZeroDivisionError)
    await until(lambda: is_empty(broker))
    assert held.id in [claim.job.id for claim in broker.released]
    assert held.id in [claim.job.id for claim in await broker.claim("ocaml", "other", 9, 1)]


def test_a_worker_process_whose_loop_fails_ends_with_status_1_and_says_so(
    gradus: Cli,
    redis_url: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def fail(self: object, claims: object) -> None:
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr(StreamsBroker, "renew", fail)
    monkeypatch.setattr("services.graders.base.load", lambda name, config: TinyGrader())
    ended = gradus("worker", "ocaml", "--redis", redis_url.replace("/0", "/7"), "--slots", "1")
    assert ended.status == 1
    assert "the worker failed" in caplog.text


async def test_a_service_in_one_process_ends_when_its_worker_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def fail(self: object, claims: object) -> None:
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr(MemoryBroker, "renew", fail)
    serving = serve_embedded(
        [TinyGrader()],
        "127.0.0.1",
        0,
        ApiSettings(),
        BrokerSettings(),
        slots=1,
        on_test=lambda name: None,
        on_ready=lambda url: None,
    )
    with pytest.raises(ExceptionGroup) as failed:
        await asyncio.wait_for(serving, SOON_S)
    assert isinstance(failed.value.exceptions[0], ZeroDivisionError)


@pytest.mark.parametrize("n_lapses", [1, MAX_DELIVERIES + 2])
async def test_a_lease_that_lapses_under_a_live_worker_is_no_death_by_its_job(
    redis_url: str, prefix: str, n_lapses: int
) -> None:
    """Else an innocent answer counts as poison after three slow renewals."""
    async with opened(redis_url, prefix, lease_s=0.2) as broker:
        await broker.submit([job("innocent")])
        [claim] = await broker.claim("ocaml", "w", 1, SOON_S)
        for n in range(n_lapses):
            claims: list[Claim] = []
            async with asyncio.timeout(SOON_S):
                while not claims:
                    claims = await broker.claim("ocaml", f"w{n}", 1, 0.3)
            await broker.renew([claim])
            await broker.renew([claim])
            claim = claims[0]
            assert claim.deliveries <= 2
        assert await broker.finish(claim, "{}", cache=False, dead_letter=True)
        [letter] = await broker.dead_letters("ocaml")
    assert len(letter.history) == n_lapses
    assert all(line.endswith("lived on after its lease lapsed") for line in letter.history)


async def test_a_worker_that_dies_at_each_start_is_still_told_from_a_live_one(
    redis_url: str, prefix: str
) -> None:
    async with opened(redis_url, prefix, lease_s=0.2) as broker:
        await broker.submit([job("killer")])
        starts = []
        for n in range(MAX_DELIVERIES + 1):
            claims: list[Claim] = []
            async with asyncio.timeout(SOON_S):
                while not claims:
                    claims = await broker.claim("ocaml", f"dead-{n}", 1, 0.3)
            starts.append(claims[0].deliveries)
    assert starts == [1, 2, 3, 4]


def get(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=20) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read().decode()


async def test_probes_of_a_worker_follow_its_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = MemoryBroker()
    metrics = WorkerMetrics()
    port = metrics.serve(0)
    assert (await asyncio.to_thread(get, port, "/livez"))[0] == 200
    status, text = await asyncio.to_thread(get, port, "/readyz")
    assert (status, "starting" in text) == (503, True)
    stop = asyncio.Event()
    running = asyncio.create_task(Worker(TinyGrader(), broker, slots=1, metrics=metrics).run(stop))
    await until(broker.graders)
    assert await asyncio.to_thread(get, port, "/readyz") == (200, "ok\n")
    assert await asyncio.to_thread(get, port, "/livez") == (200, "ok\n")
    assert "gradus_worker_ready 1.0" in (await asyncio.to_thread(get, port, "/metrics"))[1]
    stop.set()
    await running
    later = time.monotonic() + STALE_S + 1
    monkeypatch.setattr("services.worker_metrics.time.monotonic", lambda: later)
    status, text = await asyncio.to_thread(get, port, "/livez")
    assert (status, "no lease was renewed" in text) == (503, True)
    status, text = await asyncio.to_thread(get, port, "/readyz")
    assert (status, "not registered" in text) == (503, True)


async def test_a_worker_that_cannot_register_is_alive_and_not_ready() -> None:
    class RefusingBroker(MemoryBroker):
        async def heartbeat(self, *args: Any) -> None:
            raise QueueFault("no permissions")

    metrics = WorkerMetrics()
    stop = asyncio.Event()
    worker = Worker(TinyGrader(), RefusingBroker(), slots=1, metrics=metrics)
    running = asyncio.create_task(worker.run(stop))
    await until(lambda: metrics.health.registration)
    assert metrics.health.explain_failure() == ""
    assert "not registered" in metrics.health.explain_unready()
    stop.set()
    await running


# -------------------------------------------------------------------------------- other releases


async def test_fields_of_a_later_release_are_ignored_on_the_way_there_and_back(
    redis_url: str, prefix: str
) -> None:
    known = job("right")
    payload = known.payload.replace('"rubric"', '"lease_class":{"gpu":1},"rubric"', 1)
    payload = payload.replace('"completion"', '"language":"ml","completion"', 1)
    later = Job(known.id, known.grader, payload)
    assert later.payload != known.payload
    async with opened(redis_url, prefix) as broker:
        await broker.submit([later])
        stop = asyncio.Event()
        running = asyncio.create_task(Worker(TinyGrader(), broker, slots=1).run(stop))
        results = await answers(broker, [later])
        stop.set()
        await running
        assert await broker.dead_letters("ocaml") == []
    [result] = results.values()
    assert isinstance(result, Graded)
    text = result.model_dump_json().replace('"passed"', '"queued_ms":3,"passed"', 1)
    assert parse_result(text, later.id, None) == result
    fault = build_faulted("a", FaultKind.QUEUE, "", retryable=True)
    text = fault.model_dump_json().replace('"kind"', '"at":1,"kind"')
    assert parse_result(text, later.id, None) == fault


def test_a_payload_without_what_a_worker_needs_is_refused() -> None:
    with pytest.raises(ValueError, match="deadline"):
        parse_payload(
            '{"submission": {"id": "x", "completion": "", "task": {}}, "rubric": "a/b@1"}'
        )


async def test_a_registration_of_a_later_release_counts(redis_url: str, prefix: str) -> None:
    async with opened(redis_url, prefix) as broker:
        await broker.heartbeat("w", INFO, 60)
        text = INFO.model_dump_json().replace("{", '{"gpus":1,', 1)
        await broker._redis.call("SET", f"{prefix}worker:ocaml:w", text, "PX", 60_000)
        assert await broker.graders() == [INFO]


# ----------------------------------------------------------------------------------- who works here


async def test_workers_are_listed_with_age_heartbeat_and_the_cause_of_their_death(
    redis_url: str, prefix: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("services.broker.workers.HEARTBEAT_TTL_S", 0.3)
    monkeypatch.setattr("services.broker.workers.DEATH_LOOK_S", 0.0)
    async with opened(redis_url, prefix) as broker:
        info = INFO.model_copy(update={"slots": 3})
        workers = {
            name: Registration(broker, name, info, TinyGrader().description())
            for name in ("live", "left", "failed", "killed", "early")
        }
        loops = {name: asyncio.create_task(worker.keep_alive()) for name, worker in workers.items()}
        deaths = DeathLog()

        async def count(n_dead: int) -> bool:
            return sum(worker.is_dead for worker in await list_workers(broker)) == n_dead

        await until(lambda: all(worker.registered_at for worker in workers.values()))
        loops["early"].cancel()
        await until(lambda: count(1))
        await deaths.look(broker)
        for name in ("left", "failed", "killed"):
            loops[name].cancel()
        await workers["left"].end()
        await workers["failed"].end(MemoryError())
        await until(lambda: count(3))
        listed = {worker.name: worker for worker in await list_workers(broker)}
        for _ in range(4):
            await deaths.look(broker)
        loops["live"].cancel()
    assert {name: worker.is_dead for name, worker in listed.items()} == {
        "live": False,
        "failed": True,
        "killed": True,
        "early": True,
    }
    assert listed["failed"].cause == "MemoryError"
    assert "no heartbeat" in listed["killed"].cause
    assert listed["live"].cause == ""
    live = listed["live"]
    assert (live.grader, live.slots, live.release) == (INFO.grader, 3, "0.2.0")
    assert 0 <= live.silent_s <= live.age_s < SOON_S
    logged = [record.__dict__["fields"] for record in caplog.records if record.msg == "worker died"]
    assert sorted(fields["name"] for fields in logged) == ["failed", "killed"]


async def test_a_worker_announces_nothing_of_another_grader(redis_url: str, prefix: str) -> None:
    async with opened(redis_url, prefix) as broker:
        await broker.heartbeat("w", INFO, 60)
        forged = '{"grader": "rust@r", "slots": 9, "host": "h", "ended": "x"}'
        for text in (forged, '{"grader": "ocaml@r", "ended": "%s"}' % ("x" * 200), "[]", "{"):
            await broker.save_note("grader:ocaml@worker:w", text, 60)
            [worker] = await list_workers(broker)
            assert (worker.grader, worker.slots, worker.host) == ("ocaml", 0, "unknown")


def test_the_command_lists_workers(gradus: Cli, redis_server: Callable[..., RedisServer]) -> None:
    url = redis_server().url

    async def register() -> None:
        broker = StreamsBroker(url)
        registration = Registration(broker, "mine", INFO, TinyGrader().description())
        loop = asyncio.create_task(registration.keep_alive())
        await until(lambda: registration.registered_at)
        await until(lambda: list_workers(broker))
        await asyncio.sleep(0.1)
        loop.cancel()
        await broker.close()

    asyncio.run(register())
    shown = gradus("queue", "workers", "--redis", url)
    [head, row] = shown.out.splitlines()
    assert head.split()[:4] == ["worker", "host", "slots", "grader"]
    assert row.split()[0] == "mine"
    assert row.split()[3] == INFO.grader
    assert row.split()[-1] == "live"


# ----------------------------------------------------------------------------- Redis is not there


@contextmanager
def process(*words: str) -> Iterator[subprocess.Popen[str]]:
    root = Path(__file__).parents[2]
    command = [sys.executable, "-m", "gradus", *words]
    with subprocess.Popen(command, cwd=root, stderr=subprocess.PIPE, text=True) as running:
        try:
            yield running
        finally:
            running.terminate()


def read_until(running: subprocess.Popen[str], text: str) -> str:
    assert running.stderr is not None
    for line in running.stderr:
        if text in line:
            return line
    raise AssertionError(f"the process ended without {text!r}")


@pytest.mark.parametrize("command", [("serve", "--port", "0"), ("worker", "story")])
def test_a_process_says_what_it_waits_for_until_redis_is_there(
    redis_server: Callable[..., RedisServer], command: tuple[str, ...]
) -> None:
    server = redis_server(options=["--user", "me", "on", ">right", "~*", "+@all"])
    server.stop()
    url = server.url.replace("redis://", "redis://me:right@")
    with process(*command, "--redis", url) as running:
        line = read_until(running, "waiting for Redis at redis://***@127.0.0.1")
        assert "check that it runs" in line
        assert "right" not in line.replace("URL is right", "")
        server.start()
        read_until(running, "answers again")


@pytest.mark.parametrize("command", [("serve", "--port", "0"), ("worker", "story")])
def test_a_process_says_that_redis_refuses_its_password(
    redis_server: Callable[..., RedisServer], command: tuple[str, ...]
) -> None:
    server = redis_server(options=["--user", "me", "on", ">right", "~*", "+@all"])
    url = server.url.replace("redis://", "redis://me:wrong@")
    with process(*command, "--redis", url) as running:
        line = read_until(running, "waiting for Redis at redis://***@127.0.0.1")
        assert "check its user, password" in line
        assert "wrong" not in line.replace("wrong password", "")


async def test_an_outage_is_logged_once_and_its_end_too(
    redis_server: Callable[..., RedisServer], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="gradus.queue")
    server = redis_server()
    broker = StreamsBroker(server.url)
    await broker.depth("ocaml")
    server.stop()
    asking = [asyncio.create_task(broker.depth("ocaml")) for _ in range(20)]
    await until(lambda: caplog.records)
    server.start()
    assert await asyncio.gather(*asking) == [0] * 20
    events = [record.getMessage().partition(" at ")[0] for record in caplog.records]
    assert events == ["waiting for Redis", "Redis"]
    assert caplog.records[1].getMessage().endswith("answers again")
    await broker.close()


async def test_a_lost_connection_that_is_replaced_is_not_logged(
    redis_url: str, prefix: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(redis_url, prefix) as broker:
        await broker.depth("ocaml")
        break_connections(monkeypatch, "send_packed_command", ERRORS[0], 2)
        await broker.depth("ocaml")
    assert [record for record in caplog.records if record.name == "gradus.queue"] == []
