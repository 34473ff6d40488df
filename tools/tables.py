"""Writer of the tables of README.md and docs/ that come from data files.

`python -m tools.tables` replaces what stands between `<!-- table NAME -->` and `<!-- end -->`;
with `--check` it writes nothing and exits with 1 where a table differs from its data.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]
MAX_AGE = timedelta(days=122)


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
