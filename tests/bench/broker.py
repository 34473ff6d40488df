"""What the queue adds to a grading, and where it ends: real API, worker and Redis processes. `make
bench-full` runs it.

The grader is trivial (`tests.chaos.worker`), payloads are 4 KB, Redis keeps its append-only file
(everysec). CPU is user + system of each process, to the tick of the kernel's clock; on a busy
machine trust it before any wall time. What one machine cannot show, many workers on many cores, is
worked out on paper from what each command costs Redis.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import httpx
from redis.asyncio import Redis

from gradus.contract import OcamlSubmission, compute_job_id
from services.broker import Job
from services.broker.jobs import JobPayload
from services.broker.streams import StreamsBroker
from services.broker.streams import scripts as lua
from tests.bench.ocaml import cpu_of_tree, machine
from tests.chaos.cluster import Cluster
from tests.chaos.worker import INFO, RUBRIC

SLOTS = 32
IN_FLIGHT = 256
TURNS = 9
BATCH = 4096
PADDING = "x" * 1800
OF_THE_BENCH = frozenset({"INFO", "SLOWLOG", "CONFIG", "CLIENT"})
Figures = dict[str, float]


# -------------------------------------------------------------------------------------------- load


def submissions(number: int, cpu_ms: float = 0) -> list[dict[str, Any]]:
    """All different, to the cache too."""
    of = uuid.uuid4().hex
    return [
        {
            "id": f"s{n}",
            "prompt": PADDING,
            "completion": f"burn {cpu_ms:g} number {n} of {of} {PADDING}",
            "task": {"tests": "let () = assert true"},
        }
        for n in range(number)
    ]


def jobs(number: int, cpu_ms: float = 0) -> list[Job]:
    made = [OcamlSubmission.model_validate(one) for one in submissions(number, cpu_ms)]
    until = time.time() + 3600
    return [
        Job(
            compute_job_id(INFO.grader, RUBRIC, one),
            "ocaml",
            JobPayload(
                submission=one.model_dump(mode="json"),
                rubric=RUBRIC,
                grader=INFO.grader,
                deadline=until,
            ).model_dump_json(),
        )
        for one in made
    ]


class Queue:
    """Asks the queue itself: the asking side lives in this process."""

    def __init__(self, broker: StreamsBroker) -> None:
        self._broker = broker

    async def __call__(self, asked: Sequence[Job]) -> None:
        await self._broker.submit(asked)
        wanted = [job.id for job in asked]
        answered = [job_id async for job_id, _ in self._broker.wait(wanted, 300)]
        assert len(answered) == len(asked), "the queue lost a job"

    def load(self, number: int) -> list[Job]:
        return jobs(number)


class Rest:
    """Asks over HTTP, as a trainer does."""

    def __init__(self, http: httpx.AsyncClient, url: str) -> None:
        self._http = http
        self._url = f"{url}/v1/grade/ocaml"

    async def __call__(self, asked: Sequence[dict[str, Any]]) -> None:
        answer = await self._http.post(self._url, json={"submissions": asked, "deadline_s": 300})
        assert [result["status"] for result in answer.json()["results"]] == ["graded"] * len(asked)

    def load(self, number: int) -> list[dict[str, Any]]:
        return submissions(number)


class Bare:
    """Asks over HTTP with as little of a client as there can be: bytes on a socket."""

    def __init__(self, url: str) -> None:
        self._address = httpx.URL(url)
        self._free: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def __call__(self, asked: Sequence[dict[str, Any]]) -> None:
        body = json.dumps({"submissions": asked, "deadline_s": 300}).encode()
        head = (
            "POST /v1/grade/ocaml HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        )
        head += f"Content-Length: {len(body)}"
        reader, writer = self._free.pop() if self._free else await self._connected()
        writer.write(head.encode() + b"\r\n\r\n" + body)
        lines = (await reader.readuntil(b"\r\n\r\n")).lower()
        n_bytes = int(lines.partition(b"content-length:")[2].split()[0])
        answer = await reader.readexactly(n_bytes)
        assert answer.count(b'"status":"graded"') == len(asked)
        self._free.append((reader, writer))

    async def _connected(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(self._address.host, self._address.port)

    def load(self, number: int) -> list[dict[str, Any]]:
        return submissions(number)

    def close(self) -> None:
        for _, writer in self._free:
            writer.close()


class Way(Protocol):
    """How jobs are asked for."""

    async def __call__(self, asked: Sequence[Any]) -> None: ...

    def load(self, number: int) -> list[Any]: ...


# --------------------------------------------------------------------------------------- measuring


@contextmanager
def cluster(**more: Any) -> Iterator[Cluster]:
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as folder,
        Cluster(Path(folder), journal=False, lease_s=30.0, **more).running() as standing,
    ):
        yield standing


def cpu_s(cluster: Cluster) -> Figures:
    """Of each kind of process, this one included: it asks."""
    kinds = {
        "redis": [cluster.redis.pid],
        "api": [one.pid for one in cluster.apis],
        "worker": [w.pid for w in cluster.workers],
    }
    return {kind: sum(map(cpu_of_tree, pids)) for kind, pids in kinds.items()} | {
        "asker": time.process_time()
    }


async def costing(cluster: Cluster, number: int, work: Callable[[], Awaitable[object]]) -> Figures:
    """Wall seconds of `work` on `number` jobs, and CPU microseconds per job by process."""
    before = cpu_s(cluster)
    started = time.perf_counter()
    await work()
    wall_s = time.perf_counter() - started
    after = cpu_s(cluster)
    spent = {
        f"{kind}_us": round((after[kind] - before[kind]) * 1e6 / number)
        for kind in after
        if after[kind]
    }
    return {
        "jobs": number,
        "wall_s": round(wall_s, 2),
        "jobs_per_s": round(number / wall_s),
    } | spent


async def latencies(way: Way, at_once: int, rounds: int) -> Figures:
    """Of single submissions, `at_once` in flight; milliseconds."""
    waits: list[float] = []

    async def ask(asked: list[Any]) -> None:
        for one in asked:
            started = time.perf_counter()
            await way([one])
            waits.append((time.perf_counter() - started) * 1e3)

    load = way.load(at_once * rounds)
    await asyncio.gather(*(ask(load[n::at_once]) for n in range(at_once)))
    waits.sort()
    return {
        "p10_ms": round(waits[len(waits) // 10], 2),
        "p50_ms": round(waits[len(waits) // 2], 2),
        "p99_ms": round(waits[int(len(waits) * 0.99)], 2),
    }


async def alone(cluster: Cluster, way: Way, number: int) -> Figures:
    """Latencies of one at a time, and what one costs whom."""
    waits: Figures = {}

    async def ask() -> None:
        waits.update(await latencies(way, 1, number))

    return await costing(cluster, number, ask) | waits


def middle(key: str, values: Sequence[float]) -> float:
    """The median; of CPU, which is told in ticks of the kernel's clock, the mean."""
    return statistics.mean(values) if key.endswith("_us") else statistics.median(values)


