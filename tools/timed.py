"""How long the suites take here: `timed.py NAME -- COMMAND...` runs one and notes its time,
`timed.py --write` puts the notes into the table of docs/testing.md, the one place for durations."""

from __future__ import annotations

import json
import re
import resource
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
NOTES = ROOT / "build" / "durations.json"
PAGE = ROOT / "docs" / "testing.md"
ROW = re.compile(r"^\| `make (?P<name>[a-z-]+)` \| (?P<runs>.*) \| \S+ \| \S+ \|$", re.MULTILINE)
"""A row of the table: command, what it runs, minutes, minutes of CPU."""


def run_timed(name: str, command: Sequence[str], notes: Path) -> int:
    """Run a command; note seconds and CPU seconds under the name if it succeeds. Returns its exit
    status."""
    start = time.monotonic()
    status = subprocess.run(command, check=False).returncode
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    if status == 0:
        noted = read_notes(notes)
        cpu_s = usage.ru_utime + usage.ru_stime
        noted[name] = {"s": round(time.monotonic() - start, 1), "cpu_s": round(cpu_s, 1)}
        notes.parent.mkdir(exist_ok=True)
        notes.write_text(json.dumps(noted, indent=1) + "\n", encoding="utf-8")
    return status


def read_notes(notes: Path) -> dict[str, Any]:
    """Return what was noted; nothing before the first run."""
    if not notes.exists():
        return {}
    noted: dict[str, Any] = json.loads(notes.read_text(encoding="utf-8"))
    return noted


def format_minutes(seconds: float) -> str:
    """Return minutes: tenths below two, else whole ones."""
    minutes = seconds / 60
    return f"{minutes:.1f}" if minutes < 2 else f"{minutes:.0f}"


def write_durations(page: str, noted: Mapping[str, Any]) -> str:
    """Return the page with the rows of noted suites made anew; other rows stay."""

    def write_row(row: re.Match[str]) -> str:
        found = noted.get(row["name"])
        if found is None:
            return row[0]
        minutes, cpu = format_minutes(found["s"]), format_minutes(found["cpu_s"])
        return f"| `make {row['name']}` | {row['runs']} | {minutes} | {cpu} |"

    return ROW.sub(write_row, page)


def main(arguments: Sequence[str]) -> int:
    """Run a suite, or write the table. Returns an exit status."""
    if arguments == ["--write"]:
        page = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(write_durations(page, read_notes(NOTES)), encoding="utf-8")
        return 0
    if len(arguments) < 3 or arguments[1] != "--":
        print(__doc__, file=sys.stderr)
        return 2
    return run_timed(arguments[0], arguments[2:], NOTES)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
