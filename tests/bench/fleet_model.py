"""A fleet that no machine here can hold, as a model (SimPy), and beside it what the queue's real
scripts do with a smaller one.

Time is simulated. Each partition is a Redis with one core, a fair queue and workers of its own;
trainers write steps and wait for all of their grades. Workers are lost without notice, as on spot
nodes, and come back later; some are slow; one tenant may queue a burst. The costs of commands are
those of docs/benchmarks.md.

    python -m tests.bench.fleet_model                  # scenarios of the model
    python -m tests.bench.fleet_model --compare        # 50 to 200 workers, beside a real Redis
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import random
import statistics
import tempfile
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any

import simpy

from services.broker import (
    DEAD_AFTER_S,
    RENEW_S,
    RESERVED_PART,
    BrokerSettings,
    Claim,
    FairShare,
)
from services.broker.jobs import RETRY_AFTER_S
from services.broker.streams import StreamsBroker
from services.event_loop import GC_THRESHOLD
from tests.bench.fleet import jobs
from tests.bench.ocaml import cpu_of_tree
from tests.chaos.worker import INFO
from tests.redis_server import RedisServer

SUBMIT_S, TAKE_S, FINISH_S = 32e-6, 29e-6, 32e-6
"""Redis' core per job in batches: 93 us in all."""
WAKE_S = 240e-6
"""More of it for a job that wakes a worker: 333 us in all."""
IDLE_S = 52e-6
"""Redis' core per worker and second."""
CONNECTIONS = 3.7
"""Connections of a worker."""
RESULT_BYTES = 1_500
"""A cached result."""
SPREAD = 0.5
"""Sigma of the logarithm of what grading takes."""
MAX_DEPTH = BrokerSettings().max_depth
RESULT_TTL_S = BrokerSettings().result_ttl_s


@dataclass(frozen=True)
class Fleet:
    """A scenario."""

    workers: int = 10_000
    partitions: int = 10
    slots: int = 2
    job_s: float = 2.0
    """Mean time of a slot per job."""
    slow_share: float = 0.02
    """Part of the workers that take `SLOW` times as long."""
    lost_per_h: float = 0.2
    """Interruptions of a worker an hour, without notice."""
    boot_s: float = 120.0
    """Until a lost worker is replaced."""
    far_share: float = 0.0
    """Part of the workers in another region than their Redis."""
    far_s: float = 0.06
    """Round trip between regions."""
    trainers: int = 300
    step: int = 1024
    """Submissions of a step."""
    batch: int = 64
    """Submissions that a client sends to one partition, the next ones to the next."""
    by_hash: bool = False
    """Each submission goes to the partition of its own hash."""
    think_s: float = 45.0
    """Mean time between the grades of a step and the next step."""
    burst: int = 0
    """Submissions that one tenant queues after the first think time."""
    seconds: float = 120.0
    seed: int = 1


SLOW = 4.0


@dataclass
class Tally:
    """What happened. `steps`: begin and duration of each."""

    n_graded: int = 0
    n_lost_starts: int = 0
    n_refused: int = 0
    n_submitted: int = 0
    graded_s: float = 0.0
    """Slot time of jobs that were finished."""
    steps: list[tuple[float, float]] = field(default_factory=list)


class Request:
    """Jobs of one run on one partition. `done` succeeds with the last."""

    def __init__(self, env: simpy.Environment, run: str, size: int) -> None:
        self.run = run
        self.size = size
        self.n_open = size
        self.done = env.event()

    def finish_job(self) -> None:
        self.n_open -= 1
        if self.n_open == 0:
            self.done.succeed()