async def ways_there(cluster: Cluster, ways: dict[str, Way]) -> dict[str, dict[str, Figures]]:
    """One at a time takes turns, so that a busy machine hits all ways alike; the median turn
    counts."""
    turns: dict[str, list[Figures]] = {name: [] for name in ways}
    for way in ways.values():
        await way(way.load(200))  # warm
    for _ in range(TURNS):
        for name, way in ways.items():
            turns[name].append(await alone(cluster, way, 100))
    found = {}
    for name, way in ways.items():
        unloaded = {}
        for key in turns[name][0]:
            values = [turn.get(key, 0) for turn in turns[name]]
            unloaded[key] = round(middle(key, values), 2)
        in_flight = await latencies(way, IN_FLIGHT, 8)
        batch = await costing(cluster, BATCH, partial(way, way.load(BATCH)))
        found[name] = {"unloaded": unloaded, "in_flight": in_flight, "batch": batch}
    return found


async def paths() -> dict[str, dict[str, Figures]]:
    """One worker: through the queue alone, and through API and queue, by two clients."""
    with cluster(apis=1, workers=1, slots=SLOTS) as standing:
        broker = StreamsBroker(standing.redis.url)
        bare = Bare(standing.urls[0])
        async with httpx.AsyncClient(
            timeout=300, limits=httpx.Limits(max_connections=IN_FLIGHT)
        ) as http:
            ways: dict[str, Way] = {
                "queue": Queue(broker),
                "bare": bare,
                "rest": Rest(http, standing.urls[0]),
            }
            found = await ways_there(standing, ways)
        bare.close()
        await broker.close()
    return found


