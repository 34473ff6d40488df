"""What one sees of an evaluation on a terminal: bars while it goes on, a table at its end. Computes nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from trainer.evaluate.collect import OnProgress
from trainer.evaluate.figures import Rate
from trainer.evaluate.outcome import Evaluation, Measurement
from trainer.evaluate.turns import Turns
from trainer.rewards import Record


@contextmanager
def progress_bar(console: Console) -> Iterator[OnProgress]:
    """A bar for what is written and one for what is graded, where somebody is there to see them."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        bars: dict[str, Any] = {}

        def on_progress(what: str, done: int, total: int) -> None:
            if what not in bars:
                bars[what] = progress.add_task(what, total=total)
            progress.update(bars[what], completed=done)

        yield on_progress


def table_for_terminal(evaluation: Evaluation) -> Table:
    """The figures of an evaluation, one column for each way of sampling."""
    columns = [_figures(measurement) for measurement in evaluation.measurements]
    table = Table("", *(_how(measurement) for measurement in evaluation.measurements))
    for name in dict.fromkeys(name for column in columns for name in column):
        table.add_row(name, *(column.get(name, "") for column in columns))
    return table


def _how(found: Measurement) -> str:
    return "greedy" if found.mode == "greedy" else f"T={found.temperature:g}, {found.samples} each"


def _figures(found: Measurement) -> dict[str, str]:
    figures = {"tasks": str(len(found.problems)), "verdicts": str(found.graded)}
    figures |= {f"pass@{k}": _with_ends(rate) for k, rate in found.pass_at.items()}
    details = found.details
    if details is not None:
        figures |= {f"  {name}": f"{rate.value:.1%}" for name, rate in details.rates.items()}
        if details.invented and details.invented.answers:
            figures["  answers with invented names"] = f"{details.invented.answers.value:.1%}"
        if details.declined:
            figures["  answers that decline"] = f"{details.declined.value:.1%}"
        if details.partial_tests:
            figures["  tests, on average"] = f"{details.partial_tests.value:.1%}"
    figures["reward"] = f"{found.mean_reward.value:.3f}" if found.mean_reward else "-"
    if details is not None and details.truncated is not None:
        figures["cut off at the limit"] = str(details.truncated.completions)
    if found.turns is not None:
        figures |= _repairs(found.turns)
    return figures | {"faults": str(found.faulted), "not written": str(found.unwritten)}


def _repairs(turns: Turns) -> dict[str, str]:
    figures = {f"green by turn {turn}": _with_ends(rate) for turn, rate in turns.green_by.items()}
    middle, of_green = (_turns_in_words(value) for value in (turns.median_turns, turns.median_turns_of_green))
    figures["turns to green, median"] = f"{middle} ({of_green} of those that got there)"
    return figures | ({"broken off": str(turns.broken)} if turns.broken else {})


def _turns_in_words(value: float | None) -> str:
    return "never" if value is None else f"{value:g}"


def _with_ends(rate: Rate) -> str:
    return f"{rate.value:.1%} ({rate.low:.1%} to {rate.high:.1%})"


def troubles(records: Sequence[Record]) -> Iterator[str]:
    """What was not written and not judged, in a line each: how many of which kind, and what was said last."""
    for what, column in (("were not written", "error"), ("could not be judged", "fault")):
        found = [record[column] for record in records if record.get(column) is not None]
        kinds = Counter(trouble["kind"] for trouble in found).most_common()
        if found:
            counts = ", ".join(f"{count} x {kind}" for kind, count in kinds)
            yield f"{len(found)} of {len(records)} completions {what}: {counts}; the last: {found[-1]['message']}"
