"""CPU of two checkouts in one run: `python -m tests.bench.compare OLD NEW`. `make bench-compare`
runs it.

Both checkouts stand at the same time and take turns; the order changes from turn to turn, so that a
busy machine hits both alike. The ratio of a figure is that of its sums over all turns; the
quartiles are those of single turns.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import signal
import statistics
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

HERE = Path(__file__).parents[2]
ITEMS = {
    "plumbing": 512,
    "rest": 128,
    "ocaml": 40,
    "first": 20,
    "rust": 20,
    "story": 16,
    "program": 20,
}
"""Items of one turn, by part of the benchmark."""
END_S = 15.0
"""Seconds in which a probe ends; then it is killed."""


class Contestant:
    """A probe of this checkout that runs the code of another. Raises OSError when it ends or takes
    too long."""

    def __init__(self, checkout: Path, part: str, timeout_s: float | None = None) -> None:
        """Returns when the probe is ready, and has the ports that it found free."""
        self.name = str(checkout)
        self._process = subprocess.Popen(
            [sys.executable, HERE / "tests/bench/probe.py", part],
            cwd=checkout,
            env={**os.environ, "PYTHONPATH": str(checkout)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            # so that a probe that does not end can be killed with all that it started
            start_new_session=True,
        )
        try:
            self._read(timeout_s)
        except BaseException:  # Ctrl-C too: the probe has processes of its own
            self.close()
            raise

    def _read(self, timeout_s: float | None) -> dict[str, float]:
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], timeout_s and max(timeout_s, 0))[0]:
            self._process.send_signal(signal.SIGINT)  # it stops what it started
            raise TimeoutError("out of time")
        line = self._process.stdout.readline()
        if not line:
            raise ChildProcessError(
                f"{self.name}: the probe ended with status {self._process.wait()}"
            )
        found: dict[str, float] = json.loads(line)
        return found

    def measure(self, number: int, timeout_s: float | None = None) -> dict[str, float]:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{number}\n")
        self._process.stdin.flush()
        return self._read(timeout_s)

    def close(self) -> None:
        assert self._process.stdin is not None
        with suppress(OSError):  # it has ended
            self._process.stdin.close()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


def compared(part: str, checkouts: list[Path], turns: int, number: int) -> dict[str, Any]:
    """Figures of both checkouts and their ratio, new by old, by name."""
    contestants: list[Contestant] = []
    try:
        contestants.extend(Contestant(checkout, part) for checkout in checkouts)
        measured: list[list[dict[str, float]]] = [[], []]
        for turn in range(-1, turns):
            for which in (0, 1) if turn % 2 else (1, 0):
                figures = contestants[which].measure(number)
                if turn >= 0:  # the first one warms up
                    measured[which].append(figures)
    finally:
        for one in contestants:
            one.close()
    found = {}
    for name in measured[0][0]:
        old = [figures[name] for figures in measured[0]]
        new = [figures[name] for figures in measured[1]]
        low, _, high = statistics.quantiles([b / a for a, b in zip(old, new, strict=True)], n=4)
        found[name] = {
            "old_us": round(statistics.mean(old), 1),
            "new_us": round(statistics.mean(new), 1),
            "ratio": round(sum(new) / sum(old), 3),
            "quartiles": [round(low, 3), round(high, 3)],
        }
    return found


def table(report: dict[str, Any]) -> str:
    lines = [f"Load average {report['load']}, {report['turns']} turns.", ""]
    lines += [
        "| CPU us per item | old | new | new / old | quartiles of turns |",
        "|---|--:|--:|--:|--:|",
    ]
    for name, row in report["figures"].items():
        low, high = row["quartiles"]
        lines.append(
            f"| {name} | {row['old_us']:g} | {row['new_us']:g} | {row['ratio']:.2f} | {low:.2f} to"
            f" {high:.2f} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("old", type=Path, help="checkout")
    parser.add_argument(
        "new", type=Path, nargs="?", default=HERE, help="checkout, by default this one"
    )
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument(
        "--parts", default="plumbing,rest,ocaml", help="some of " + ", ".join(ITEMS)
    )
    parser.add_argument("--json", type=Path, help="write the figures there, too")
    arguments = parser.parse_args()
    load = [os.getloadavg()[0]]
    figures = {}
    for part in arguments.parts.split(","):
        checkouts = [arguments.old.resolve(), arguments.new.resolve()]
        figures |= compared(part, checkouts, arguments.turns, ITEMS[part])
        load.append(os.getloadavg()[0])
    report = {
        "load": " to ".join(f"{one:.1f}" for one in (min(load), max(load))),
        "turns": arguments.turns,
        "at": time.strftime("%Y-%m-%d"),
        "figures": figures,
    }
    print(table(report))
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
