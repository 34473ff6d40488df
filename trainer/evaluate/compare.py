"""`gradus compare`: reads two evaluations, prints how they differ, and writes a page and a file for programs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gradus.errors import Misuse
from trainer.evaluate.comparison import Comparison, Difference, GroupChange, Turn, compare
from trainer.evaluate.folder import read_evaluation, write_text
from trainer.evaluate.report import visible, write_comparison_report

MOST_CHANGES = 15
"""Tasks that are listed on a terminal, at most, of each kind of change."""


def main(
    before: Path, after: Path, mode: str | None, html: Path | None, as_json: Path | None, *, anyway: bool, seed: int
) -> int:
    """Compare two evaluations; the path of the JSON file, if one is wanted, is printed last. Raises Misuse."""
    if mode not in (None, "sampled", "greedy"):
        raise Misuse(f"mode {mode!r}: there are sampled and greedy")
    first, last = read_evaluation(before), read_evaluation(after)
    records = (first.records(), last.records())
    found = compare(
        first.evaluation,
        last.evaluation,
        mode="sampled" if mode == "sampled" else "greedy" if mode == "greedy" else None,
        anyway=anyway,
        records=records,
        seed=seed,
    )
    console = Console()
    for part in _printed(found):
        console.print(part, highlight=False, markup=False)
    if html is not None:
        write_comparison_report(found, before, after, html)
        console.print(f"page: {html}", highlight=False, markup=False, soft_wrap=True)
    if as_json is not None:
        write_text(as_json, found.model_dump_json(by_alias=True, indent=1) + "\n")
        print(as_json)
    return 0


def _printed(found: Comparison) -> Iterator[Table | str]:
    for warning in found.warnings:
        yield f"Careful: measured with {warning}."
    yield _figures(found)
    yield _outcomes(found)
    yield _stages(found)
    for column, groups in found.groups.items():
        if len(groups) > 1:
            yield _groups(column, groups)
    yield from _changes(found)


def _figures(found: Comparison) -> Table:
    how = "greedy" if found.mode == "greedy" else f"T={found.after.temperature:g}, {found.after.samples} each"
    table = Table(
        "",
        _plain(found.before.name),
        _plain(found.after.name),
        "change",
        "95% interval",
        title=f"{found.tasks} tasks, {how}",
    )
    table.add_row("pass rate", *_difference(found.pass_rate, percent=True))
    table.add_row("reward", *_difference(found.reward, percent=False))
    test = found.test
    counted = f", {test.gained} gained, {test.lost} lost" if test.gained is not None else ""
    table.caption = f"{test.method}: p = {test.p_value:.4g}{counted}"
    return table


def _difference(found: Difference, *, percent: bool) -> tuple[str, str, str, str]:
    show, signed = ("{:.1%}", "{:+.1%}") if percent else ("{:.3f}", "{:+.3f}")
    change = found.change
    interval = f"{signed.format(change.low)} to {signed.format(change.high)}"
    return show.format(found.before), show.format(found.after), signed.format(change.value), interval


def _outcomes(found: Comparison) -> Table:
    names = (*found.turns, "net", "frozen")
    table = Table(*names)
    table.add_row(*(str(count) for count in found.turns.values()), f"{found.net:+d}", str(len(found.frozen)))
    return table


def _stages(found: Comparison) -> Table:
    table = Table("stage: before / after", *map(_plain, found.migration))
    for stage, later in found.migration.items():
        table.add_row(_plain(stage), *(str(count) if count else "." for count in later.values()))
    return table


def _groups(column: str, groups: dict[str, GroupChange]) -> Table:
    table = Table(column, "tasks", "before", "after", "change", "95% interval")
    for name, group in groups.items():
        table.add_row(_plain(name), str(group.tasks), *_difference(group.pass_rate, percent=True))
    return table


def _changes(found: Comparison) -> Iterator[str]:
    for turn in (Turn.IMPROVED, Turn.REGRESSED):
        changed = [change for change in found.problems if change.turn is turn]
        changed = changed if turn is Turn.IMPROVED else changed[::-1]
        names = visible(", ".join(change.id for change in changed[:MOST_CHANGES]))
        more = f" and {len(changed) - MOST_CHANGES} more" if len(changed) > MOST_CHANGES else ""
        if changed:
            yield f"{turn.value}: {names}{more}"


def _plain(text: str) -> str:
    """The text as it is: no markup of the terminal's, and nothing that steers it."""
    return escape(visible(text))
