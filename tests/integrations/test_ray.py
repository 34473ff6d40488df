"""examples/ray/workers.py on a Ray of this machine: actors grade what is queued, one that is killed
comes back, and SIGTERM leaves none behind."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gradus.client import RewardClient
from gradus.row_reader import read_rows
from services.broker.from_url import open_broker
from services.broker.workers import list_workers
from tests.integrations.test_peers import PYTHON, ROOT, TASKS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

WAIT_S = 120.0


@pytest.fixture
def ray_python() -> Path:
    """The interpreter that has Ray."""
    command = [PYTHON, "-c", "import ray"]
    if not PYTHON.exists() or subprocess.run(command, check=False).returncode:
        pytest.skip("Ray is not installed: `make test-integrations` installs it")
    return PYTHON


@contextmanager
def serving(redis: str) -> Iterator[str]:
    """Run an API without graders of its own; yield its URL."""
    command = [sys.executable, "-m", "gradus", "serve", "--port", "0", "--redis", redis]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            for line in process.stderr:
                if found := re.search(r"serving on (\S+)", line):
                    yield found[1]
                    break
        finally:
            process.terminate()


@contextmanager
def workers_on_ray(python: Path, redis: str, log: Path) -> Iterator[subprocess.Popen[str]]:
    """Run the example with two workers of one slot; end it, and the Ray that it started."""
    script = ROOT / "examples" / "ray" / "workers.py"
    command = [python, script, "ocaml", "--redis", redis, "--workers", "2", "--slots", "1"]
    # sockets have paths of at most 107 characters, so the folder is no tmp_path
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, log.open("w") as output:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "RAY_TMPDIR": folder}
        environment["RAY_USAGE_STATS_ENABLED"] = "0"
        process = subprocess.Popen(
            command, env=environment, stdout=output, stderr=subprocess.STDOUT, text=True
        )
        try:
            yield process
        finally:
            process.terminate()
            process.wait(WAIT_S)


async def wait_until(find: Callable[[], Awaitable[Any]]) -> Any:
    """Return the first true value of `find`."""
    give_up_at = time.monotonic() + WAIT_S
    while time.monotonic() < give_up_at:
        if found := await find():
            return found
        await asyncio.sleep(0.2)
    raise AssertionError("it did not come true")


async def test_actors_grade_come_back_and_leave(
    ray_python: Path,
    ocaml_grader: object,
    redis_server: Callable[..., Any],
    tmp_path: Path,
) -> None:
    redis = redis_server().url
    row = next(iter(read_rows(TASKS))).values
    task = {"tests": row["tests"], "signature": row["signature"]}
    answers = {"right": row["solution"], "broken": "let clamp a b = a +"}
    broker = open_broker(redis)

    async def find_names() -> set[str]:
        return {worker.name for worker in await list_workers(broker) if not worker.is_dead}

    async def find_pair() -> set[str]:
        names = await find_names()
        return names if len(names) == 2 else set()

    async def grade(client: RewardClient, mark: str) -> dict[str, float | None]:
        submissions = [
            {"id": name, "completion": f"```ocaml\n{text} (* {mark} *)\n```", "task": task}
            for name, text in answers.items()
        ]
        results = await client.grade("ocaml", submissions, deadline_s=60)
        return {result.id: getattr(result, "reward", None) for result in results}

    log = tmp_path / "log.txt"
    with serving(redis) as url:
        client = RewardClient(url)
        with workers_on_ray(ray_python, redis, log) as process:
            first = await wait_until(find_pair)
            assert await grade(client, "first") == {"right": 1.0, "broken": 0.0}

            lost = min(first)
            os.kill(int(lost.split("-")[-2]), signal.SIGKILL)

            async def find_successor() -> bool:
                names = await find_names()
                return len(names - {lost}) == 2

            await wait_until(find_successor)
            assert await grade(client, "second") == {"right": 1.0, "broken": 0.0}
            process.send_signal(signal.SIGTERM)
            assert await asyncio.to_thread(process.wait, WAIT_S) == 0, log.read_text()[-2000:]
        assert await find_names() <= {lost}
    await broker.close()
