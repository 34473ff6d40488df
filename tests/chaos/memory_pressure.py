"""The run under memory pressure: workers in small control groups, whose boxes a greedy neighbour
starves, beside the other disturbances.

`python -m tests.chaos.memory_pressure --submissions 300`. Ends with status 1 where the invariant of
`history_checker` broke: a starved box has no verdict.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from tests.chaos.cluster import Cluster
from tests.chaos.fault_injection import Chaos
from tests.chaos.history_checker import Asker, History, make_completions
from tests.chaos.run import report, rows
from tests.memory_group import LimitedGroup, NoControlGroup, open_limited_group

WORKER_MB = 640
"""Limit of a worker's control group: the worker, and two or three boxes."""
GREED = """
import sys, time
from pathlib import Path
limit, usage = (int(Path(file).read_text()) for file in sys.argv[1:3])
block = bytearray(b'1') * max(0, limit - usage - (40 << 20))
time.sleep(float(sys.argv[3]))
"""


class StarvedCluster(Cluster):
    """A cluster whose workers are in control groups of their own."""

    def __init__(self, folder: Path, groups: list[LimitedGroup]) -> None:
        self.groups = groups
        super().__init__(folder, workers=len(groups))

    def _worker(self, name: str, redis: str | None = None) -> list[str]:
        group = self.groups[int(name.removeprefix("worker-"))]
        return group.wrap(super()._worker(name, redis))


async def take_memory(cluster: Cluster, rng: random.Random) -> None:
    """A neighbour in a worker's control group takes all but 40 MB of what is free."""
    assert isinstance(cluster, StarvedCluster)
    group = rng.choice(cluster.groups)
    names = ("memory.limit_in_bytes", "memory.usage_in_bytes")
    if group.group.version == 2:
        names = ("memory.max", "memory.current")
    files = [str(group.folder / name) for name in names]
    seconds = f"{rng.uniform(0.5, 2)}"
    process = await asyncio.to_thread(group.start, [sys.executable, "-c", GREED, *files, seconds])
    _, err = await asyncio.to_thread(process.communicate)
    assert not err, err  # it may be killed itself, when no box is left to kill


async def press(cluster: Cluster, rng: random.Random, chaos: Chaos) -> None:
    """Take memory again and again, beside the other disturbances."""
    while True:
        await asyncio.sleep(rng.uniform(0.1, 0.6))
        await take_memory(cluster, rng)
        chaos.done["a worker's memory taken for 0.5 to 2 s"] += 1


async def disturb(cluster: StarvedCluster, submissions: int, seed: int) -> tuple[History, Chaos]:
    rng = random.Random(seed)
    history = History()
    chaos = Chaos(cluster, rng)
    asker = Asker(history, cluster.urls, at_once=8, patience_s=600, deadline_s=60, seed=seed)
    completions = []
    for _ in range(submissions):
        completions += make_completions(1, rng.choice((20, 60, 100, 140)), "hold")
    async with cluster.restarting(), chaos.injecting():
        pressing = asyncio.create_task(press(cluster, rng, chaos))
        await asker.ask(completions, batch_size=8)
        pressing.cancel()
        await asyncio.gather(pressing, return_exceptions=True)
    async with cluster.restarting():
        await asyncio.to_thread(cluster.wait_until_complete)
        await asker.ask_again()
    return history, chaos


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--submissions", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=3)
    arguments = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="chaos-")))
        try:
            groups = [
                stack.enter_context(open_limited_group(WORKER_MB)) for _ in range(arguments.workers)
            ]
        except NoControlGroup as reason:
            print(f"no memory pressure: {reason}", file=sys.stderr)
            return 0
        cluster = StarvedCluster(folder, groups)
        stack.enter_context(cluster.running())
        started = time.monotonic()
        history, chaos = asyncio.run(disturb(cluster, arguments.submissions, arguments.seed))
        table = list(rows(cluster, history, chaos, time.monotonic() - started))
        logs = [log.read_text() for log in folder.glob("worker-*.log")]
        kills = sum(log.count("killed a process of the box") for log in logs)
        table.append(("boxes that were starved, each a fault that was tried again", kills))
        return report(cluster, history, table)


if __name__ == "__main__":
    sys.exit(main())
