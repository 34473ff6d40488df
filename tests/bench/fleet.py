"""A fleet on one Redis: many real workers whose grader sleeps, and the brokers of many APIs, in a
few processes here.

Each worker is a `services.worker.Worker` with a broker of its own, so with its own connections,
renewals, heartbeats and looks for lapsed leases. Each API is a `StreamsBroker` and a
`GraderRegistry`, which submits and waits. What is measured is the CPU of Redis and what each
command costs it; the CPU of the fleet bounds the load that one machine can make.

    python -m tests.bench.fleet --workers 1000 --apis 20 --loads 0,1
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
import uuid
from contextlib import ExitStack
from pathlib import Path

from redis.asyncio import Redis

from services.api.grader_registry import GraderRegistry
from services.broker import FairShare, Job
from services.broker.jobs import JobPayload
from services.broker.streams import StreamsBroker
from services.event_loop import stop_on_signals
from services.worker import Worker
from tests.bench.broker import costs
from tests.bench.ocaml import cpu_of_tree, machine
from tests.chaos.worker import INFO, RUBRIC, Burner
from tests.redis_server import RedisServer

PADDING = "x" * 1800
START_S = 120
"""Longest time until all workers are registered."""
PROCESSES = 4
LOG_S = 3.0
"""Seconds of Redis' log that are read per load."""


def jobs(number: int, job_s: float) -> list[Job]:
    batch = uuid.uuid4().hex
    made = []
    for n in range(number):
        submission = {
            "id": f"s{n}",
            "prompt": PADDING,
            "completion": f"sleep {job_s * 1000:g} {batch} {n} {PADDING}",
        }
        payload = JobPayload(
            submission={**submission, "task": {"tests": "let () = assert true"}},
            rubric=RUBRIC,
            deadline=time.time() + 3600,
            grader=INFO.grader,
        )
        made.append(Job(f"{INFO.name}:{batch}-{n}", INFO.name, payload.model_dump_json()))
    return made


async def work(url: str, first: int, number: int, slots: int) -> None:
    """Workers `first` to `first + number - 1`, until SIGTERM."""
    brokers = [StreamsBroker(url) for _ in range(number)]
    workers = [
        Worker(Burner(None), broker, slots=slots, name=f"fleet-{first + n}")
        for n, broker in enumerate(brokers)
    ]
    with stop_on_signals() as stop:
        await asyncio.gather(*(worker.run(stop) for worker in workers))
        await asyncio.gather(*(broker.close() for broker in brokers))


class Api:
    """The broker and the registry of one API, which keeps a number of batches on their way."""

    def __init__(self, url: str, number: int) -> None:
        self._run = FairShare(f"run-{number}")
        self.broker = StreamsBroker(url)
        self.registry = GraderRegistry(self.broker, 1.0, 60.0)
        self.n_answered = 0

    async def look(self) -> None:
        while True:
            await self.registry.list_live()
            await asyncio.sleep(1.0)

    async def ask(self, size: int, job_s: float) -> None:
        while True:
            batch = jobs(size, job_s)
            await self.broker.submit(batch, self._run)
            async for _ in self.broker.wait([job.id for job in batch], 300):
                self.n_answered += 1


async def measure(
    redis: Redis, redis_pid: int, apis: list[Api], seconds: float
) -> dict[str, object]:
    """Figures of some seconds, and then each command's share of Redis' core in a second, from its
    log."""
    for api in apis:
        api.n_answered = 0
    cpu_s = cpu_of_tree(redis_pid)
    began_at = time.monotonic()
    await asyncio.sleep(seconds)
    cpu_s, wall_s = cpu_of_tree(redis_pid) - cpu_s, time.monotonic() - began_at
    n_answered = sum(api.n_answered for api in apis)
    info = await redis.info()
    await redis.config_set("slowlog-log-slower-than", 0)
    await redis.slowlog_reset()
    began_at = time.monotonic()
    await asyncio.sleep(LOG_S)
    logged_s = time.monotonic() - began_at
    spent = await costs(redis)
    await redis.config_set("slowlog-log-slower-than", 10_000)
    return {
        "jobs_per_s": round(n_answered / wall_s, 1),
        "redis_cpu_percent": round(100 * cpu_s / wall_s, 1),
        "connections": info["connected_clients"],
        "redis_mb": round(info["used_memory"] / 1e6, 1),
        "commands": {
            name: {"per_s": round(cost["calls"] / logged_s, 1), "us": cost["us"]}
            for name, cost in spent.items()
        },
    }


async def run(options: argparse.Namespace) -> None:
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        server = RedisServer(Path(folder), append_only=True)
        server.start()
        stack.callback(server.stop)
        hosts = []
        for host in range(PROCESSES):
            first = options.workers * host // PROCESSES
            number = options.workers * (host + 1) // PROCESSES - first
            words = ["work", server.url, str(first), str(number), str(options.slots)]
            hosts.append(subprocess.Popen([sys.executable, "-m", "tests.bench.fleet", *words]))  # noqa: ASYNC220
            stack.callback(hosts[-1].wait)
            stack.callback(hosts[-1].terminate)
        redis = Redis.from_url(server.url, socket_timeout=60)
        await redis.config_set("slowlog-max-len", 1_000_000)
        apis = [Api(server.url, n) for n in range(options.apis)]
        began_at = time.monotonic()
        async with asyncio.timeout(START_S):
            while sum(info.workers for info in await apis[0].broker.graders()) < options.workers:  # noqa: ASYNC110
                await asyncio.sleep(0.2)
        print(
            json.dumps(
                {
                    "machine": machine(f"load {os.getloadavg()[0]:.0f}"),
                    "start_s": round(time.monotonic() - began_at, 1),
                }
            ),
            flush=True,
        )
        looking = [asyncio.create_task(api.look()) for api in apis]
        for load in options.loads:
            n_batches = round(load * options.workers * options.slots / options.batch)
            asking = [
                asyncio.create_task(apis[n % len(apis)].ask(options.batch, options.job_s))
                for n in range(n_batches)
            ]
            await asyncio.sleep(options.job_s + 3)
            fleet_s = sum(cpu_of_tree(host.pid) for host in hosts)
            figures = await measure(redis, server.pid, apis, options.seconds)
            figures["fleet_cpu_percent"] = round(
                100 * (sum(cpu_of_tree(host.pid) for host in hosts) - fleet_s) / options.seconds, 1
            )
            print(
                json.dumps(
                    {"workers": options.workers, "apis": options.apis, "load": load, **figures}
                ),
                flush=True,
            )
            for task in asking:
                task.cancel()
            await asyncio.gather(*asking, return_exceptions=True)
            await redis.delete(*(f"gradus:{kind}:{INFO.name}" for kind in ("queue", "bell")))
            await asyncio.sleep(options.job_s + 1)
        for task in looking:
            task.cancel()
        for api in apis:
            await api.broker.close()
        await redis.aclose()


def main() -> None:
    if sys.argv[1:2] == ["work"]:
        url, first, number, slots = sys.argv[2:]
        asyncio.run(work(url, int(first), int(number), int(slots)))
        return
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workers", type=int, default=1000)
    parser.add_argument("--apis", type=int, default=20)
    parser.add_argument("--slots", type=int, default=2)
    parser.add_argument("--job-s", type=float, default=4.0, help="what the grader takes")
    parser.add_argument("--batch", type=int, default=16, help="jobs per request")
    parser.add_argument(
        "--loads",
        type=lambda text: [float(one) for one in text.split(",")],
        default=[0, 0.25, 1],
        help="share of slots",
    )
    parser.add_argument("--seconds", type=float, default=15.0, help="measured per load")
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
