"""The long run: thousands of submissions under continuous chaos, and a table of what came of them.

`python -m tests.chaos.run --submissions 10000 --seed 1`. Ends with status 1 where the invariant of `ledger` broke.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from tests.chaos.disturbances import Chaos
from tests.chaos.island import Island, NoIsland
from tests.chaos.ledger import Asker, Ledger, poison, works
from tests.chaos.town import Town


def load(submissions: int, burn_ms: float, rng: random.Random) -> list[str]:
    """Every tenth is asked for twice, by two askers; one in five hundred is poison."""
    poisons = [poison() for _ in range(submissions // 500)]
    once = works(submissions - len(poisons) - submissions // 10, burn_ms, "burn")
    completions = poisons + once + rng.sample(once, submissions // 10)
    rng.shuffle(completions)
    return completions


async def disturbed(town: Town, arguments: argparse.Namespace) -> tuple[Ledger, Chaos, float]:
    rng = random.Random(arguments.seed)
    ledger, chaos = Ledger(), Chaos(town, rng)
    asker = Asker(ledger, town.urls, at_once=arguments.at_once, leaving=0.15, patience_s=600, seed=arguments.seed)
    started = time.monotonic()
    async with town.kept(), chaos.raging():
        telling = asyncio.create_task(tell(ledger, arguments.submissions))
        await asker.ask(load(arguments.submissions, arguments.burn_ms, rng), batch_size=16)
        telling.cancel()
        wall_s = time.monotonic() - started
    async with town.kept():
        await asyncio.to_thread(town.wait_until_whole)
        await asker.ask_again()
    return ledger, chaos, wall_s


async def tell(ledger: Ledger, submissions: int) -> None:
    while True:
        await asyncio.sleep(15)
        print(f"{len(ledger.settled)} of {submissions} settled", file=sys.stderr, flush=True)


def rows(town: Town, ledger: Ledger, chaos: Chaos, wall_s: float) -> Iterator[tuple[str, object]]:
    starts = town.starts()
    poisons = [one for one in ledger.completions.values() if one.startswith("poison")]
    yield "submissions", len(ledger.completions)
    yield "poison among them (every worker that starts it dies)", len(poisons)
    yield "**lost**: without a settling result in the end", len(ledger.lost())
    yield "**answered twice or wrong, in any HTTP answer**", len(ledger.breaches)
    yield "seconds", f"{wall_s:.0f}"
    waits = sorted(ledger.seconds.values())
    if len(waits) > 1:
        yield (
            "seconds from submission to result, p50 / p99 / max",
            " / ".join(f"{wait:.1f}" for wait in (statistics.median(waits), waits[int(len(waits) * 0.99)], waits[-1])),
        )
    for name, number in chaos.done.items():
        yield name, number
    yield "worker and API processes that ended and were started again", sum(one.deaths for one in town.residents)
    for name, number in sorted(ledger.counts.items()):
        yield name, number
    yield "different texts graded", len(starts)
    yield "of these started more than once", sum(count > 1 for count in starts.values())
    yield "most starts of one text, poison apart", max(count for text, count in starts.items() if text not in poisons)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--submissions", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1, help="of the load's order and the disturbances")
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--burn-ms", type=float, default=20, help="CPU time of one grading")
    parser.add_argument("--at-once", type=int, default=16, help="requests in flight, 16 submissions each")
    arguments = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="chaos-")))
        try:
            island = stack.enter_context(Island().standing())
        except NoIsland as reason:
            print(f"no partitions: {reason}", file=sys.stderr)
            island = None
        town = stack.enter_context(Town(folder, workers=arguments.workers, island=island).standing())
        ledger, chaos, wall_s = asyncio.run(disturbed(town, arguments))
        print("| | |\n|---|--:|")
        for name, value in rows(town, ledger, chaos, wall_s):
            print(f"| {name} | {value} |")
        for defect in town.defects()[:20]:
            print(defect, file=sys.stderr)
    for breach in ledger.breaches[:20]:
        print(breach, file=sys.stderr)
    return 1 if ledger.breaches or ledger.lost() else 0


if __name__ == "__main__":
    sys.exit(main())