class Partition:
    """One Redis: a core that serves one command at a time, and backlogs that take turns."""

    def __init__(self, env: simpy.Environment, n_workers: int) -> None:
        self.env = env
        self.free_at = 0.0
        self.busy_s = 0.0
        self.idle_share = n_workers * IDLE_S
        self.backlogs: dict[str, deque[Request]] = {}
        self.depth = 0
        self.deepest = 0
        self.bells: dict[simpy.Event, None] = {}
        """Of slots that wait, oldest first."""

    def spend(self, seconds: float) -> float:
        """Return the time until a command ends that takes `seconds` of a core without idle
        workers."""
        seconds /= 1 - self.idle_share
        self.busy_s += seconds
        self.free_at = max(self.free_at, self.env.now) + seconds
        return self.free_at - self.env.now

    def has_room(self, request: Request) -> bool:
        own = len(self.backlogs.get(request.run, ())) + request.size
        return self.depth + request.size <= MAX_DEPTH or (
            own <= MAX_DEPTH / RESERVED_PART and self.depth + request.size <= 2 * MAX_DEPTH
        )

    def queue(self, request: Request, n_jobs: int, *, is_front: bool = False) -> None:
        """Queue jobs of a request, and wake as many slots."""
        backlog = self.backlogs.setdefault(request.run, deque())
        add = backlog.extendleft if is_front else backlog.extend
        add([request] * n_jobs)
        self.depth += n_jobs
        self.deepest = max(self.deepest, self.depth)
        for _ in range(min(n_jobs, len(self.bells))):
            bell = next(iter(self.bells))
            del self.bells[bell]
            bell.succeed()

    def take(self) -> Request | None:
        """Return the next job: runs take turns, job by job."""
        if not self.backlogs:
            return None
        run = next(iter(self.backlogs))
        backlog = self.backlogs.pop(run)
        job = backlog.popleft()
        if backlog:
            self.backlogs[run] = backlog
        self.depth -= 1
        return job


