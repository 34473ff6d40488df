"""Writer of the tables of README.md and docs/ that come from data files.

`python -m tools.tables` replaces what stands between `<!-- table NAME -->` and `<!-- end -->`;
with `--check` it writes nothing and exits with 1 where a table differs from its data.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import yaml

from services.attacks.code import CodeCorpus
from services.attacks.stories import load_exceptions, load_sprints

ROOT = Path(__file__).parents[1]
MAX_AGE = timedelta(days=122)
STEP = 1024
"""Completions of the training step that is sized."""
BUSY = 0.55
"""Share of the slots that work in the fleet of docs/benchmarks.md#a-large-fleet-simulated."""
CORE_HOUR_USD = (0.04, 0.012)
"""Assumed prices: on demand, and on spot nodes."""
FAILURES = (
    "10,000 submissions while processes, Redis and network fail",
    "0 lost, 0 wrong",
    "`make chaos`",
)


def read_data(name: str) -> Any:
    return yaml.safe_load((ROOT / "docs" / f"{name}.yaml").read_text())


def render(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table of Markdown."""
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for row in rows:
        lines.append("| " + " | ".join(row) + " |")
    return "\n".join(lines)


def link_issue(name: str) -> str:
    """Return a link to `OWNER/REPOSITORY#NUMBER`, or nothing for an empty name."""
    if not name:
        return ""
    repository, _, number = name.partition("#")
    return f"[{repository.partition('/')[2]}#{number}](https://github.com/{repository}/issues/{number})"


def render_conformance() -> str:
    rows = []
    for row in read_data("conformance"):
        left_out = row["leaves_out"] or "**not possible**"
        issue = link_issue(row["upstream"])
        rows.append((row["trainer"], row["setting"], left_out, row["remains"], row["proof"], issue))
    heads = ("trainer", "setting", "leaves out", "what remains", "proof", "upstream")
    return render(heads, rows)


def render_comparison() -> str:
    data = read_data("comparison")
    heads = ["property", *(f"{name} {version}" for name, version in data["projects"].items())]
    heads[1] = "Gradus"
    rows = []
    for row in data["rows"]:
        rows.append([row["name"], *(row["cells"][name]["value"] for name in data["projects"])])
    return render(heads, rows)


def render_results() -> str:
    """Return README's results. That the attacks of OCaml and Rust are held, and which of the
    stories are not, is what the suites of tests/attack assert."""
    rows = []
    for cost in read_data("costs"):
        result = f"{cost['worker']} ms; {cost['floor']} ms {cost['floor_is']}"
        if cost["naive"]:
            result += f"; {cost['naive']} ms naive"
        rows.append((f"{cost['name']}, CPU per completion", result, f"`{cost['command']}`"))
    held = []
    for grader in ("ocaml", "rust"):
        number = len(CodeCorpus.read(grader).attacks)
        held.append(f"{number} of {number} {'OCaml' if grader == 'ocaml' else 'Rust'}")
    known = load_exceptions()
    attacks = [(sprint.name, one.kind) for sprint in load_sprints() for one in sprint.attacks]
    unknown = [attack for attack in attacks if attack not in known]
    held.append(f"{len(unknown)} of {len(attacks)} stories")
    rows.append(("attacks held", ", ".join(held), "`gradus attack GRADER`"))
    rows.append(FAILURES)
    return render(("what", "result", "command"), rows)


def render_costs() -> str:
    rows = []
    for cost in read_data("costs"):
        with_queue = f"{cost['all']} ms" if cost["all"] else "not measured"
        rows.append((cost["name"], f"{cost['worker']} ms", with_queue, cost["parts"]))
    rows.append(("any, from the cache", "", "under 1 ms", "identical work is done once"))
    return render(("completion", "CPU of a worker", "with API and queue", "of which"), rows)


def count_cores(cost: dict[str, str], seconds: int) -> int:
    """Return the cores that grade a step of 1,024 completions in so many seconds."""
    return math.ceil(STEP * float(cost["sizing"]) / 1000 / seconds)


def render_cores() -> str:
    rows = []
    for cost in read_data("costs"):
        cores = [str(count_cores(cost, seconds)) for seconds in (2, 10, 60)]
        rows.append((f"{cost['plural']}, {cost['sizing']} ms", *cores))
    heads = (f"cores for {STEP:,} completions, CPU each", "all graded in 2 s", "in 10 s")
    return render((*heads, "during 60 s of writing (`reward.early`)"), rows)


def render_millions() -> str:
    """Return the price of a million completions, in USD, on cores that are busy for `BUSY`."""
    rows = []
    for cost in read_data("costs"):
        hours = 1e6 * float(cost["sizing"]) / 1000 / 3600 / BUSY
        prices = [f"{hours * price:.2f}" for price in CORE_HOUR_USD]
        rows.append((cost["plural"], f"{hours:.1f}", *prices))
    heads = [f"USD at {price} a core-hour" for price in CORE_HOUR_USD]
    return render(("a million completions", "core-hours", *heads), rows)


def render_sizing() -> str:
    """Return README's sentence on cores."""
    parts = []
    for cost in read_data("costs"):
        cores = count_cores(cost, 10)
        parts.append(f"{cost['plural']} {cores} {'core' if cores == 1 else 'cores'}")
    return (
        f"To grade {STEP:,} completions in 10 s, {', '.join(parts)} are enough"
        " ([sizing](docs/operate/scale.md#how-many))."
    )


def find_unmeasured_costs() -> list[str]:
    """Return the figures of docs/costs.yaml that docs/benchmarks.md does not have."""
    measured = (ROOT / "docs" / "benchmarks.md").read_text()
    missing = []
    for cost in read_data("costs"):
        for name in ("worker", "all", "floor", "naive", "sizing"):
            figure = cost[name]
            pattern = rf"(?<![\d.]){re.escape(figure)}(?!\.?\d)"
            if figure and not re.search(pattern, measured):
                missing.append(f"{cost['name']}: {name}: {cost[name]}")
    return missing


def find_old_rows(today: date) -> list[str]:
    """Return the rows of the comparison with a cell that was read more than four months ago."""
    old = []
    for row in read_data("comparison")["rows"]:
        read_on = min(cell["date"] for cell in row["cells"].values())
        if today - read_on > MAX_AGE:
            old.append(f"{row['name']}: read on {read_on}")
    return old


TABLES: dict[str, tuple[str, Callable[[], str]]] = {
    "comparison": ("README.md", render_comparison),
    "conformance": ("docs/integrations.md", render_conformance),
    "results": ("README.md", render_results),
    "sizing": ("README.md", render_sizing),
    "costs": ("docs/explanation/cost_and_sizing.md", render_costs),
    "cores": ("docs/operate/scale.md", render_cores),
    "millions": ("docs/operate/scale.md", render_millions),
}


def fill(text: str, name: str, table: str) -> str:
    """Return the text with the table between its marks. Raises ValueError where they are absent."""
    begin = f"<!-- table {name} -->"
    pattern = re.compile(f"{re.escape(begin)}.*?<!-- end -->", re.DOTALL)
    if not pattern.search(text):
        raise ValueError(f"there is no {begin} with <!-- end -->")
    return pattern.sub(lambda _: f"{begin}\n{table}\n<!-- end -->", text)


def main(check: bool) -> int:
    differing = []
    for name, (file, build) in TABLES.items():
        path = ROOT / file
        text = path.read_text()
        filled = fill(text, name, build())
        if filled == text:
            continue
        differing.append(
            f"{file}: table {name} differs from its data: run `python -m tools.tables`"
        )
        if not check:
            path.write_text(filled)
    if check:
        print(*differing, sep="\n")
    return int(check and bool(differing))


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv))
