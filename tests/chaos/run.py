"""The long run: thousands of submissions under continuous chaos, and a table of what came of them.

`python -m tests.chaos.run --submissions 10000 --seed 1`. Ends with status 1 where the invariant of
`ledger` broke.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path

from tests.chaos.cluster import Cluster
from tests.chaos.fault_injection import LONG_FREEZES, Chaos, upgrade
from tests.chaos.history_checker import Asker, History, make_completions, poison
from tests.chaos.network_namespace import NetworkNamespace, NoNetworkNamespace
from tests.chaos.previous_release import ROOT, NoHistory, export_previous_release

SKEWS_S = (180.0, -86_400.0, 0.0, -180.0, 86_400.0)
"""By how much the clocks of the processes are ahead, in turns."""


def load(submissions: int, burn_ms: float, rng: random.Random) -> list[str]:
    """Every tenth is asked for twice, by two askers; one in five hundred is poison."""
    poisons = [poison() for _ in range(submissions // 500)]
    once = make_completions(submissions - len(poisons) - submissions // 10, burn_ms, "burn")
    completions = poisons + once + rng.sample(once, submissions // 10)
    rng.shuffle(completions)
    return completions


async def disturbed(
    cluster: Cluster, arguments: argparse.Namespace
) -> tuple[History, Chaos, float]:
    rng = random.Random(arguments.seed)
    history = History()
    chaos = Chaos(cluster, rng, more={} if cluster.redis_cluster else LONG_FREEZES)
    more = {"leaving": 0.15, "patience_s": 600, "deadline_s": 60, "seed": arguments.seed}
    asker = Asker(history, cluster.urls, at_once=arguments.at_once, **more)
    started = time.monotonic()
    completions = load(arguments.submissions, arguments.burn_ms, rng)
    async with cluster.restarting():
        telling = asyncio.create_task(tell(history, arguments.submissions))
        if cluster.apis[0].code != ROOT:
            n_first = arguments.submissions // 4
            first = asyncio.create_task(asker.ask(completions[:n_first], batch_size=16))
            completions = completions[n_first:]
            order = cluster.processes
            rng.shuffle(order)
            await upgrade(cluster, order)
            await first
            chaos.done["all processes upgraded from the previous release, one by one"] += 1
        async with chaos.injecting():
            await asker.ask(completions, batch_size=16)
        telling.cancel()
        wall_s = time.monotonic() - started
    async with cluster.restarting():
        await asyncio.to_thread(cluster.wait_until_complete)
        await asker.ask_again()
    return history, chaos, wall_s


async def tell(history: History, submissions: int) -> None:
    while True:
        await asyncio.sleep(15)
        print(f"{len(history.settled)} of {submissions} settled", file=sys.stderr, flush=True)


def rows(
    cluster: Cluster, history: History, chaos: Chaos, wall_s: float
) -> Iterator[tuple[str, object]]:
    starts = cluster.starts()
    poisons = [one for one in history.completions.values() if one.startswith("poison")]
    yield "submissions", len(history.completions)
    yield "poison among them (every worker that starts it dies)", len(poisons)
    yield "**lost**: without a settling result in the end", len(history.lost())
    yield "**answered twice or wrong, in any HTTP answer**", len(history.breaches)
    yield "seconds", f"{wall_s:.0f}"
    waits = sorted(history.seconds.values())
    if len(waits) > 1:
        yield (
            "seconds from submission to result, p50 / p99 / max",
            " / ".join(
                f"{wait:.1f}"
                for wait in (statistics.median(waits), waits[int(len(waits) * 0.99)], waits[-1])
            ),
        )
    for name, number in chaos.done.items():
        yield name, number
    yield (
        "worker and API processes that ended and were started again",
        sum(one.deaths for one in cluster.processes),
    )
    for name, number in sorted(history.counts.items()):
        yield name, number
    yield "different texts graded", len(starts)
    yield "of these started more than once", sum(count > 1 for count in starts.values())
    yield (
        "most starts of one text, poison apart",
        max(count for text, count in starts.items() if text not in poisons),
    )


def report(cluster: Cluster, history: History, table: Iterable[tuple[str, object]]) -> int:
    """Print the table, and on standard error what went wrong; return the exit status."""
    print("| | |\n|---|--:|")
    for name, value in table:
        print(f"| {name} | {value} |")
    defects = cluster.defects()
    for line in [*defects[:20], *history.breaches[:20], *history.faults_of_healthy[:20]]:
        print(line, file=sys.stderr)
    return 1 if history.breaches or history.lost() else 0


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--submissions", type=int, default=10_000)
    parser.add_argument(
        "--seed", type=int, default=1, help="of the load's order and the disturbances"
    )
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--burn-ms", type=float, default=20, help="CPU time of one grading")
    parser.add_argument(
        "--at-once", type=int, default=16, help="requests in flight, 16 submissions each"
    )
    parser.add_argument(
        "--partitions",
        type=int,
        default=0,
        help="of the queue in a Redis Cluster of six processes, in place of one Redis",
    )
    arguments = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="chaos-")))
        if arguments.partitions:
            cluster = Cluster(folder, workers=arguments.workers, partitions=arguments.partitions)
            return run(arguments, stack.enter_context(cluster.running()))
        try:
            namespace = stack.enter_context(NetworkNamespace().running())
        except NoNetworkNamespace as reason:
            print(f"no partitions: {reason}", file=sys.stderr)
            namespace = None
        try:
            code = export_previous_release(folder / "previous")
        except NoHistory as reason:
            print(f"no upgrade: {reason}", file=sys.stderr)
            code = ROOT
        made = Cluster(
            folder,
            workers=arguments.workers,
            namespace=namespace,
            skews_s=SKEWS_S,
            proxied=True,
            code=code,
        )
        return run(arguments, stack.enter_context(made.running()))


def run(arguments: argparse.Namespace, cluster: Cluster) -> int:
    """Run the load under chaos, and return the exit status."""
    history, chaos, wall_s = asyncio.run(disturbed(cluster, arguments))
    return report(cluster, history, rows(cluster, history, chaos, wall_s))


if __name__ == "__main__":
    sys.exit(main())