class Model:
    """A fleet at work. `run` returns its figures."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.env = simpy.Environment()
        self.random = random.Random(fleet.seed)
        self.tally = Tally()
        each = fleet.workers // fleet.partitions
        self.partitions = [Partition(self.env, each) for _ in range(fleet.partitions)]
        self.workers: list[list[simpy.Process]] = []
        for number in range(fleet.workers):
            partition = self.partitions[number % fleet.partitions]
            factor = SLOW if self.random.random() < fleet.slow_share else 1.0
            far_s = fleet.far_s if self.random.random() < fleet.far_share else 0.0
            slots = [self.serve_slot(partition, factor, far_s) for _ in range(fleet.slots)]
            self.workers.append([self.env.process(slot) for slot in slots])
        for number in range(fleet.trainers):
            self.env.process(self.train(f"run-{number}"))
        if fleet.lost_per_h:
            self.env.process(self.lose_workers())
        if fleet.burst:
            self.env.process(self.burst())

    def run(self) -> dict[str, Any]:
        self.env.run(until=self.fleet.seconds)
        return summarize(self.fleet, self.tally, self.partitions)

    def serve_slot(
        self, partition: Partition, factor: float, far_s: float
    ) -> Iterator[simpy.Event]:
        env = self.env
        is_lost = False
        while True:
            job = bell = None
            take_s = TAKE_S
            try:
                if is_lost:
                    yield env.timeout(self.fleet.boot_s)
                    is_lost = False
                job = partition.take()
                while job is None:
                    bell = env.event()
                    partition.bells[bell] = None
                    yield bell
                    take_s = TAKE_S + WAKE_S
                    job = partition.take()
                grading_s = factor * draw_job_s(self.random, self.fleet.job_s)
                yield env.timeout(partition.spend(take_s) + far_s + grading_s)
                yield env.timeout(partition.spend(FINISH_S))
                self.tally.n_graded += 1
                self.tally.graded_s += grading_s
                job.finish_job()
            except simpy.Interrupt:
                is_lost = True
                partition.bells.pop(bell, None)
                if job is not None:
                    env.process(self.redeliver(partition, job))

    def redeliver(self, partition: Partition, job: Request) -> Iterator[simpy.Event]:
        """Queue a job of a lost worker, when others notice that it no longer renews its leases."""
        self.tally.n_lost_starts += 1
        yield self.env.timeout(DEAD_AFTER_S + self.random.uniform(0, RENEW_S))
        partition.queue(job, 1, is_front=True)

    def lose_workers(self) -> Iterator[simpy.Event]:
        rate = self.fleet.workers * self.fleet.lost_per_h / 3600
        while True:
            yield self.env.timeout(self.random.expovariate(rate))
            for slot in self.random.choice(self.workers):
                slot.interrupt()

    def submit(self, request: Request, partition: Partition) -> Iterator[simpy.Event]:
        yield self.env.timeout(partition.spend(SUBMIT_S * request.size))
        while not partition.has_room(request):
            self.tally.n_refused += request.size
            yield self.env.timeout(RETRY_AFTER_S)
            yield self.env.timeout(partition.spend(SUBMIT_S * request.size))
        self.tally.n_submitted += request.size
        partition.queue(request, request.size)

    def send(self, run: str, number: int, turn: Iterator[int]) -> list[simpy.Event]:
        """Submit so many jobs; return the events of their ends."""
        done = []
        batch = 1 if self.fleet.by_hash else self.fleet.batch
        for first in range(0, number, batch):
            index = next(turn) % len(self.partitions)
            if self.fleet.by_hash:
                index = self.random.randrange(len(self.partitions))
            request = Request(self.env, run, min(batch, number - first))
            self.env.process(self.submit(request, self.partitions[index]))
            done.append(request.done)
        return done

    def train(self, run: str) -> Iterator[simpy.Event]:
        turn = count()
        yield self.env.timeout(self.random.uniform(0, self.fleet.think_s))
        while True:
            began_at = self.env.now
            yield self.env.all_of(self.send(run, self.fleet.step, turn))
            self.tally.steps.append((began_at, self.env.now - began_at))
            yield self.env.timeout(self.fleet.think_s * self.random.uniform(0.5, 1.5))

    def burst(self) -> Iterator[simpy.Event]:
        yield self.env.timeout(self.fleet.think_s)
        self.send("burst", self.fleet.burst, count())


def draw_job_s(source: random.Random, mean_s: float) -> float:
    return mean_s * source.lognormvariate(-SPREAD * SPREAD / 2, SPREAD)


def summarize(fleet: Fleet, tally: Tally, partitions: list[Partition]) -> dict[str, Any]:
    """Return the figures of a run. A step is counted if it began after the first think time."""
    per_s = tally.n_graded / fleet.seconds
    durations = sorted(took for at, took in tally.steps if at > fleet.think_s)
    each = fleet.partitions
    busiest = max(partition.busy_s for partition in partitions) / fleet.seconds
    return {
        "jobs_per_s": round(per_s, 1),
        "slots_busy": round(tally.graded_s / (fleet.workers * fleet.slots * fleet.seconds), 3),
        "started_twice_percent": round(100 * tally.n_lost_starts / max(tally.n_graded, 1), 3),
        "refused": tally.n_refused,
        **name_quantiles(durations),
        "busiest_redis": round(busiest + partitions[0].idle_share, 3),
        "deepest_queue": max(partition.deepest for partition in partitions),
        "connections_per_redis": round(CONNECTIONS * fleet.workers / each),
        "results_mb_per_redis": round(per_s / each * RESULT_TTL_S * RESULT_BYTES / 1e6),
        "core_s_per_job": round(fleet.workers * fleet.slots / per_s, 3) if per_s else None,
    }


def name_quantiles(durations: list[float]) -> dict[str, Any]:
    if len(durations) < 2:
        return {"steps": len(durations)}
    cuts = statistics.quantiles(durations, n=100)
    return {
        "steps": len(durations),
        "step_p50_s": round(cuts[49], 2),
        "step_p99_s": round(cuts[98], 2),
    }


# ---------------------------------------------------------------------- the same on a real Redis


class RealFleet:
    """Workers and trainers of a scenario on one Redis, all in this process; grading sleeps."""

    def __init__(self, fleet: Fleet, url: str) -> None:
        self.fleet = fleet
        self.url = url
        self.random = random.Random(fleet.seed)
        self.tally = Tally()
        self.names = count()

    async def run(self, redis_pid: int) -> dict[str, Any]:
        loop = asyncio.get_running_loop()
        began_at = loop.time()
        cpu_s = cpu_of_tree(redis_pid)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self.replace_worker()) for _ in range(self.fleet.workers)]
            tasks += [
                group.create_task(self.train(FairShare(f"run-{n}")))
                for n in range(self.fleet.trainers)
            ]
            await asyncio.sleep(self.fleet.seconds)
            for task in tasks:
                task.cancel()
        seconds = loop.time() - began_at
        done = sorted(took for at, took in self.tally.steps if at - began_at > self.fleet.think_s)
        return {
            "jobs_per_s": round(self.tally.n_graded / seconds, 1),
            "started_twice_percent": round(
                100 * self.tally.n_lost_starts / max(self.tally.n_graded, 1), 3
            ),
            **name_quantiles(done),
            "busiest_redis": round((cpu_of_tree(redis_pid) - cpu_s) / seconds, 3),
        }

    async def replace_worker(self) -> None:
        """Keep one worker at work: each is lost after a random time, and replaced."""
        factor = SLOW if self.random.random() < self.fleet.slow_share else 1.0
        while True:
            lives_s = None
            if self.fleet.lost_per_h:
                lives_s = self.random.expovariate(self.fleet.lost_per_h / 3600)
            with suppress(TimeoutError):
                async with asyncio.timeout(lives_s):
                    await self.work(f"worker-{next(self.names)}", factor)
            await asyncio.sleep(self.fleet.boot_s)

    async def work(self, name: str, factor: float) -> None:
        """Serve until cancelled, and then release nothing, as a process that is killed."""
        broker = StreamsBroker(self.url)
        running: dict[str, Claim] = {}
        freed = asyncio.Event()

        async def grade(claim: Claim) -> None:
            self.tally.n_lost_starts += claim.deliveries > 1
            await asyncio.sleep(factor * draw_job_s(self.random, self.fleet.job_s))
            await broker.finish(claim, "{}", cache=True)
            self.tally.n_graded += 1
            del running[claim.token]
            freed.set()

        async def renew() -> None:
            for beat in count():
                if beat % 5 == 0:
                    await broker.heartbeat(name, INFO, 15.0)
                await broker.renew(list(running.values()))
                await asyncio.sleep(RENEW_S)

        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(renew())
                while True:
                    n_free = self.fleet.slots - len(running)
                    if n_free == 0:
                        freed.clear()
                        await freed.wait()
                        continue
                    for claim in await broker.claim(INFO.name, name, n_free, 2.0):
                        running[claim.token] = claim
                        group.create_task(grade(claim))
        finally:
            await broker.close()

    async def train(self, share: FairShare) -> None:
        loop = asyncio.get_running_loop()
        broker = StreamsBroker(self.url)
        try:
            await asyncio.sleep(self.random.uniform(0, self.fleet.think_s))
            while True:
                began_at = loop.time()
                step = jobs(self.fleet.step, 0)
                for first in range(0, len(step), self.fleet.batch):
                    await broker.submit(step[first : first + self.fleet.batch], share)
                async for _ in broker.wait([job.id for job in step], 300):
                    pass
                self.tally.steps.append((began_at, loop.time() - began_at))
                await asyncio.sleep(self.fleet.think_s * self.random.uniform(0.5, 1.5))
        finally:
            await broker.close()


def compare(fleet: Fleet) -> dict[str, Any]:
    """Return the figures of a scenario by the model and by a real Redis."""
    with tempfile.TemporaryDirectory() as folder:
        server = RedisServer(Path(folder), append_only=True)
        server.start()
        try:
            real = asyncio.run(RealFleet(fleet, server.url).run(server.pid))
        finally:
            server.stop()
    return {"real": real, "model": Model(fleet).run()}


SCENARIOS: dict[str, Fleet] = {
    "base": Fleet(),
    "no losses, no stragglers": Fleet(lost_per_h=0.0, slow_share=0.0),
    "losses x 10": Fleet(lost_per_h=2.0),
    "1 partition": Fleet(partitions=1),
    "100 partitions": Fleet(partitions=100),
    "100 partitions, by hash": Fleet(partitions=100, by_hash=True),
    "half of the workers far": Fleet(far_share=0.5),
    "burst": Fleet(burst=500_000),
    "550 trainers": Fleet(trainers=550),
}
SMALL = Fleet(
    partitions=1,
    job_s=1.0,
    slow_share=0.05,
    lost_per_h=12.0,
    boot_s=5.0,
    step=64,
    batch=16,
    think_s=2.0,
    seconds=40.0,
)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--compare", action="store_true", help="beside a real Redis")
    parser.add_argument("--only", choices=SCENARIOS, help="one scenario of the model")
    options = parser.parse_args()
    if options.compare:
        for workers in (50, 100, 200):
            fleet = replace(SMALL, workers=workers, trainers=workers // 20)
            print(json.dumps({"workers": workers, **compare(fleet)}), flush=True)
        return
    gc.set_threshold(GC_THRESHOLD)
    for name, fleet in SCENARIOS.items():
        if options.only in (None, name):
            figures = Model(fleet).run()
            print(json.dumps({"scenario": name, **asdict(fleet), **figures}), flush=True)


if __name__ == "__main__":
    main()
