"""One measurement per line of standard input, in the checkout that PYTHONPATH names.
`tests.bench.compare` starts it.

A line is a number of items; the reply is a JSON object of CPU microseconds per item. Keep to what
earlier commits have, too: this file is also run against them.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import plain_streams  # type: ignore[import-not-found]  # beside this file, whichever checkout PYTHONPATH names

from gradus.client import RewardClient
from tests.bench import ocaml
from tests.bench.answers import Written, answers
from tests.bench.broker import Rest, submissions
from tests.chaos.cluster import Cluster

Figures = dict[str, float]
SLOTS = 32


def cpu_us(pids: list[int]) -> float:
    """CPU of all threads of these processes, by the scheduler's accounts, which are finer than the
    clock's ticks."""
    tasks = [task for pid in pids for task in Path(f"/proc/{pid}/task").iterdir()]
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e3


@contextmanager
def plumbing() -> Iterator[Callable[[int], Figures]]:
    """Batches of trivial jobs: all results in one response; by RewardClient, which streams; and
    over plain Streams of the same Redis, results sent one by one and 32 together."""
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as folder,
        Cluster(
            Path(folder), journal=False, lease_s=30.0, apis=1, workers=1, slots=SLOTS
        ).running() as standing,
        plain_worker(standing.redis.url) as plain_pid,
    ):
        url = standing.urls[0]
        plain = plain_streams.connected(standing.redis.url)
        ours = {"api": standing.apis[0].pid, "worker": standing.workers[0].pid}

        def by_httpx(asked: list[dict[str, Any]]) -> None:
            async def ask() -> None:
                async with httpx.AsyncClient(timeout=300) as http:
                    await Rest(http, url)(asked)

            asyncio.run(ask())

        def by_client(asked: list[dict[str, Any]]) -> None:
            async def ask() -> None:
                async with RewardClient(url, batch_size=128) as client:
                    await client.grade("ocaml", asked)

            asyncio.run(ask())

        ways: dict[str, tuple[Callable[[list[dict[str, Any]]], None], dict[str, int]]] = {
            "queue": (by_httpx, ours),
            "stream": (by_client, ours),
            "plain": (partial(plain_streams.grade, plain, "plain:1"), {"worker": plain_pid}),
            "plain 32": (partial(plain_streams.grade, plain, "plain:32"), {"worker": plain_pid}),
        }

        def measure(number: int) -> Figures:
            found: Figures = {}
            for name, (way, pids) in ways.items():
                load, pids = (
                    submissions(number),
                    pids | {"redis": standing.redis.pid, "client": os.getpid()},
                )
                before = {kind: cpu_us([pid]) for kind, pid in pids.items()}
                way(load)
                spent = {
                    kind: (cpu_us([pid]) - before[kind]) / number for kind, pid in pids.items()
                }
                found |= {f"{name}: {kind}": us for kind, us in spent.items()} | {
                    f"{name}: all": sum(spent.values())
                }
            return found

        yield measure


@contextmanager
def plain_worker(url: str) -> Iterator[int]:
    """The number of a process that grades over plain Streams."""
    command = [sys.executable, plain_streams.__file__, url]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline(), "the worker of plain Streams did not start"
            yield process.pid
        finally:
            process.kill()


@contextmanager
def rest() -> Iterator[Callable[[int], Figures]]:
    """OCaml completions of a step by RewardClient, over REST and Redis: CPU of all processes and
    their boxes."""
    with ocaml.services("ocaml") as (url, pids):
        turn = itertools.cycle(list(answers()))
        rounds = itertools.count()

        async def ask(asked: list[dict[str, Any]]) -> list[Any]:
            async with RewardClient(url) as client:
                return await client.grade("ocaml", asked, deadline_s=300)

        def measure(number: int) -> Figures:
            part = list(itertools.islice(turn, number))
            mark = f"```ocaml\n(* round {next(rounds)} *)\n"
            asked = [ocaml.submission(written).model_dump(mode="json") for written in part]
            for one in asked:
                one["completion"] = one["completion"].replace(
                    "```ocaml\n", mark
                )  # no verdict of it is cached
            before = sum(map(ocaml.cpu_of_tree, pids)) + time.process_time()
            results = asyncio.run(ask(asked))
            spent_s = sum(map(ocaml.cpu_of_tree, pids)) + time.process_time() - before
            assert [result.passed for result in results] == [written.right for written in part]
            return {"rest": spent_s * 1e6 / number}

        measure(16)
        yield measure


