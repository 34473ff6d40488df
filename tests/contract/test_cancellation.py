"""What runs for somebody who left: its boxes are killed, its slot is free, and what was seen of it
is no verdict."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from gradus.contract import RawSubmission, compute_job_id
from gradus.errors import SandboxFault
from gradus.tasks.ocaml import OcamlLimits
from services.api.app import create_app
from services.api.server import serve
from services.api.settings import ApiSettings
from services.broker.memory import MemoryBroker
from services.broker.streams import StreamsBroker
from services.graders.ocaml.grader import OcamlGrader
from services.sandbox import BoxLost, Command, Limits
from services.sandbox.bubblewrap import Bubblewrap
from services.sandbox.cancellation import CancelToken, current_token, enter_attempt
from services.worker import Worker

SOON_S = 60.0
"""Longer than anything here takes on a busy machine; nothing waits for it to pass."""
LONG = Limits(cpu_s=200, wall_s=300.0, scratch_mb=0)
"""Nothing here may end by itself."""
PYTHON = os.path.realpath(sys.executable)
BINDS = ("/usr", os.path.realpath(sys.base_prefix))
BURNS = "while True: pass"
SERVES = """
import sys
print('0 ready', flush=True)
for line in sys.stdin:
    while 'burn' in line: pass
    print('2 well\\nok', end='', flush=True)
"""


@pytest.fixture(scope="module")
def sandbox() -> Bubblewrap:
    try:
        return Bubblewrap()
    except SandboxFault as fault:
        pytest.skip(fault.message)


def python(script: str, marker: str) -> Command:
    return Command(argv=(PYTHON, "-I", "-S", "-c", script, marker), limits=LONG, binds=BINDS)


def lives(marker: str) -> bool:
    """Whether some process of this machine has `marker` among its arguments."""
    return any(
        marker.encode() in _arguments(name) for name in os.listdir("/proc") if name.isdigit()
    )


def _arguments(pid: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def until(happened: Callable[[], Any]) -> None:
    give_up_at = time.monotonic() + SOON_S
    while not happened():
        assert time.monotonic() < give_up_at
        time.sleep(0.01)


def under(stop: CancelToken, act: Callable[[], Any]) -> Any:
    with enter_attempt(stop, brief=False):
        return act()


def test_a_box_that_burns_is_killed_when_its_attempt_is_stopped(sandbox: Bubblewrap) -> None:
    stop = CancelToken()
    marker = f"burning-{os.getpid()}-run"
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(under, stop, lambda: sandbox.run(python(BURNS, marker)))
        until(lambda: lives(marker))
        stop.cancel()
        with pytest.raises(SandboxFault, match="was stopped"):
            running.result(SOON_S)
    until(lambda: not lives(marker))
    stop.close()


def test_a_standing_box_is_killed_with_the_question_that_was_stopped(sandbox: Bubblewrap) -> None:
    stop = CancelToken()
    marker = f"burning-{os.getpid()}-standing"
    box = sandbox.open(python(SERVES, marker))
    assert box.ask(b"well\n", SOON_S).words == ("well",)
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(under, stop, lambda: box.ask(b"burn\n", 300))
        stop.cancel()
        with pytest.raises(BoxLost, match="was stopped"):
            asking.result(SOON_S)
    until(lambda: not lives(marker))
    stop.close()


def test_what_is_stopped_before_it_starts_comes_to_nothing(sandbox: Bubblewrap) -> None:
    stop = CancelToken()
    stop.cancel()
    with enter_attempt(stop, brief=False), pytest.raises(SandboxFault):
        sandbox.run(python(BURNS, "never"))
    with enter_attempt(stop, brief=False), pytest.raises(SandboxFault):
        sandbox.open(python(SERVES, "never"))
    stop.close()


def test_a_stop_is_for_the_thread_that_runs_under_it_alone(sandbox: Bubblewrap) -> None:
    mine = CancelToken()
    neighbours = CancelToken()
    ready = threading.Barrier(2)

    def answers(stop: CancelToken) -> bytes:
        with enter_attempt(stop, brief=False):
            ready.wait(SOON_S)
            return sandbox.run(python("print('well')", "neighbour")).stdout

    with ThreadPoolExecutor(1) as pool, enter_attempt(mine, brief=False):
        mine.cancel()
        answering = pool.submit(answers, neighbours)
        ready.wait(SOON_S)
        assert answering.result(SOON_S) == b"well\n"
        assert current_token() is mine
    assert current_token() is None


def test_a_stop_that_is_closed_may_still_be_pulled() -> None:
    stop = CancelToken()
    stop.close()
    stop.cancel()
    assert stop.is_cancelled


# ---------------------------------------------------------------------- a client that leaves

BURNING = """let rec f x = if x < 0 then x else f (x + 1 - 1)"""
TESTS = "let () = assert (f 1 = 1)"


def asked(submission_id: str, completion: str, **task: Any) -> dict[str, Any]:
    return {"id": submission_id, "completion": completion, "task": {"tests": TESTS, **task}}


def job_of(one: dict[str, Any], grader: OcamlGrader) -> str:
    return compute_job_id(
        grader.info().grader, "ocaml/graduated@1", RawSubmission.model_validate(one)
    )


@pytest.mark.parametrize(
    "package",
    [pytest.param([], id="warm"), pytest.param(["str"], id="cold", marks=pytest.mark.slow)],
)
async def test_when_the_last_client_leaves_its_running_box_is_killed(
    ocaml_grader: OcamlGrader, package: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Limits let it burn for minutes: only a kill frees the one slot."""
    monkeypatch.setattr(
        "services.worker.CLAIM_WAIT_S", 0.1
    )  # a worker that stops waits for its claim to run out
    limits = OcamlLimits(cpu_s=250).model_dump(exclude_none=True)
    burning = asked("burning", BURNING, limits=limits, packages=package)
    broker = MemoryBroker()
    stop = asyncio.Event()
    worker = Worker(ocaml_grader, broker, slots=1, name="w", self_tested=True)
    found: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(
        serve(broker, "127.0.0.1", 0, settings=ApiSettings(), stop=stop, on_ready=found.set_result)
    )
    working = asyncio.create_task(worker.run(stop))
    async with httpx.AsyncClient(base_url=await found, timeout=SOON_S) as client:
        leaving = asyncio.create_task(
            client.post("/v1/grade/ocaml", json={"submissions": [burning], "deadline_s": 600})
        )
        async with asyncio.timeout(SOON_S):
            while not (await broker.get_queue_stats("ocaml")).running:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.5)  # into the burning run
        leaving.cancel()
        answer = await client.post(
            "/v1/grade/ocaml", json={"submissions": [asked("next", "let f x = x")]}
        )
        assert [result["status"] for result in answer.json()["results"]] == ["graded"]
    assert await broker.results([job_of(burning, ocaml_grader)]) == {}
    assert await broker.depth("ocaml") == 0
    stop.set()
    await asyncio.gather(serving, working)


