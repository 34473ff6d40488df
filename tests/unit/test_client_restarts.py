"""The client against real services in processes of their own, which are killed, stopped and started again."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from gradus.client import RewardClient
from gradus.contract import Faulted, Graded
from gradus.errors import FaultKind
from tests.conftest import free_port
from tests.echo import submission

ROOT = Path(__file__).parents[2]


class Process:
    """A service at an address that stays the same over its lives."""

    def __init__(self) -> None:
        self._port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self.url = f"http://127.0.0.1:{self._port}"

    def start(self, *, holds: bool = False, shutdown_s: int = 30) -> None:
        command = [sys.executable, "-m", "tests.echo", str(self._port), *(["hold"] if holds else [])]
        environment = os.environ | {"GRADUS_API_SHUTDOWN_S": str(shutdown_s)}
        self._process = subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.DEVNULL)
        while not self._listens():
            assert self._process.poll() is None

    def _listens(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self._port), timeout=1).close()
        except OSError:
            return False
        return True

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


@contextmanager
def processes(number: int) -> Iterator[list[Process]]:
    made = [Process() for _ in range(number)]
    try:
        yield made
    finally:
        for one in made:
            one.kill()


async def rewards_when(
    client: RewardClient, sent: list[dict[str, object]], act: threading.Event, **options: float
) -> list[Graded | Faulted]:
    """The results; `act` is set when the first one is there."""
    return await client.grade("ocaml", sent, on_result=lambda *_: act.set(), **options)  # type: ignore[arg-type]


def all_graded(results: list[Graded | Faulted], n: int) -> bool:
    return len(results) == n and all(isinstance(result, Graded) for result in results)


SENT = [submission(f"s{index}", f"reward {index / 10}") for index in range(5)] + [submission("held", "hold")]


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
async def test_a_service_that_is_killed_and_started_again_loses_nothing(how: signal.Signals) -> None:
    with processes(1) as (one,):
        one.start(holds=True)
        first = threading.Event()
        asking = asyncio.create_task(rewards_when(RewardClient(one.url), SENT, first))
        await asyncio.to_thread(first.wait)
        if how is signal.SIGTERM:
            one.signal(how)
        await asyncio.sleep(0.2)
        one.kill()
        await asyncio.sleep(2)  # away for long enough to be asked in vain
        await asyncio.to_thread(one.start)
        assert all_graded(await asking, len(SENT))


async def test_restarts_of_all_services_in_turn_lose_nothing() -> None:
    with processes(2) as both:
        for one in both:
            one.start()
        client = RewardClient([one.url for one in both], batch_size=2, max_connections=2)
        sent = [submission(f"s{index}", f"reward {index / 400}") for index in range(400)]
        asking = asyncio.create_task(client.grade("ocaml", sent))
        for one in both * 2:
            one.kill()
            await asyncio.to_thread(one.start)
        assert all_graded(await asking, 400)


async def test_a_dead_service_is_left_for_one_that_lives() -> None:
    with processes(2) as (dying, living):
        dying.start(holds=True)
        living.start()
        first = threading.Event()
        client = RewardClient([dying.url, living.url])
        asking = asyncio.create_task(rewards_when(client, SENT, first))
        await asyncio.to_thread(first.wait)
        dying.kill()
        assert all_graded(await asking, len(SENT))


async def test_a_service_that_hangs_is_left_for_one_that_answers() -> None:
    with processes(2) as (hanging, living):
        hanging.start(holds=True)
        living.start()
        first = threading.Event()
        client = RewardClient([hanging.url, living.url], silence_s=2)
        asking = asyncio.create_task(rewards_when(client, SENT, first))
        await asyncio.to_thread(first.wait)
        hanging.signal(signal.SIGSTOP)
        assert all_graded(await asking, len(SENT))


async def test_a_slow_service_that_shows_signs_of_life_is_waited_for() -> None:
    with processes(1) as (one,):
        one.start(holds=True)
        (result,) = await RewardClient(one.url, silence_s=1).grade("ocaml", [submission("a", "hold")], deadline_s=4)
    assert isinstance(result, Faulted)
    assert "said nothing" not in result.fault.message


async def test_what_hung_is_named_with_its_grader_its_submission_and_the_service_that_was_asked() -> None:
    with processes(2) as (hanging, other):
        hanging.start()
        other.start()
        hanging.signal(signal.SIGSTOP)
        client = RewardClient([hanging.url, other.url])
        (result,) = await client.grade("ocaml", [submission("stuck")], deadline_s=1)
    assert isinstance(result, Faulted)
    assert result.fault.kind is FaultKind.DEADLINE
    assert f"ocaml submission 'stuck': no result from {hanging.url} within 1 s" in result.fault.message


def until_it_waits(one: Process) -> None:
    """For the result of one submission."""
    while not re.search(r'^gradus_api_waiting\{grader="ocaml"\} 1\.0$', httpx.get(f"{one.url}/metrics").text, re.M):
        time.sleep(0.05)


async def test_a_service_that_stops_before_its_answer_is_there_says_so() -> None:
    """It was a status 500 with a text of uvicorn's: clients took it for a defect."""
    with processes(1) as (one,):
        one.start(holds=True, shutdown_s=1)
        body = {"submissions": [submission("a", "hold")], "deadline_s": 60}
        asking = asyncio.create_task(asyncio.to_thread(httpx.post, f"{one.url}/v1/grade/ocaml", json=body, timeout=60))
        await asyncio.to_thread(until_it_waits, one)
        one.signal(signal.SIGTERM)
        answer = await asking
    assert (answer.status_code, answer.headers["content-type"]) == (503, "application/problem+json")
    assert answer.headers["retry-after"] == "1"


async def test_what_a_stopping_service_leaves_unanswered_another_answers() -> None:
    with processes(2) as (stopping, staying):
        stopping.start(holds=True, shutdown_s=1)
        staying.start()
        client = RewardClient([stopping.url, staying.url], backoff_s=0.01)
        asking = asyncio.create_task(client.grade("ocaml", [submission("a", "hold")], deadline_s=60))
        await asyncio.to_thread(until_it_waits, stopping)
        stopping.signal(signal.SIGTERM)
        assert all_graded(await asking, 1)
