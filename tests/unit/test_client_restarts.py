"""The client against real services in processes of their own, which are killed, stopped and started
again.

The processes are forked from one that has imported the service already: that takes 1 s less for
each.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import re
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.context import ForkServerProcess

import httpx
import pytest

from gradus.client import RewardClient
from gradus.contract import Faulted, Graded
from tests.fake_grader import serve_in_process, submission
from tests.ports import free_port

PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["tests.fake_grader"])


class Process:
    """A service at an address that stays the same over its lives."""

    def __init__(self) -> None:
        self._port = free_port()
        self._process: ForkServerProcess | None = None
        self.url = f"http://127.0.0.1:{self._port}"

    def start(self, *, holds: bool = False, **settings: float) -> None:
        self._process = PROCESSES.Process(
            target=serve_in_process, args=(self._port, holds), kwargs=settings
        )
        self._process.start()
        while not self._listens():
            assert self._process.is_alive()
            time.sleep(0.01)

    def _listens(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self._port), timeout=1).close()
        except OSError:
            return False
        return True

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        assert self._process.pid is not None
        os.kill(self._process.pid, number)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()
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


SENT = [submission(f"s{index}", f"reward {index / 10}") for index in range(5)] + [
    submission("held", "hold")
]


async def test_a_service_that_is_killed_and_started_again_loses_nothing() -> None:
    with processes(1) as (one,):
        one.start(holds=True)
        first = threading.Event()
        asking = asyncio.create_task(
            rewards_when(RewardClient(one.url, backoff_s=0.05), SENT, first)
        )
        await asyncio.to_thread(first.wait)
        one.kill()
        await asyncio.sleep(0.5)  # away for long enough to be asked in vain
        await asyncio.to_thread(one.start)
        assert all_graded(await asking, len(SENT))


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
        client = RewardClient([hanging.url, living.url], silence_s=1)
        asking = asyncio.create_task(rewards_when(client, SENT, first))
        await asyncio.to_thread(first.wait)
        hanging.signal(signal.SIGSTOP)
        assert all_graded(await asking, len(SENT))


@pytest.mark.slow
async def test_a_slow_service_that_shows_signs_of_life_is_waited_for() -> None:
    with processes(1) as (one,):
        one.start(holds=True)
        (result,) = await RewardClient(one.url, silence_s=1).grade(
            "ocaml", [submission("a", "hold")], deadline_s=2
        )
    assert isinstance(result, Faulted)
    assert "sent nothing" not in result.fault.message


def until_it_waits(one: Process) -> None:
    """For the result of one submission."""
    while not re.search(
        r'^gradus_api_waiting\{grader="ocaml"\} 1\.0$', httpx.get(f"{one.url}/metrics").text, re.M
    ):
        time.sleep(0.05)


async def test_a_service_that_stops_before_its_answer_is_there_says_so() -> None:
    """It was a status 500 with a text of uvicorn's: clients took it for a defect."""
    with processes(1) as (one,):
        one.start(holds=True, shutdown_grace_s=1)
        body = {"submissions": [submission("a", "hold")], "deadline_s": 60}
        asking = asyncio.create_task(
            asyncio.to_thread(httpx.post, f"{one.url}/v1/grade/ocaml", json=body, timeout=60)
        )
        await asyncio.to_thread(until_it_waits, one)
        one.signal(signal.SIGTERM)
        answer = await asking
    assert (answer.status_code, answer.headers["content-type"]) == (503, "application/problem+json")
    assert answer.headers["retry-after"] == "1"


@pytest.mark.slow
async def test_what_a_stopping_service_leaves_unanswered_another_answers() -> None:
    with processes(2) as (stopping, staying):
        stopping.start(holds=True, shutdown_grace_s=1)
        staying.start()
        client = RewardClient([stopping.url, staying.url], backoff_s=0.01)
        asking = asyncio.create_task(
            client.grade("ocaml", [submission("a", "hold")], deadline_s=60)
        )
        await asyncio.to_thread(until_it_waits, stopping)
        stopping.signal(signal.SIGTERM)
        assert all_graded(await asking, 1)
