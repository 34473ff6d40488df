"""One measurement per line of standard input, in the checkout that PYTHONPATH names. `tests.bench.compare` starts it.

A line is a number of items; the reply is a JSON object of CPU microseconds per item. Keep to what earlier commits have,
too: this file is also run against them.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
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
def ocaml_grader() -> Iterator[Callable[[int], Figures]]:
    """Real OCaml answers by the worker's path, and by the bare compiler."""
    ours, corpus = ocaml.Ours(), list(answers())
    ocaml.measure(ours, corpus[:8])
    turn = itertools.cycle(corpus)

    def measure(number: int) -> Figures:
        part = list(itertools.islice(turn, number))  # the same answers in the same turn of each checkout
        return {
            "ocaml": ocaml.measure(ours, part)["cpu_ms"] * 1e3,
            "bare compiler": ocaml.measure(ocaml.floor, part)["cpu_ms"] * 1e3,
        }

    yield measure


@contextmanager
def rust_grader() -> Iterator[Callable[[int], Figures]]:
    """Real Rust answers by the worker's path, and by the bare compiler with its linter and one run."""
    from tests.bench import rust

    ours, corpus = partial(rust.ours, rust.RustGrader()), list(rust.answers())
    ocaml.measure(ours, corpus[:3])
    turn = itertools.cycle(corpus)

    def measure(number: int) -> Figures:
        part = list(itertools.islice(turn, number))
        return {
            "rust": ocaml.measure(ours, part)["cpu_ms"] * 1e3,
            "bare clippy-driver": ocaml.measure(rust.floor, part)["cpu_ms"] * 1e3,
        }

    yield measure


@contextmanager
def story_grader() -> Iterator[Callable[[int], Figures]]:
    """Groups of stories by the worker's path with both models, and these models on the same texts alone."""
    from tests.bench import story

    model = story.export(story.DEFAULT_MODEL, ())
    encoder = story.open_backend("onnxruntime", "fp32", model, 1)
    pairs = story.open_pairs(story.SHIPPED, model, "fp32", 1, 64)
    ours = story.Ours(story.StoryGrader(), encoder, model, pairs)

    def measure(number: int) -> Figures:
        asked = story.groups(number // story.G)
        spent = story.measured(ours, asked)["cpu_ms"] * 1e3
        floor = story.Floor((encoder, ours.sentences.values()), (pairs, ours.pairs.values()))
        return {"story": spent, "bare models": story.measured(floor, asked)["cpu_ms"] * 1e3}

    measure(2 * story.G)
    yield measure


PARTS = {"plumbing": plumbing, "ocaml": ocaml_grader, "rust": rust_grader, "story": story_grader}

if __name__ == "__main__":
    with PARTS[sys.argv[1]]() as measure:
        print("{}", flush=True)  # ready
        for line in sys.stdin:
            print(json.dumps(measure(int(line))), flush=True)
