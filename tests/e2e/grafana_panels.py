"""Asks Prometheus every query of Grafana's dashboards, as they are provisioned, and wants data for
each.

Usage: grafana_panels.py CONTAINER BOARD..., the container being Prometheus'. Exit status 1 with
what failed or had no data, but for panels that have none where nothing is wrong. Standard library
and podman only. Draws nothing.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

BOARDS = Path(__file__).parents[2] / "deploy" / "grafana" / "dashboards"
QUIET = {
    "Faults by kind": "nothing was faulted",
    "Flags": "no completion was flagged",
    "Handing over weights": "the run has no generation server",
    "Trainer against generation server": "the run has no generation server",
}
"""Panels that may be empty, and when."""


def queries(board: str) -> list[tuple[str, str]]:
    """(panel, query with everything chosen) in the order of the dashboard."""
    panels = json.loads((BOARDS / f"{board}.json").read_text())["panels"]
    found = [
        (panel["title"], target["expr"]) for panel in panels for target in panel.get("targets", ())
    ]
    return [(title, re.sub(r"\$(grader|run)\b", ".*", expression)) for title, expression in found]


def series(container: str, expression: str) -> int:
    """How many it finds. Raises ValueError with what Prometheus says if it takes the query for
    none."""
    ask = [
        "podman",
        "exec",
        container,
        "promtool",
        "query",
        "instant",
        "http://127.0.0.1:9090",
        expression,
    ]
    done = subprocess.run(ask, capture_output=True, text=True, timeout=60)
    if done.returncode != 0:
        raise ValueError(f"{expression}: {done.stderr.strip()}")
    return done.stdout.count(" => ")


def empty(container: str, board: str) -> list[str]:
    """Titles of panels with a query that found nothing, those that may be empty included; prints
    what was found."""
    found = [(title, series(container, expression)) for title, expression in queries(board)]
    without = sorted({title for title, number in found if number == 0})
    print(
        f"  {board}: {sum(number > 0 for _, number in found)} of {len(found)} queries have data,"
        f" {len(without)} none"
    )
    for title in without:
        print(f"    empty: {title}" + (f" ({QUIET[title]})" if title in QUIET else ""))
    return without


def main(container: str, boards: list[str]) -> None:
    if missed := [
        title for board in boards for title in empty(container, board) if title not in QUIET
    ]:
        sys.exit(f"without data: {', '.join(missed)}")


if __name__ == "__main__":
    try:
        main(sys.argv[1], sys.argv[2:])
    except ValueError as error:
        sys.exit(str(error))