async def all_there(broker: StreamsBroker, workers: int) -> None:
    while sum(info.workers for info in await broker.graders()) < workers:  # noqa: ASYNC110  (it happens in Redis)
        await asyncio.sleep(0.1)


async def scaling(burn_ms: float, number: int) -> dict[str, Figures]:
    """Jobs of a fixed CPU time through 1, 2, 4 and 8 worker processes of one slot each."""
    found = {}
    for workers in (1, 2, 4, 8):
        with cluster(apis=0, workers=workers, slots=1) as standing:
            broker = StreamsBroker(standing.redis.url)
            await all_there(broker, workers)
            found[str(workers)] = await costing(
                standing, number, partial(Queue(broker), jobs(number, burn_ms))
            )
            await broker.close()
    return found


# ---------------------------------------------------------------------- what a worker idles


@asynccontextmanager
async def counted(redis: Redis) -> AsyncIterator[dict[str, Any]]:
    """Requests, commands (those that scripts call, too) and CPU of Redis while the block runs;
    filled in at its end."""
    found: dict[str, Any] = {}
    before = await redis.info("everything")
    yield found
    after = await redis.info("everything")
    found["commands"] = after["total_commands_processed"] - before["total_commands_processed"]
    found["requests"] = after["total_reads_processed"] - before["total_reads_processed"]
    cpu = ("used_cpu_user", "used_cpu_sys")
    found["cpu_us"] = sum(after[name] - before[name] for name in cpu) * 1e6
    found["by_command"] = {}
    for name, stats in after.items():
        if name.startswith("cmdstat_"):
            old = before.get(name, {"calls": 0, "usec": 0})
            if calls := stats["calls"] - old["calls"]:
                usec = stats["usec"] - old["usec"]
                found["by_command"][name[8:]] = {
                    "calls": calls,
                    "usec_per_call": round(usec / calls, 1),
                }


async def idle(seconds: float) -> Figures:
    """Commands per second of one worker process that has nothing to do."""
    with cluster(apis=0, workers=1) as standing:
        broker = StreamsBroker(standing.redis.url)
        await all_there(broker, 1)
        await broker.close()
        await asyncio.sleep(2)
        async with Redis.from_url(standing.redis.url) as redis, counted(redis) as found:
            before = cpu_s(standing)["worker"]
            await asyncio.sleep(seconds)
            worker_us = (cpu_s(standing)["worker"] - before) * 1e6 / seconds
    rates = {f"{name}_per_s": round(found[name] / seconds, 2) for name in ("requests", "commands")}
    return rates | {"worker_us_per_s": round(worker_us)}


# ------------------------------------------------------------------------------------------ crowds


@asynccontextmanager
async def crowd(url: str, size: int) -> AsyncIterator[None]:
    """So many workers, each with connections of its own; they claim and finish, in this process,
    grading nothing."""

    async def work(name: str) -> None:
        broker = StreamsBroker(url)
        try:
            while True:
                for claim in await broker.claim("ocaml", name, 8, 1.0):
                    await broker.finish(claim, "{}", cache=True)
        finally:
            await broker.close()

    workers = [asyncio.create_task(work(f"crowd-{n}")) for n in range(size)]
    try:
        await asyncio.sleep(3 + size / 100)
        yield
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)


