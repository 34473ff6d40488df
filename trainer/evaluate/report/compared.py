"""The page of `gradus compare`: two evaluations of the same tasks, and both sides of what changed.

It says everything in words and tables; a template places them. Nothing is computed here but what is shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainer.evaluate.comparison import Change, Comparison, Difference, GroupChange, Turn
from trainer.evaluate.intervals import Rate
from trainer.evaluate.outcome import Evaluation
from trainer.evaluate.report.comparison import Pair
from trainer.evaluate.report.comparison import Turn as PairTurn
from trainer.evaluate.report.facts import Fact
from trainer.evaluate.report.history import Json, task_of
from trainer.evaluate.report.rates import Panel, panels_of
from trainer.evaluate.report.rendering import rendered, today, write_page
from trainer.evaluate.report.samples import SampleGroup, card_of_pair, part_styles
from trainer.evaluate.report.tables import Level, Share, Table
from trainer.evaluate.report.words import counted, number, percent, points, signed, visible
from trainer.evaluate.verdicts import typical_of

MOST_CAUSES, MOST_ROWS, MOST_CARDS = 24, 200, 16


@dataclass(frozen=True, slots=True)
class ComparedPage:
    """Everything that the template places."""

    title: str
    made: str
    headline: str
    tone: str
    lead: str
    warnings: tuple[str, ...]
    cards: tuple[Fact, ...]
    panels: tuple[Panel, ...]
    names: tuple[str, str]
    progression: tuple[Level, ...]
    migration: Table
    causes: tuple[Level, ...]
    groups: tuple[tuple[str, Table], ...]
    imperative: str
    frozen: tuple[str, ...]
    changes: Table
    changes_left_out: int
    samples: tuple[SampleGroup, ...]
    facts: Table


def write_comparison_report(
    found: Comparison,
    evaluations: tuple[Evaluation, Evaluation],
    records: tuple[Sequence[Json], Sequence[Json]],
    out: Path,
) -> Path:
    """Write the page to `out`, at once or not at all; returns `out`. `records` may be empty."""
    page = page_of(found, evaluations, records, today())
    return write_page(rendered("compared.html.j2", page, "comparison"), out)


def page_of(
    found: Comparison,
    evaluations: tuple[Evaluation, Evaluation],
    records: tuple[Sequence[Json], Sequence[Json]],
    made: str,
) -> ComparedPage:
    """The page of a comparison. `made` says when, in words."""
    names = _names(found)
    return ComparedPage(
        title=f"{names[0]} and {names[1]}",
        made=made,
        headline=_headline(found, names),
        tone=_tone(found.pass_rate.change),
        lead=_lead(found),
        warnings=tuple(f"Measured with {text}: a difference may come from that." for text in found.warnings),
        cards=tuple(_cards(found)),
        panels=tuple(
            panels_of(
                [
                    evaluation.model_copy(update={"name": name})
                    for evaluation, name in zip(evaluations, names, strict=True)
                ]
            )
        ),
        names=names,
        progression=tuple(_levels(found.progression, found.tasks)),
        migration=_migration(found),
        causes=tuple(_levels(dict(list(found.causes.items())[:MOST_CAUSES]), found.tasks)),
        groups=tuple((column, _groups(column, groups)) for column, groups in found.groups.items() if len(groups) > 1),
        imperative=_imperative(found),
        frozen=tuple(visible(task) for task in found.frozen),
        changes=_changes(found),
        changes_left_out=max(0, len(_changed(found)) - MOST_ROWS),
        samples=tuple(_samples(found, records, names, [one.description.stages for one in evaluations])),
        facts=_facts(found, names),
    )


def _names(found: Comparison) -> tuple[str, str]:
    first, last = visible(found.before.name), visible(found.after.name)
    return (first, last) if first != last else (f"{first} (before)", f"{last} (after)")


def _headline(found: Comparison, names: tuple[str, str]) -> str:
    rates = f"from {percent(found.pass_rate.before)} to {percent(found.pass_rate.after)}"
    on = f"on {counted(found.tasks, 'task')}"
    return {
        "up": f"The pass rate {on} rose {rates}.",
        "down": f"The pass rate {on} fell {rates}.",
        "flat": f"The pass rate {on} did not change measurably: {percent(found.pass_rate.before)} for {names[0]}, "
        f"{percent(found.pass_rate.after)} for {names[1]}.",
    }[_tone(found.pass_rate.change)]


def _tone(change: Rate | object) -> str:
    low, high = getattr(change, "low", 0.0), getattr(change, "high", 0.0)
    return "up" if low > 0 else "down" if high < 0 else "flat"


def _lead(found: Comparison) -> str:
    change, test = found.pass_rate.change, found.test
    how = "Greedy" if found.mode == "greedy" else f"{counted(found.after.samples, 'completion')} per task"
    return (
        f"{points(change.value)} percentage points, 95% interval {points(change.low)} to {points(change.high)}. "
        f"{how}; {test.method}, {_p(test.p_value)}."
    )


def _p(value: float) -> str:
    return (
        "p\N{NO-BREAK SPACE}<\N{NO-BREAK SPACE}0.001"
        if value < 0.001
        else f"p\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}{value:.3f}"
    )


def _cards(found: Comparison) -> Iterator[Fact]:
    for turn, count in found.turns.items():
        if count or turn != Turn.UNCHANGED:
            yield Fact(turn.capitalize(), f"{count:,}")
    yield Fact("Net", signed(found.net, 0))
    yield Fact("Frozen", f"{len(found.frozen):,}")
    yield Fact("Change of the reward", _signed_with_ends(found.reward))
    if found.only_before or found.only_after:
        yield Fact("Judged on one side only", f"{found.only_before:,} before, {found.only_after:,} after")


def _signed_with_ends(found: Difference) -> str:
    change = found.change
    return f"{signed(change.value, 3)} ({signed(change.low, 3)} to {signed(change.high, 3)})"


# ------------------------------------------------------------------------------------------------------------ tables


def _levels(counts: Mapping[str, tuple[int, int]], tasks: int) -> Iterator[Level]:
    for name, pair in counts.items():
        shares = [
            Share(f"{count:,} ({percent(count / tasks)})", 100 * count / tasks, style)
            for count, style in zip(pair, ("before", "after"), strict=True)
        ]
        yield Level(visible(name), "", tuple(shares))


def _migration(found: Comparison) -> Table:
    rows = tuple(
        (f"before: {visible(stage)}", *(f"{count:,}" if count else "·" for count in later.values()))
        for stage, later in found.migration.items()
    )
    heads = tuple(f"after: {visible(stage)}" for stage in found.migration)
    return Table("Tasks by where their middle completion stopped, before and after", ("", *heads), rows)


def _groups(column: str, groups: Mapping[str, GroupChange]) -> Table:
    rows = tuple(
        (visible(name), f"{group.tasks:,}", *_cells(group.pass_rate), _signed_with_ends(group.reward))
        for name, group in groups.items()
    )
    return Table(
        f"pass@1 by {column}", (column, "tasks", "before", "after", "change, points", "change of the reward"), rows
    )


def _cells(found: Difference) -> tuple[str, str, str]:
    change = found.change
    ends = f"{points(change.value)} ({points(change.low)} to {points(change.high)})"
    return percent(found.before), percent(found.after), ends


def _imperative(found: Comparison) -> str:
    shift = found.imperative
    if shift is None:
        return ""
    tasks = shift.both + shift.gained + shift.lost + shift.neither
    return (
        f"Of {counted(tasks, 'task')}, {shift.gained} turned to assignments "
        f"and loops, {shift.lost} away from them; {shift.both} had them both times and {shift.neither} neither time."
    )


def _changed(found: Comparison) -> list[Change]:
    return [change for change in found.problems if change.pass_change or change.reward_change]


def _changes(found: Comparison) -> Table:
    heads = ("task", "kind", "what", "passed", "reward", "stopped")
    rows = tuple(_change_row(change) for change in _changed(found)[:MOST_ROWS])
    return Table("The largest gains first, the largest losses last", heads, rows)


def _change_row(change: Change) -> tuple[str, ...]:
    before, after = change.before, change.after
    return (
        visible(change.id),
        visible(change.kind or change.difficulty or ""),
        change.turn.value,
        f"{before.passed}/{before.graded} → {after.passed}/{after.graded}",
        f"{number(before.reward)} → {number(after.reward)} ({signed(change.reward_change, 3)})",
        f"{visible(before.cause or before.stage)} → {visible(after.cause or after.stage)}",
    )


def _facts(found: Comparison, names: tuple[str, str]) -> Table:
    def row(label: str, of: str) -> tuple[str, ...]:
        return (label, *(_plain(getattr(side, of)) for side in (found.before, found.after)))

    rows = (
        row("Model", "model"),
        row("Tasks", "tasks"),
        ("sha256 of the tasks", found.before.tasks_sha256[:12], found.after.tasks_sha256[:12]),
        row("Grader", "graders"),
        row("Rubric", "rubrics"),
        row("Temperature", "temperature"),
        row("Completions per task", "samples"),
        row("Verdicts", "graded"),
        row("Faults", "faulted"),
        row("Never written", "not_written"),
        row("Measured", "created"),
    )
    return Table("Both evaluations", ("", *names), rows)


def _plain(value: object) -> str:
    return visible(
        ", ".join(value) if isinstance(value, tuple) else f"{value:g}" if isinstance(value, float) else str(value)
    )


# ------------------------------------------------------------------------------------------------------- completions

GROUPS: Mapping[Turn, tuple[str, str, PairTurn]] = {
    Turn.IMPROVED: ("Improved", "up", PairTurn.LEARNED),
    Turn.REGRESSED: ("Regressed", "down", PairTurn.LOST),
    Turn.BOTH_FAIL: ("Failed both times", "flat", PairTurn.STILL_WRONG),
}


def _samples(
    found: Comparison,
    records: tuple[Sequence[Json], Sequence[Json]],
    names: tuple[str, str],
    stages: Sequence[Sequence[str]],
) -> Iterator[SampleGroup]:
    """The middle completions of both sides, of the tasks that changed most."""
    sides = [_middle(some, found.mode, order) for some, order in zip(records, stages, strict=True)]
    styles = part_styles(name for side in sides for record in side.values() for name in record["components"])
    for turn, (title, style, pair_turn) in GROUPS.items():
        changes = [
            change for change in found.problems if change.turn is turn and all(change.id in side for side in sides)
        ]
        changes = changes[::-1] if turn is Turn.REGRESSED else changes
        shown = changes[: MOST_CARDS if turn is not Turn.BOTH_FAIL else MOST_CARDS // 4]
        pairs = [Pair(change.id, pair_turn, sides[0][change.id], sides[1][change.id]) for change in shown]
        cards = tuple(card_of_pair(pair, names, styles) for pair in pairs)
        if cards:
            yield SampleGroup(title, style, f"{counted(len(changes), 'task')}, {len(cards)} shown", cards)


def _middle(records: Sequence[Json], mode: str, stages: Sequence[str]) -> dict[str, Json]:
    groups: dict[str, list[Json]] = {}
    for record in records:
        if record.get("mode") == mode and record.get("status") == "graded":
            groups.setdefault(task_of(record), []).append(record)
    return {task: one for task, group in groups.items() if (one := typical_of(group, stages))}
