"""The tables of a report: where answers stop, kinds of task, flags, faults, steps. Places nothing on a page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gradus.descriptions import GraderDescription
from trainer.evaluate.outcome import Measurement
from trainer.evaluate.report.comparison import funnel, kinds
from trainer.evaluate.report.history import FaultKey, FaultSums, Json, Run
from trainer.evaluate.report.rates import STYLES
from trainer.evaluate.report.words import NOTHING, counted, duration, number, percent, shortened, visible

MOST_KINDS = 30
MOST_FAULTS = 40
MOST_STEPS = 40
MESSAGE_CHARS, MESSAGE_LINES = 600, 10


@dataclass(frozen=True, slots=True)
class Share:
    """One cell with a bar; `width` is percent."""

    text: str
    width: float
    style: str


@dataclass(frozen=True, slots=True)
class Level:
    """One row of a table with bars."""

    name: str
    note: str
    shares: tuple[Share, ...]


@dataclass(frozen=True, slots=True)
class FaultRow:
    where: str
    kind: str
    count: str
    message: str


@dataclass(frozen=True, slots=True)
class Table:
    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def _styled(measured: Sequence[Measurement]) -> tuple[str, ...]:
    return STYLES[-len(measured) :] if measured else ()


def funnel_levels(description: GraderDescription, measured: Sequence[Measurement]) -> Iterator[Level]:
    """How far answers come: one row per level, one bar per measurement."""
    for name, counts in funnel(description, measured) if measured else ():
        shares = []
        for found, count, style in zip(measured, counts, _styled(measured), strict=True):
            share = count / found.graded if found.graded else None
            shares.append(Share(f"{count:,} ({percent(share)})", 100 * (share or 0), style))
        yield Level(name, "", tuple(shares))


def kind_levels(measured: Sequence[Measurement]) -> list[Level]:
    """The pass rate by kind of task, as the task file names them; empty for fewer than two kinds."""
    by_kind = [kinds(found) for found in measured]
    names = list(dict.fromkeys(name for found in by_kind for name in found))
    if len(names) < 2:
        return []
    levels = []
    for name in names:
        shares = []
        for found, style in zip(by_kind, _styled(measured), strict=True):
            tasks, graded, passed = found.get(name, (0, 0, 0))
            share = passed / graded if graded else None
            shares.append(Share(percent(share), 100 * (share or 0), style))
        levels.append(Level(visible(name), counted(by_kind[-1].get(name, (0, 0, 0))[0], "task"), tuple(shares)))
    return levels


def flag_table(run: Run, names: Sequence[str], measured: Sequence[Measurement]) -> Table | None:
    """How often each flag was raised, in counts and shares of the verdicts; None when there was none at all."""
    sources = [(found.flags, found.graded) for found in measured]
    heads = list(names)
    if run.training.graded:
        sources.append((dict(run.training.flags), run.training.graded))
        heads.append("in training")
    flags = sorted({flag for counts, _ in sources for flag in counts})
    rows = [
        (visible(flag), *(_counted_share(counts.get(flag, 0), graded) for counts, graded in sources)) for flag in flags
    ]
    return Table("Completions that were flagged", ("flag", *heads), tuple(rows)) if rows else None


def _counted_share(count: int, total: int) -> str:
    return f"{count:,} ({percent(count / total)})" if total else NOTHING


def fault_rows(run: Run) -> list[FaultRow]:
    """Faults that say the same together, the most frequent first."""
    ordered = sorted(run.faults.items(), key=lambda item: -item[1].count)
    return [_fault_row(key, sums) for key, sums in ordered]


def _fault_row(key: FaultKey, sums: FaultSums) -> FaultRow:
    where = key.where
    if sums.first_step is not None:
        first, last = sums.first_step, sums.last_step
        where += f", step {first}" if first == last else f", steps {first} to {last}"
    message, left_out = shortened(visible(sums.message), MESSAGE_CHARS, MESSAGE_LINES)
    return FaultRow(where, visible(key.kind), f"{sums.count:,}", message + (" …" if left_out else ""))


COLUMNS = (
    ("reward", "reward", number),
    ("reward_std", "standard deviation", number),
    ("gradus/passed", "passed", percent),
    ("entropy", "entropy", number),
    ("completions/mean_length", "length", number),
    ("frac_reward_zero_std", "groups without signal", percent),
    ("gradus/faulted", "faulted", percent),
    ("step_time", "time", duration),
)


def steps_table(metrics: Sequence[Json]) -> Table | None:
    """The figures behind the curves, at most `MOST_STEPS` of the steps, evenly spread, the last one included."""
    columns = [(key, name, show) for key, name, show in COLUMNS if any(line.get(key) is not None for line in metrics)]
    if not columns:
        return None
    every = -(-len(metrics) // MOST_STEPS)
    chosen = [line for n, line in enumerate(reversed(metrics)) if n % every == 0][::-1]
    rows = tuple((f"{line['step']:,}", *(show(line.get(key)) for key, _, show in columns)) for line in chosen)
    caption = "The figures behind the curves" + (f", every {every} logged steps" if every > 1 else "")
    return Table(caption, ("step", *(name for _, name, _ in columns)), rows)
