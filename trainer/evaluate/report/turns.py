"""What came of asking again, as a table of a report. Computes no figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from trainer.evaluate.figures import Turns
from trainer.evaluate.outcome import Measurement
from trainer.evaluate.report.rates import described, rate_in_words, spread
from trainer.evaluate.report.tables import Table
from trainer.evaluate.report.words import NOTHING, number

CAPTION = "Answers that did not pass, asked for again with what the grader said; shares are of first answers"


def turns_table(measured: Sequence[Measurement]) -> Table | None:
    """One column for each way of sampling; None where each answer was asked for once."""
    turns = [found.turns for found in measured]
    asked = max((found.asked for found in turns if found), default=0)
    if not asked:
        return None
    rows = [(f"green by turn {turn}", *(_cells(turns, _green_by(turn)))) for turn in range(1, asked + 1)]
    rows += [(label, *_cells(turns, show)) for label, show in ROWS]
    return Table(CAPTION, ("", *(described(found) for found in measured)), tuple(rows))


def _green_by(turn: int) -> Callable[[Turns], str]:
    return lambda found: rate_in_words(found.green_by.get(turn))


ROWS: tuple[tuple[str, Callable[[Turns], str]], ...] = (
    ("never green", lambda found: rate_in_words(found.never_green)),
    ("turns to green, median of all", lambda found: _or_never(found.median_turns)),
    ("turns to green, median of those that got there", lambda found: number(found.median_turns_of_green)),
    ("lines changed to turn green", lambda found: spread(found.repair_lines)),
    ("written tokens per green", lambda found: number(found.completion_tokens_per_green)),
    ("read tokens per green", lambda found: number(found.prompt_tokens_per_green)),
    ("seconds per green", lambda found: number(found.seconds_per_green)),
    ("broken off", lambda found: f"{found.broken:,}"),
    ("prompt too long", lambda found: f"{found.refused:,}"),
)


def _or_never(value: float | None) -> str:
    return "never" if value is None else number(value)


def _cells(turns: Sequence[Turns | None], show: Callable[[Turns], str]) -> list[str]:
    return [show(found) if found else NOTHING for found in turns]