@pytest.mark.parametrize("way", ["deleted at another API", "cancelled by an operator"])
async def test_cancelling_kills_the_running_box_and_answers_with_a_fault(
    ocaml_grader: OcamlGrader, redis_url: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two APIs and a worker on one Redis, and one slot, which would burn for minutes."""
    monkeypatch.setattr("services.worker.CLAIM_WAIT_S", 0.1)
    burning = asked("burning", BURNING, limits=OcamlLimits(cpu_s=250).model_dump(exclude_none=True))
    stop = asyncio.Event()
    prefix = f"cancel-{os.urandom(8).hex()}:"
    async with AsyncExitStack() as stack:
        brokers = [StreamsBroker(redis_url, prefix=prefix) for _ in range(3)]
        for broker in brokers:
            stack.push_async_callback(broker.close)
        working = asyncio.create_task(
            Worker(ocaml_grader, brokers[0], slots=1, name="w", self_tested=True).run(stop)
        )
        stack.push_async_callback(asyncio.wait, [working])
        stack.callback(stop.set)
        apis = []
        for broker in brokers[1:]:
            app = create_app(broker, ApiSettings())
            stack.push_async_callback(app.state.api.jobs.close)
            client = httpx.AsyncClient(
                transport=httpx.ASGITransport(app), base_url="http://test", timeout=SOON_S
            )
            apis.append(await stack.enter_async_context(client))
        accepted = await apis[0].post(
            "/v1/jobs/ocaml", json={"submissions": [burning], "deadline_s": 600}
        )
        async with asyncio.timeout(SOON_S):
            while not (await brokers[0].get_queue_stats("ocaml")).running:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.5)  # into the burning run
        if way == "deleted at another API":
            status = (await apis[1].delete(accepted.headers["location"])).json()
        else:
            assert await brokers[2].revoke("ocaml", [job_of(burning, ocaml_grader)]) == 1
            async with asyncio.timeout(SOON_S):
                while (status := (await apis[1].get(accepted.headers["location"])).json())[  # noqa: ASYNC110
                    "status"
                ] != "done":  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
        [result] = status["results"]
        assert (result["id"], result["fault"]["kind"], result["fault"]["retryable"]) == (
            "burning",
            "queue",
            False,
        )
        assert "cancelled" in result["fault"]["message"]
        answer = await apis[0].post(
            "/v1/grade/ocaml", json={"submissions": [asked("next", "let f x = x")]}
        )
        assert [one["status"] for one in answer.json()["results"]] == ["graded"]
        async with asyncio.timeout(SOON_S):
            while await brokers[0].depth("ocaml"):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
