"""One table in at most ten minutes: what a submission costs beside its floor. `make bench` runs it.

Rounds alternate between ours and the floor. A part is repeated until the quartiles of its ratio lie within `QUIET` of
the median, or until its time is over; the table says which. CPU is user + system of everything involved.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.bench.compare import ITEMS
from tests.bench.ocaml import machine
from tests.bench.probe import PARTS, Figures

QUIET = 0.05
"""Share of the median within which the quartiles of a quiet ratio lie."""
MIN_ROUNDS = 8
PART_S = {"plumbing": 45.0, "ocaml": 75.0, "rust": 150.0, "story": 90.0}
"""Longest time of each part, in seconds, besides its start."""
FLOORS = {"ocaml": "bare compiler", "rust": "bare clippy-driver", "story": "bare models"}


def of_floor(part: str, figures: Figures) -> float:
    """Ours by the floor; of the plumbing, which has none here, the CPU of all processes in microseconds."""
    if part in FLOORS:
        return figures[part] / figures[FLOORS[part]]
    return sum(us for name, us in figures.items() if name.startswith("queue"))


def measured(part: str, measure: Callable[[int], Figures]) -> dict[str, Any]:
    rounds: list[Figures] = []
    loads = [os.getloadavg()[0]]
    end_at = time.monotonic() + PART_S[part]
    quiet = False
    while not quiet and (time.monotonic() < end_at or len(rounds) < 2):
        rounds.append(measure(ITEMS[part]))
        loads.append(os.getloadavg()[0])
        low, middle, high = statistics.quantiles([of_floor(part, one) for one in rounds] * 2, n=4)
        quiet = len(rounds) >= MIN_ROUNDS and max(high - middle, middle - low) <= QUIET * middle
    us = {name: round(statistics.median(one[name] for one in rounds), 1) for name in rounds[0]}
    ratio = {"median": round(middle, 3), "quartiles": [round(low, 3), round(high, 3)]}
    load = [round(min(loads), 1), round(max(loads), 1)]
    return {"cpu_us": us, "ratio": ratio, "rounds": len(rounds), "quiet": quiet, "load": load, "all": rounds}


def table(report: dict[str, Any]) -> str:
    lines = [f"{report['machine']}, {report['at']}. Medians of rounds; quiet: quartiles within {QUIET:.0%}.", ""]
    lines += ["| part | CPU ms per submission | floor | ours / floor (quartiles) | rounds | quiet | load |"]
    lines += ["|---|--:|--:|--:|--:|---|--:|"]
    for part, found in report["parts"].items():
        low, high = found["ratio"]["quartiles"]
        tail = f"{found['rounds']} | {'yes' if found['quiet'] else 'no'} | {found['load'][0]} to {found['load'][1]} |"
        if part in FLOORS:
            ours, floor = (found["cpu_us"][name] / 1e3 for name in (part, FLOORS[part]))
            ratio = f"{found['ratio']['median']:.2f} ({low:.2f} to {high:.2f})"
            lines.append(f"| {part} | {ours:.2f} | {floor:.2f} | {ratio} | {tail}")
        else:
            all_ms = found["ratio"]["median"] / 1e3
            lines.append(f"| {part}, all processes | {all_ms:.3f} ({low / 1e3:.3f} to {high / 1e3:.3f}) | | | {tail}")
    lines += ["", "| plumbing, CPU us per job | API | worker | Redis | client |", "|---|--:|--:|--:|--:|"]
    us = report["parts"].get("plumbing", {"cpu_us": {}})["cpu_us"]
    for name, title in (("queue", "one response"), ("stream", "`RewardClient`")):
        cells = (us.get(f"{name}: {kind}", 0) for kind in ("api", "worker", "redis", "client"))
        lines.append(f"| {title} | " + " | ".join(f"{cell:.0f}" for cell in cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default=",".join(PARTS), help="with commas between")
    parser.add_argument("--json", type=Path, help="write the figures of all rounds there")
    arguments = parser.parse_args()
    report: dict[str, Any] = {"machine": machine(sys.version.split()[0]), "at": time.strftime("%Y-%m-%d"), "parts": {}}
    for part in arguments.parts.split(","):
        if part == "rust" and not shutil.which("cargo"):
            print("Rust is left out: it needs cargo, which is not on PATH (https://rustup.rs)", file=sys.stderr)
            continue
        with PARTS[part]() as measure:
            report["parts"][part] = measured(part, measure)
        if arguments.json:
            arguments.json.parent.mkdir(parents=True, exist_ok=True)
            arguments.json.write_text(json.dumps(report, indent=1))
        print(f"{part} done", file=sys.stderr, flush=True)
    print(table(report))


if __name__ == "__main__":
    main()
