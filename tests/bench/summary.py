"""One table in at most ten minutes: what a submission costs beside its floor. `make bench` runs it.

Rounds alternate between ours and the floor. A part is repeated until the quartiles of its ratio lie
within `QUIET` of the median, or until its share of the time is over; the table says which. A part
that could not be measured says why, and the others are kept. CPU is user + system of everything
involved.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from tests.bench.compare import END_S, HERE, ITEMS, Contestant
from tests.bench.ocaml import machine

Figures = dict[str, float]
QUIET = 0.05
"""Share of the median within which the quartiles of a quiet ratio lie."""
MIN_ROUNDS = 8
SHOWN_S = 10.0
"""Seconds between reports of progress."""
SHARES = {
    "plumbing": 1.0,
    "rest": 1.0,
    "ocaml": 1.0,
    "first": 0.5,
    "rust": 3.0,
    "story": 2.0,
    "program": 0.5,
}
"""Shares of the time, starts included. What a part leaves is shared among those after it."""
FLOORS = {
    "plumbing": ("queue: all", "plain: all"),
    "ocaml": ("ocaml", "bare compiler"),
    "first": ("first answer", "second answer"),
    "rust": ("rust", "bare clippy-driver"),
    "story": ("story", "bare model"),
    "program": ("program", "bare process"),
}
"""Names of the figures of ours and of the floor, by part."""
TITLES = {
    "plumbing": "plumbing beside plain Streams, all processes",
    "rest": "128 OCaml completions over REST and Redis, all processes",
    "first": "ocaml, the first answer of a task beside the second",
    "story": "story, beside the bare model",
    "program": "program, a case in Python or C beside the bare process",
}
WAYS = {
    "queue": "one response",
    "stream": "`RewardClient`",
    "plain": "plain Streams, results one by one",
    "plain 32": "plain Streams, 32 results together",
}


def compared(part: str, figures: Figures) -> float:
    """Ours by the floor; where there is none, ours in microseconds."""
    if part not in FLOORS:
        return figures[part]
    ours, floor = FLOORS[part]
    return figures[ours] / figures[floor]


def measured(part: str, end_at: float) -> dict[str, Any]:
    """The row of a part, from the rounds that ended before `end_at`; only `problem` where none
    did."""
    rounds: list[Figures] = []
    loads = [os.getloadavg()[0]]
    problem = "did not start in its time"
    quiet = False
    shown_at = time.monotonic()
    print(f"{part}: starting, {end_at - shown_at:.0f} s left", file=sys.stderr)
    try:
        contestant = Contestant(HERE, part, end_at - time.monotonic())
        problem = "no round ended in its time"
        try:
            while not quiet and time.monotonic() < end_at:
                rounds.append(contestant.measure(ITEMS[part], end_at - time.monotonic()))
                loads.append(os.getloadavg()[0])
                low, middle, high = statistics.quantiles(
                    [compared(part, one) for one in rounds] * 2, n=4
                )
                quiet = (
                    len(rounds) >= MIN_ROUNDS and max(high - middle, middle - low) <= QUIET * middle
                )
                if (now := time.monotonic()) - shown_at > SHOWN_S:
                    shown_at = now
                    print(
                        f"{part}: {len(rounds)} rounds, {middle:.3g}, {end_at - now:.0f} s left",
                        file=sys.stderr,
                    )
        finally:
            contestant.close()
    except TimeoutError:
        pass
    except OSError as error:
        problem = str(error)
    load = [round(min(loads), 1), round(max(loads), 1)]
    if not rounds:
        return {"problem": problem, "load": load}
    us = {}
    for name in rounds[0]:
        us[name] = round(statistics.median(one[name] for one in rounds), 1)
    ratio = {"median": round(middle, 3), "quartiles": [round(low, 3), round(high, 3)]}
    return {
        "cpu_us": us,
        "ratio": ratio,
        "rounds": len(rounds),
        "quiet": quiet,
        "load": load,
        "all": rounds,
    }


def table(report: dict[str, Any]) -> str:
    lines = [
        f"{report['machine']}, {report['at']}, {report['minutes']:.1f} minutes. Medians of rounds.",
        "",
    ]
    lines += [
        "| part | CPU ms per submission | floor | ours / floor (quartiles) | rounds | quiet |"
        " load |"
    ]
    lines += ["|---|--:|--:|--:|--:|---|--:|"]
    for part, row in report["parts"].items():
        title = TITLES.get(part, part)
        load = f"{row['load'][0]} to {row['load'][1]}"
        if "problem" in row:
            lines.append(f"| {title} | not measured: {row['problem']} | | | 0 | | {load} |")
            continue
        low, high = row["ratio"]["quartiles"]
        tail = f"{row['rounds']} | {'yes' if row['quiet'] else 'no'} | {load} |"
        if part in FLOORS:
            ours, floor = (row["cpu_us"][name] / 1e3 for name in FLOORS[part])
            ratio = f"{row['ratio']['median']:.2f} ({low:.2f} to {high:.2f})"
            lines.append(f"| {title} | {ours:.3g} | {floor:.3g} | {ratio} | {tail}")
        else:
            us = row["ratio"]["median"]
            lines.append(
                f"| {title} | {us / 1e3:.2f} ({low / 1e3:.2f} to {high / 1e3:.2f}) | | | {tail}"
            )
    us = report["parts"].get("plumbing", {}).get("cpu_us", {})
    if us:
        lines += [
            "",
            "| plumbing, CPU us per job | API | worker | Redis | client | all |",
            "|---|--:|--:|--:|--:|--:|",
        ]
        for name, title in WAYS.items():
            cells = (
                us.get(f"{name}: {kind}") for kind in ("api", "worker", "redis", "client", "all")
            )
            lines.append(
                f"| {title} | "
                + " | ".join("" if cell is None else f"{cell:.0f}" for cell in cells)
                + " |"
            )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parts", default=",".join(SHARES), help="with commas between")
    parser.add_argument("--minutes", type=float, default=9.0, help="for all parts together")
    parser.add_argument(
        "--json", type=Path, help="write the figures of all rounds there, after each part"
    )
    arguments = parser.parse_args()
    parts = arguments.parts.split(",")
    began = time.monotonic()
    at = time.strftime("%Y-%m-%d")
    end_at = began + 60 * arguments.minutes
    report: dict[str, Any] = {"machine": machine(sys.version.split()[0]), "at": at, "parts": {}}
    for n, part in enumerate(parts):
        if part == "rust" and not shutil.which("cargo"):
            load = [round(os.getloadavg()[0], 1)] * 2
            report["parts"][part] = {
                "problem": "needs cargo, which is not on PATH (https://rustup.rs)",
                "load": load,
            }
            continue
        share = SHARES[part] / sum(SHARES[one] for one in parts[n:])
        left_s = end_at - time.monotonic() - END_S * (len(parts) - n)
        report["parts"][part] = measured(part, time.monotonic() + share * left_s)
        report["minutes"] = (time.monotonic() - began) / 60
        if arguments.json:
            arguments.json.parent.mkdir(parents=True, exist_ok=True)
            arguments.json.write_text(json.dumps(report, indent=1))
    print(table(report))


if __name__ == "__main__":
    main()
