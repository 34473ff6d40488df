"""What 20 slow or broken clients cost a good one: latency and the server's CPU per request, without
them and with them.

Run it with `python -m tests.bench.clients`. The grader is trivial: this is the API alone.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import httpx

from tests.fake_grader import submission
from tests.misbehaving_clients import KINDS, ROUTE, a_crowd
from tests.ports import free_port


@contextmanager
def service() -> Iterator[tuple[str, int]]:
    """A service in a process of its own: its URL and process id."""
    port = free_port()
    command = [sys.executable, "-m", "tests.fake_grader", str(port), "hold"]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    try:
        while not answers(url):
            time.sleep(0.05)
        yield url, process.pid
    finally:
        process.kill()
        process.wait()


def answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/healthz").status_code == 200
    except httpx.RequestError:
        return False


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def wait_until_idle(pid: int) -> None:
    before = cpu_s(pid)
    time.sleep(1)
    while cpu_s(pid) - before > 0.1:
        before = cpu_s(pid)
        time.sleep(1)


def measure(url: str, pid: int, n_requests: int) -> tuple[float, float]:
    """Median latency and CPU per request, in milliseconds."""
    latencies = []
    cpu_before = cpu_s(pid)
    with httpx.Client(timeout=60) as client:
        for index in range(n_requests):
            sent = {
                "submissions": [
                    submission("good", f"reward {(index % 97) / 97}", prompt=str(index))
                ]
            }
            began_at = time.perf_counter()
            client.post(f"{url}{ROUTE}", json=sent).raise_for_status()
            latencies.append(time.perf_counter() - began_at)
    return 1000 * statistics.median(latencies), 1000 * (cpu_s(pid) - cpu_before) / n_requests


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--requests", type=int, default=300)
    arguments.add_argument("--rounds", type=int, default=3)
    asked = arguments.parse_args()
    found: dict[str, list[tuple[float, float]]] = {"alone": [], "among 20 bad clients": []}
    for _ in range(asked.rounds):
        for name, kinds in (("alone", None), ("among 20 bad clients", KINDS)):
            with service() as (url, pid):
                measure(url, pid, 20)
                with a_crowd(url, kinds) if kinds else nullcontext():
                    wait_until_idle(
                        pid
                    )  # what the crowd asked for is graded: from here on it only hangs
                    found[name].append(measure(url, pid, asked.requests))
    medians = []
    for name, rows in found.items():
        latency_ms, cpu_ms = map(statistics.median, zip(*rows, strict=True))
        medians.append((latency_ms, cpu_ms))
        print(f"{name:22} {latency_ms:7.2f} ms a request {cpu_ms:7.2f} ms CPU of the server")
    alone, among = medians
    print(f"{'ratio':22} {among[0] / alone[0]:7.2f} {'':13} {among[1] / alone[1]:7.2f}")


if __name__ == "__main__":
    main()