@contextmanager
def ocaml_grader() -> Iterator[Callable[[int], Figures]]:
    """Real OCaml answers by the worker's path, and by the bare compiler."""
    ours = ocaml.Ours()
    corpus = list(answers())
    ocaml.measure(ours, corpus[:8])
    turn = itertools.cycle(corpus)

    def measure(number: int) -> Figures:
        part = list(
            itertools.islice(turn, number)
        )  # the same answers in the same turn of each checkout
        return {
            "ocaml": ocaml.measure(ours, part)["cpu_ms"] * 1e3,
            "bare compiler": ocaml.measure(ocaml.floor, part)["cpu_ms"] * 1e3,
        }

    yield measure


@contextmanager
def first_answers() -> Iterator[Callable[[int], Figures]]:
    """First answers of new OCaml tasks, whose controls run, and second ones."""
    ours = ocaml.Ours()
    by_task: dict[str, list[Written]] = {}
    for answer in answers():
        if answer.right:
            by_task.setdefault(answer.tests, []).append(answer)
    pairs = itertools.cycle([found[:2] for found in by_task.values() if len(found) > 1])
    names = itertools.count()

    def measure(number: int) -> Figures:
        firsts, seconds = [], []
        for first, second in itertools.islice(pairs, number):
            tests = f"{first.tests}\n(* task {next(names)} *)\n"
            firsts.append(replace(first, tests=tests))
            seconds.append(replace(second, tests=tests))
        return {
            "first answer": ocaml.measure(ours, firsts)["cpu_ms"] * 1e3,
            "second answer": ocaml.measure(ours, seconds)["cpu_ms"] * 1e3,
        }

    measure(8)
    yield measure


@contextmanager
def rust_grader() -> Iterator[Callable[[int], Figures]]:
    """Real Rust answers by the worker's path, and by the bare compiler with its linter and one
    run."""
    from tests.bench import rust

    ours = partial(rust.ours, rust.RustGrader())
    corpus = list(rust.answers())
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
    """Groups of stories by the worker's path, and the sentence model on the same texts alone."""
    from tests.bench import story

    grader = story.StoryGrader()
    model = story.SentenceModel()

    def measure(number: int) -> Figures:
        asked = [one for group in story.groups(number // story.G) for one in group]
        floor = story.Floor(model, asked)
        return {
            "story": story.measure(lambda: story.grade(grader, model, asked), len(asked)) * 1e3,
            "bare model": story.measure(floor, len(asked)) * 1e3,
        }

    measure(2 * story.G)
    yield measure


@contextmanager
def program_grader() -> Iterator[Callable[[int], Figures]]:
    """Cases of a Python program and of one in C, and their bare processes: microseconds per
    case."""
    from tests.bench import programs

    grader = programs.ProgramGrader()
    names = [name for name in ("python", "c") if name in grader.languages]

    def measure(number: int) -> Figures:
        found = [programs.measure_cases(grader, name, number // len(names)) for name in names]
        boxed, bare = (sum(each) / len(names) * 1e6 for each in zip(*found, strict=True))
        return {"program": boxed, "bare process": bare}

    yield measure


PARTS = {
    "plumbing": plumbing,
    "rest": rest,
    "ocaml": ocaml_grader,
    "first": first_answers,
    "rust": rust_grader,
    "story": story_grader,
    "program": program_grader,
}

if __name__ == "__main__":
    with suppress(KeyboardInterrupt), PARTS[sys.argv[1]]() as measure:
        print("{}", flush=True)  # ready
        for line in sys.stdin:
            print(json.dumps(measure(int(line))), flush=True)
