"""One measurement per line of standard input, in the checkout that PYTHONPATH names. `tests.bench.compare` starts it.

A line is a number of items; the reply is a JSON object of CPU microseconds per item. Keep to what earlier commits have,
too: this file is also run against them.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from gradus.client import RewardClient
from tests.bench import ocaml
from tests.bench.answers import answers
from tests.bench.broker import Rest, submissions
from tests.chaos.cluster import Cluster

Figures = dict[str, float]
SLOTS = 32


def cpu_us(pids: list[int]) -> float:
    """CPU of all threads of these processes, by the scheduler's accounts, which are finer than the clock's ticks."""
    tasks = [task for pid in pids for task in Path(f"/proc/{pid}/task").iterdir()]
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e3


@contextmanager
def plumbing() -> Iterator[Callable[[int], Figures]]:
    """Batches of trivial jobs: all results in one response; then by RewardClient, which streams."""
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as folder,
        Cluster(Path(folder), journal=False, lease_s=30.0, apis=1, workers=1, slots=SLOTS).standing() as standing,
    ):
        url = standing.urls[0]
        pids = {"api": standing.apis[0].pid, "worker": standing.workers[0].pid, "redis": standing.redis.pid}

        async def by_httpx(asked: list[dict[str, Any]]) -> None:
            async with httpx.AsyncClient(timeout=300) as http:
                await Rest(http, url)(asked)

        async def by_client(asked: list[dict[str, Any]]) -> None:
            async with RewardClient(url, batch_size=128) as client:
                await client.grade("ocaml", asked)

        def measure(number: int) -> Figures:
            found: Figures = {}
            ways: dict[str, Callable[[list[dict[str, Any]]], Awaitable[None]]] = {
                "queue": by_httpx,
                "stream": by_client,
            }
            for name, way in ways.items():
                load, all_pids = submissions(number), pids | {"client": os.getpid()}
                before = {kind: cpu_us([pid]) for kind, pid in all_pids.items()}
                asyncio.run(way(load))
                for kind, pid in all_pids.items():
                    found[f"{name}: {kind}"] = (cpu_us([pid]) - before[kind]) / number
            return found

        yield measure


@contextmanager
def grader() -> Iterator[Callable[[int], Figures]]:
    """Real OCaml answers by the worker's path, and by the bare compiler."""
    ours, corpus = ocaml.Ours(), list(answers())
    ocaml.measure(ours, corpus[:8])

    def measure(number: int) -> Figures:
        at = int(time.time() * 1000) % (len(corpus) - number + 1)
        part = corpus[at : at + number]
        return {
            "ocaml": ocaml.measure(ours, part)["cpu_ms"] * 1e3,
            "bare compiler": ocaml.measure(ocaml.floor, part)["cpu_ms"] * 1e3,
        }

    yield measure


if __name__ == "__main__":
    with {"plumbing": plumbing, "ocaml": grader}[sys.argv[1]]() as measure:
        print(json.dumps({"ready": uuid.uuid4().hex}), flush=True)
        for line in sys.stdin:
            print(json.dumps(measure(int(line))), flush=True)