async def crowds(sizes: Sequence[int], seconds: float) -> dict[str, Any]:
    """What Redis pays for that many workers: while they idle, and per job while most of them
    wait."""
    found = {}
    for size in sizes:
        with cluster(apis=0, workers=0) as standing:
            asker = StreamsBroker(standing.redis.url)
            async with Redis.from_url(standing.redis.url) as redis, crowd(standing.redis.url, size):
                async with counted(redis) as idling:
                    await asyncio.sleep(seconds)
                async with counted(redis) as loaded:
                    for _ in range(64):
                        await Queue(asker)(jobs(16))
            await asker.close()
        found[str(size)] = {
            "idle_commands_per_s": round(idling["commands"] / seconds),
            "idle_redis_us_per_s": round(idling["cpu_us"] / seconds),
            "redis_us_per_job": round(loaded["cpu_us"] / 1024),
            "idle": idling["by_command"],
            "loaded": loaded["by_command"],
        }
    return found


# ---------------------------------------------------------------------- what a command costs


def scripts() -> dict[str, lua.Script]:
    """Those of the queue, by name."""
    return {member.name: member for member in vars(lua).values() if isinstance(member, lua.Script)}


async def costs(redis: Redis) -> dict[str, dict[str, float]]:
    """By command, scripts by their names: calls in Redis' log, and microseconds that Redis was busy
    with each.

    What scripts call is part of them, and what this asks for is nobody's.
    """
    names = {script.function: name for name, script in scripts().items()}
    within = " ".join(script.body for script in scripts().values())
    spent: dict[str, list[int]] = {}
    for entry in await redis.slowlog_get(-1):
        command, _, rest = entry["command"].decode(errors="replace").partition(" ")
        function = rest.partition(" ")[0]
        if function in names or not (f"'{command}'" in within or command in OF_THE_BENCH):
            spent.setdefault(names.get(function, command), []).append(entry["duration"])
    return {
        name: {"calls": len(us), "us": round(statistics.mean(us), 1)}
        for name, us in sorted(spent.items())
    }


async def prices(number: int) -> dict[str, Any]:
    """What a job costs Redis, command by command: in a batch, and by itself to a worker that waits
    for it."""
    found: dict[str, Any] = {}
    with cluster(apis=0, workers=1, slots=SLOTS) as standing:
        broker = StreamsBroker(standing.redis.url)
        way = Queue(broker)
        async with Redis.from_url(standing.redis.url) as redis:
            await redis.config_set("slowlog-log-slower-than", 0)
            await redis.config_set("slowlog-max-len", 1_000_000)
            await way(jobs(256))  # warm: Redis knows the scripts
            for name, size in (("batch", 256), ("single", 1)):
                load = jobs(number)
                await redis.slowlog_reset()
                async with counted(redis) as total:
                    for start in range(0, number, size):
                        await way(load[start : start + size])
                found[name] = {
                    "redis_us": round(total["cpu_us"] / number),
                    "commands": await costs(redis),
                }
        await broker.close()
    return {"jobs": number} | found


def on_paper(
    prices: dict[str, Any], idle_us_per_s: float, job_cpu_s: float, workers: int
) -> Figures:
    """One Redis under so many workers of one core each that never wait: jobs per second and the
    share of its core."""
    per_s = workers / job_cpu_s
    busy_us = per_s * prices["batch"]["redis_us"] + workers * idle_us_per_s
    return {"jobs_per_s": round(per_s), "busy": round(busy_us / 1e6, 3)}


# ------------------------------------------------------------------------------------------ report


