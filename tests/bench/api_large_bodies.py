"""Memory and latency of one API process that gets several large requests at a time, with real Redis
and no grading.

A worker is registered and none takes a job, so that every accepted request waits until its
deadline. One JSON line; run it in two checkouts in turn (`python -m tests.bench.api_large_bodies`)
and compare.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import httpx

from services.broker.from_url import open_broker
from tests.chaos.cluster import Cluster
from tests.chaos.worker import INFO

LOADS = {"8 of 59 MB": (8, 4000, 14_750, False), "40 identical of 4096": (40, 4096, 600, True)}
"""Requests at a time, submissions in each, characters of each completion, and whether the requests
are identical."""


def request(number: int, n_submissions: int, chars: int, identical: bool) -> bytes:
    word = "same" if identical else f"request {number}"
    return json.dumps(
        {
            "deadline_s": 15,
            "submissions": [
                {
                    "id": f"s{n}",
                    "completion": f"{word} {n} ".ljust(chars, "x"),
                    "task": {"tests": "let () = assert true"},
                }
                for n in range(n_submissions)
            ],
        }
    ).encode()


def peak_mb(pid: int) -> int:
    """Highest resident memory of the process so far, in MiB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) // 1024


async def measured(url: str, pid: int, load: tuple[int, int, int, bool]) -> dict[str, object]:
    n_requests, *shape = load
    bodies = [request(number, *shape) for number in range(n_requests)]
    statuses = Counter[int]()
    answered = threading.Event()
    times = [0.0]

    def watch() -> (
        None
    ):  # in a process of its own would be better still: this one shares its time with the senders
        with httpx.Client(timeout=60) as http:
            while not answered.wait(0.05):
                began = time.monotonic()
                http.get(f"{url}/healthz")
                times.append(time.monotonic() - began)

    watching = threading.Thread(target=watch)
    watching.start()
    async with httpx.AsyncClient(
        timeout=120, limits=httpx.Limits(max_connections=n_requests + 1)
    ) as http:

        async def post(body: bytes) -> None:
            headers = {"content-type": "application/json"}
            statuses[
                (
                    await http.post(f"{url}/v1/grade/ocaml", content=body, headers=headers)
                ).status_code
            ] += 1

        await asyncio.gather(*map(post, bodies))
    answered.set()
    watching.join()
    return {
        "peak_mb": peak_mb(pid),
        "slowest_healthz_s": round(max(times), 2),
        "statuses": statuses,
    }


async def answers(url: str) -> bool:
    async with httpx.AsyncClient() as http:
        try:
            return (await http.get(f"{url}/healthz")).status_code == 200
        except httpx.TransportError:
            return False


async def run(cluster: Cluster) -> dict[str, object]:
    broker = open_broker(cluster.redis.url)
    await broker.heartbeat("idle", INFO, 600)
    found: dict[str, object] = {}
    for name, load in LOADS.items():
        for resident in cluster.apis:
            resident.end()
            resident.start()
        while not await answers(cluster.urls[0]):  # noqa: ASYNC110  (another process starts)
            await asyncio.sleep(0.05)
        found[name] = await measured(cluster.urls[0], cluster.apis[0].pid, load)
    await broker.close()
    return found


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        cluster = Cluster(Path(folder), apis=1, workers=0)
        try:
            cluster.redis.start()
            print(json.dumps(asyncio.run(run(cluster))))
        finally:
            for resident in cluster.apis:
                resident.end()
            cluster.redis.stop()


if __name__ == "__main__":
    main()
