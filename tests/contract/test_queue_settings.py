"""Retention and depth of the queue as options and variables of processes, on a real Redis."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from redis.asyncio import Redis

from gradus.contract import RawSubmission, compute_job_id
from services.broker import BrokerSettings, Job
from services.broker.jobs import JobPayload
from services.broker.streams import StreamsBroker
from services.graders.ocaml.grader import OcamlGrader
from tests.contract.test_cancellation import asked
from tests.fake_grader import INFO, submission

SOON_S = 60.0


@contextmanager
def started(*words: str, **environment: str) -> Iterator[subprocess.Popen[str]]:
    variables = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])} | environment
    command = [sys.executable, "-m", "gradus", *words]
    running = subprocess.Popen(command, env=variables, stderr=subprocess.PIPE, text=True)
    try:
        yield running
    finally:
        running.terminate()
        running.communicate(timeout=SOON_S)


def test_a_queue_holds_no_more_than_max_depth(redis_server: Callable[..., Any]) -> None:
    url = redis_server().url
    with started("serve", "--redis", url, "--port", "0", GRADUS_QUEUE_MAX_DEPTH="1") as running:
        assert running.stderr is not None
        found = re.search(
            r"http://\S+", next(line for line in running.stderr if "serving on" in line)
        )
        assert found

        async def register() -> None:
            broker = StreamsBroker(url)
            await broker.heartbeat("w", INFO, 60)
            await broker.close()

        asyncio.run(register())
        one, two = ({"submissions": [submission(name, f"hold {name}")]} for name in "ab")
        assert httpx.post(f"{found[0]}/v1/jobs/ocaml", json=one).status_code == 202
        assert httpx.post(f"{found[0]}/v1/jobs/ocaml", json=two).status_code == 429


async def test_a_worker_keeps_results_for_as_long_as_it_is_told(
    redis_server: Callable[..., Any], ocaml_grader: OcamlGrader
) -> None:
    url = redis_server().url
    broker = StreamsBroker(url)
    info = ocaml_grader.info()
    made = RawSubmission.model_validate(asked("a", "let f x = x"))
    deadline = time.time() + 600
    payload = JobPayload(
        submission=made, rubric=info.rubrics[0], deadline=deadline, grader=info.grader
    )
    job = Job(
        compute_job_id(info.grader, info.rubrics[0], made), "ocaml", payload.model_dump_json()
    )
    with started("worker", "ocaml", "--redis", url, "--slots", "1", GRADUS_QUEUE_RESULT_TTL_S="70"):
        await broker.submit([job])
        assert [one async for one, _ in broker.wait([job.id], SOON_S)] == [job.id]
        async with Redis.from_url(url) as redis:
            assert 0 < await redis.pttl(f"gradus:result:{job.id}") <= 70_000
    await broker.close()


async def test_dead_letters_are_kept_for_their_time(redis_url: str) -> None:
    broker = StreamsBroker(redis_url, BrokerSettings(dead_letter_ttl_s=100), prefix="letters:")
    await broker.submit([Job("ocaml:a", "ocaml", "{}")])
    [claim] = await broker.claim("ocaml", "w", 1, 5)
    await broker.finish(claim, "{}", cache=False, dead_letter=True)
    async with Redis.from_url(redis_url) as redis:
        assert 0 < await redis.pttl("letters:dead:ocaml") <= 100_000
    await broker.close()


@pytest.mark.parametrize(
    ("words", "variable", "named"),
    [
        (("serve", "--max-depth", "0"), {}, "--max-depth"),
        (("worker", "ocaml", "--lease", "1"), {}, "--lease"),
        (("worker", "ocaml", "--lease", "nan"), {}, "--lease"),
        (("worker", "ocaml"), {"GRADUS_QUEUE_RESULT_TTL_S": "soon"}, "GRADUS_QUEUE_RESULT_TTL_S"),
        (
            ("worker", "ocaml"),
            {"GRADUS_QUEUE_MAX_DEAD_LETTERS": "-1"},
            "GRADUS_QUEUE_MAX_DEAD_LETTERS",
        ),
    ],
)
def test_a_setting_out_of_range_is_refused_by_name(
    words: tuple[str, ...], variable: dict[str, str], named: str
) -> None:
    variables = (
        os.environ | {"PYTHONPATH": str(Path(__file__).parents[2]), "COLUMNS": "200"} | variable
    )
    ended = subprocess.run(
        [sys.executable, "-m", "gradus", *words],
        env=variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 2
    assert named in ended.stderr