def table(report: dict[str, Any]) -> str:
    lines = [f"{report['machine']}; load average {report['load']}.", ""]
    lines += [
        "| one worker process, 4 KB payloads | queue alone | REST, bare socket | REST, httpx |"
    ]
    lines += ["|---|--:|--:|--:|"]
    ways = [report["paths"][name] for name in ("queue", "bare", "rest")]

    def add(title: str, part: str, name: str) -> None:
        lines.append(
            " | ".join([f"| {title}", *(f"{way[part].get(name, 0):g}" for way in ways)]) + " |"
        )

    for title, part in (("one at a time", "unloaded"), (f"{IN_FLIGHT} in flight", "in_flight")):
        for name in ("p10_ms", "p50_ms", "p99_ms"):
            add(f"added latency, {title}, {name[:3]}, ms", part, name)
    add(f"batch of {BATCH}: jobs/s", "batch", "jobs_per_s")
    for title, part in (("one at a time", "unloaded"), (f"batch of {BATCH}", "batch")):
        for name in ("asker", "api", "worker", "redis"):
            add(f"{title}: CPU us per job, {name}", part, f"{name}_us")
    idle = report["idle"]
    lines += [
        "",
        (
            f"An idle worker sends {idle['commands_per_s']} commands/s; {idle['worker_us_per_s']}"
            " us of CPU/s."
        ),
        "",
    ]
    lines += [
        f"| workers, {report['burn_ms']:g} ms jobs | jobs/s | worker CPU ms per job | Redis us per"
        " job |"
    ]
    lines += ["|--:|--:|--:|--:|"]
    for size, row in report["scaling"].items():
        lines.append(
            f"| {size} | {row['jobs_per_s']} | {row['worker_us'] / 1000:.1f} | {row['redis_us']} |"
        )
    lines += [
        "",
        "| workers on one Redis | commands/s idle | Redis CPU idle | Redis us per job |",
        "|--:|--:|--:|--:|",
    ]
    for size, row in report["crowds"].items():
        share = row["idle_redis_us_per_s"] / 1e4
        lines.append(
            f"| {size} | {row['idle_commands_per_s']} | {share:.1f} % | {row['redis_us_per_job']} |"
        )
    return "\n".join([*lines, "", *priced(report["prices"]), "", *papers(report)]) + "\n"


def priced(prices: dict[str, Any]) -> list[str]:
    """Per job, so that what is asked once for many shows its share."""
    lines = ["| Redis, us per job | 256 at a time | one at a time |", "|---|--:|--:|"]
    both = [prices[name]["commands"] for name in ("batch", "single")]
    for command in sorted({*both[0], *both[1]}):
        shares = [
            part[command]["calls"] * part[command]["us"] / prices["jobs"] if command in part else 0
            for part in both
        ]
        if max(shares) >= 1:
            lines.append(f"| `{command}` | {shares[0]:.1f} | {shares[1]:.1f} |")
    return [
        *lines,
        f"| all CPU of Redis | {prices['batch']['redis_us']} | {prices['single']['redis_us']} |",
    ]


def papers(report: dict[str, Any]) -> list[str]:
    most = max(map(int, report["crowds"]))
    idle_us_per_s = report["crowds"][str(most)]["idle_redis_us_per_s"] / most
    sizes = (10, 100, 1000)
    lines = [
        "| one Redis, on paper: share of its core | "
        + " | ".join(f"{n} workers" for n in sizes)
        + " |"
    ]
    lines += ["|---|" + "--:|" * len(sizes)]
    for job_cpu_s in (0.008, 0.045, 0.2, 1.0):
        cells = [on_paper(report["prices"], idle_us_per_s, job_cpu_s, size) for size in sizes]
        shown = " | ".join(f"{cell['busy']:.0%} ({cell['jobs_per_s']:g}/s)" for cell in cells)
        lines.append(f"| jobs of {job_cpu_s * 1000:g} ms | {shown} |")
    return lines


async def run(arguments: argparse.Namespace) -> dict[str, Any]:
    report: dict[str, Any] = {"machine": machine("AOF everysec"), "burn_ms": arguments.burn_ms}
    report["paths"] = await paths()
    report["prices"] = await prices(1024)
    report["idle"] = await idle(20)
    report["scaling"] = await scaling(arguments.burn_ms, 400)
    report["crowds"] = await crowds(arguments.crowds, 10)
    return report | {"load": round(os.getloadavg()[0], 1)}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--burn-ms", type=float, default=20, help="CPU time of a job where workers are counted"
    )
    parser.add_argument("--crowds", type=int, nargs="*", default=[1, 10, 100, 400])
    parser.add_argument("--json", type=Path, help="write the figures there, too")
    arguments = parser.parse_args()
    report = asyncio.run(run(arguments))
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=1))
    print(table(report))


if __name__ == "__main__":
    main()
