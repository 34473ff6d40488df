"""Reports of runs, evaluations and comparisons: the dashboard's page as one file; and `gradus
compare`.

The page reads the folders itself. Computed here is only what it needs of statistics: the comparison
of two evaluations.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gradus.console import escape_hidden
from gradus.errors import Misuse
from gradus.whole_file import write_text
from gradus.wings import write_page
from trainer.evaluate.comparison import MODES, Comparison, Difference, compare
from trainer.evaluate.results import read_evaluation


def write_report(folder: Path, out: Path) -> Path:
    """Write the page of a run or an evaluation to `out`, at once or not at all; returns `out`.

    Raises Misuse when there is no such folder, and where nothing that writes pages is installed.
    """
    write_page(out, [folder], comparisons)
    return out


def write_comparisons(before: Path, after: Path, out: Path) -> None:
    """Write to `out` what the page shows of two measurements of one run, unless one of them is
    missing."""
    if before.is_file() and after.is_file():
        write_text(out, json.dumps({"comparisons": comparisons(before, after)}) + "\n")


def comparisons(before: Path, after: Path) -> list[dict[str, Any]]:
    """Compare by each way of sampling that both evaluations have; empty if incomparable."""
    results = []
    for mode in MODES:
        # Not where one has no such way of sampling, or no task was judged both times.
        with suppress(Misuse):
            sides = list(map(read_evaluation, (before, after)))
            results.append(compare(sides[0], sides[1], mode=mode, anyway=True))
    return [comparison.model_dump(mode="json", by_alias=True) for comparison in results]


def main(
    before: Path,
    after: Path,
    mode: str | None,
    html: Path | None,
    as_json: Path | None,
    *,
    anyway: bool,
) -> int:
    """Compare two evaluations; the path of the JSON file, if one is wanted, is printed last. Raises
    Misuse."""
    if mode not in (None, *MODES):
        raise Misuse(f"mode {mode!r}: there are sampled and greedy")
    comparison = compare(read_evaluation(before), read_evaluation(after), mode=mode, anyway=anyway)
    console = Console()
    for part in _render_parts(comparison):
        console.print(part, highlight=False, markup=False)
    if html is not None:
        write_page(html, [before, after], comparisons)
        console.print(f"page: {html}", highlight=False, markup=False, soft_wrap=True)
    if as_json is not None:
        write_text(as_json, comparison.model_dump_json(by_alias=True, indent=1) + "\n")
        print(as_json)
    return 0


def _render_parts(comparison: Comparison) -> Iterator[Table | str]:
    """Yield the headline and what changed; the rest is in the page and in the JSON file."""
    for warning in comparison.warnings:
        yield f"Careful: measured with {warning}."
    if comparison.mode == "greedy":
        sampling = "greedy"
    else:
        sampling = f"T={comparison.after.temperature:g}, {comparison.after.samples} each"
    names = (_escape_text(comparison.before.name), _escape_text(comparison.after.name))
    table = Table(
        "", *names, "change", "95% interval", title=f"{comparison.tasks} tasks, {sampling}"
    )
    table.add_row("pass rate", *_format_cells(comparison.pass_rate, ".1%"))
    table.add_row("reward", *_format_cells(comparison.reward, ".3f"))
    test = comparison.test
    if test.gained is not None:
        counted = f", {test.gained} gained, {test.lost} lost"
    else:
        counted = ""
    fallbacks = set()
    for difference in (comparison.pass_rate, comparison.reward):
        if difference.change.fallback:
            fallbacks.add(difference.change.fallback)
    table.caption = "\n".join(
        [f"{test.method}: p = {test.p_value:.4g}{counted}", *sorted(fallbacks)]
    )
    yield table
    yield ", ".join(f"{count} {turn}" for turn, count in comparison.turns.items())


def _format_cells(difference: Difference, form: str) -> tuple[str, ...]:
    change = difference.change
    interval = f"{change.low:+{form}} to {change.high:+{form}}"
    return (
        format(difference.before, form),
        format(difference.after, form),
        format(change.value, "+" + form),
        interval,
    )


def _escape_text(text: str) -> str:
    """Return the text without markup of the terminal's and without what steers it."""
    return escape(escape_hidden(text))
