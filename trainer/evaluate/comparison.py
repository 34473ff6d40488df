"""`gradus compare`: two evaluations of the same tasks against each other, task by task.

What changed, how surely, and where answers stop.
Only tasks that were judged both times are compared. With one completion per task a task passes or does not; with many
it has a share, and its stage is the one of its middle completion.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

from pydantic import Field
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gradus.console import visible
from gradus.errors import Misuse
from trainer.evaluate.figures import group_columns
from trainer.evaluate.intervals import Part, Rate, discordance, mcnemar, paired_difference, sign_flip
from trainer.evaluate.outcome import Evaluation, Measurement, ProblemFigures, incomparable, read_evaluation
from trainer.evaluate.plan import Mode
from trainer.evaluate.store import write_text
from trainer.evaluate.verdicts import PASSED, code_of, rank_of, typical_of
from trainer.languages import language_of

MODES: tuple[Mode, ...] = ("sampled", "greedy")
FROZEN_BELOW = 0.05
"""A task that failed both times at the same stage is frozen when its reward moved by less."""
ROUNDING = 1e-9
MOST_CHANGES = 15
"""Tasks that are listed on a terminal, at most, of each kind of change."""

Record = Mapping[str, Any]


class Turn(StrEnum):
    """What became of one task."""

    IMPROVED = "improved"
    REGRESSED = "regressed"
    BOTH_PASS = "both pass"
    BOTH_FAIL = "both fail"
    UNCHANGED = "unchanged"
    """Passed by the same share of completions, neither all nor none."""


class Side(Part):
    """One evaluation."""

    name: str
    model: str
    created: str
    tasks: str
    tasks_sha256: str
    graders: tuple[str, ...]
    rubrics: tuple[str, ...]
    temperature: float
    samples: int
    graded: int
    faulted: int
    not_written: int


class Answer(Part):
    """What one side has for one task."""

    graded: int
    passed: int
    reward: float
    stage: str
    cause: str | None
    completion: str | None = None
    """The middle completion, of tasks that changed and where completions were read."""


class Change(Part):
    """One task."""

    id: str
    kind: str | None
    difficulty: str | None
    turn: Turn
    pass_change: float
    reward_change: float
    frozen: bool
    before: Answer
    after: Answer


class Difference(Part):
    before: float
    after: float
    change: Rate


class GroupChange(Part):
    tasks: int
    pass_rate: Difference
    reward: Difference


class Test(Part):
    """How likely so uneven a change is if neither side were better."""

    __test__ = False  # not a test class, whatever pytest thinks of its name
    method: Literal["exact McNemar", "sign flips over tasks"]
    p_value: float
    gained: int | None
    """Tasks that were wrong before and right after; None with several completions per task."""
    lost: int | None


class Shift(Part):
    """Tasks by whether their middle completion assigns or loops, before and after."""

    both: int
    gained: int
    lost: int
    neither: int


class Comparison(Part):
    schema_: Literal["gradus/comparison@1"] = Field("gradus/comparison@1", alias="schema")
    mode: Mode
    before: Side
    after: Side
    warnings: tuple[str, ...]
    """What differs beside the model."""
    tasks: int
    """Judged both times."""
    only_before: int
    only_after: int
    pass_rate: Difference
    reward: Difference
    test: Test
    turns: dict[str, int]
    net: int
    """Improved less regressed."""
    migration: dict[str, dict[str, int]]
    """Tasks by the stage before and the stage after."""
    progression: dict[str, tuple[int, int]]
    """Tasks at each stage before and after, from the earliest to `passed`."""
    causes: dict[str, tuple[int, int]]
    """Tasks by what stopped them, before and after."""
    frozen: tuple[str, ...]
    groups: dict[str, dict[str, GroupChange]]
    imperative: Shift | None
    problems: tuple[Change, ...]
    """The largest gains first, the largest losses last."""


@dataclass(frozen=True, slots=True)
class _Pair:
    before: ProblemFigures
    after: ProblemFigures

    @property
    def rates(self) -> tuple[float, float]:
        return self.before.passed / self.before.graded, self.after.passed / self.after.graded

    @property
    def rewards(self) -> tuple[float, float]:
        return self.before.mean_reward or 0.0, self.after.mean_reward or 0.0


def compare(
    before: Evaluation,
    after: Evaluation,
    *,
    mode: Mode | None = None,
    anyway: bool = False,
    records: tuple[Sequence[Record], Sequence[Record]] = ((), ()),
    seed: int = 0,
) -> Comparison:
    """Compare in one mode, by default the first that both have. `records` lend the texts of completions.

    Raises Misuse when there is no such mode, no task was judged both times, or a difference could come from other
    tasks, another revision of the grader or another rubric, unless it is wanted `anyway`.
    """
    reasons = list(incomparable(before, after))
    refused = [reason.text for reason in reasons if reason.is_fatal]
    if refused and not anyway:
        raise Misuse(
            f"{before.name} and {after.name} were measured with {' and with '.join(refused)}, so a difference says "
            "nothing about the models. Evaluate both alike, or compare --anyway"
        )
    first, last = _measurements(before, after, mode)
    pairs = list(_pairs(first, last))
    if not pairs:
        raise Misuse(f"{before.name} and {after.name}: no task was judged both times")
    of_before, of_after = before.description.stages, after.description.stages
    texts = _typical(records[0], first.mode, of_before), _typical(records[1], first.mode, of_after)
    is_same = before.grader == after.grader
    is_imperative = language_of(after.grader).is_imperative if is_same else None
    return Comparison(
        mode=first.mode,
        before=_side(before, first),
        after=_side(after, last),
        warnings=tuple(reason.text for reason in reasons),
        only_before=_judged(first) - len(pairs),
        only_after=_judged(last) - len(pairs),
        imperative=_shift(*texts, pairs, lambda text: is_imperative(code_of(text, after.description.fences)))
        if is_imperative
        else None,
        **_figures(pairs, texts, of_after if is_same else (), seed),
    )


def _figures(
    pairs: Sequence[_Pair], texts: tuple[Mapping[str, Record], Mapping[str, Record]], stages: Sequence[str], seed: int
) -> dict[str, Any]:
    """What follows from the tasks that were judged both times."""
    changes = [_change(pair, *texts) for pair in pairs]
    counts = Counter((change.before.stage, change.after.stage) for change in changes)
    order = sorted({stage for both in counts for stage in both}, key=lambda stage: rank_of(stage, stages))
    return {
        "tasks": len(pairs),
        "pass_rate": _difference([pair.rates for pair in pairs], seed),
        "reward": _difference([pair.rewards for pair in pairs], seed),
        "test": _test(pairs, seed),
        "turns": {turn.value: sum(change.turn is turn for change in changes) for turn in Turn},
        "net": sum({Turn.IMPROVED: 1, Turn.REGRESSED: -1}.get(change.turn, 0) for change in changes),
        "migration": {first: {last: counts[first, last] for last in order} for first in order},
        "progression": {
            stage: (sum(counts[stage, last] for last in order), sum(counts[first, stage] for first in order))
            for stage in order
        },
        "causes": _causes(changes),
        "frozen": tuple(change.id for change in changes if change.frozen),
        "groups": {
            name: dict(_groups(pairs, name, seed)) for name in group_columns([vars(pair.before) for pair in pairs])
        },
        "problems": tuple(sorted(changes, key=lambda one: (-one.pass_change, -one.reward_change, one.id))),
    }


def _measurements(before: Evaluation, after: Evaluation, mode: Mode | None) -> tuple[Measurement, Measurement]:
    for one in MODES if mode is None else (mode,):
        first, last = before.measured(one), after.measured(one)
        if first is not None and last is not None:
            return first, last
    wanted = f"{mode} completions" if mode else "a way of sampling that both have"
    raise Misuse(f"{before.name} and {after.name}: there is no {wanted.removeprefix('a ')} to compare")


def _pairs(first: Measurement, last: Measurement) -> Iterator[_Pair]:
    later = {problem.id: problem for problem in last.problems}
    for problem in first.problems:
        other = later.get(problem.id)
        if other is not None and problem.graded and other.graded:
            yield _Pair(problem, other)


def _judged(measurement: Measurement) -> int:
    return len(measurement.problems) - measurement.unjudged


def _side(evaluation: Evaluation, measurement: Measurement) -> Side:
    return Side(
        name=evaluation.name,
        model=evaluation.model,
        created=evaluation.created,
        tasks=evaluation.tasks,
        tasks_sha256=evaluation.tasks_sha256,
        graders=evaluation.graders,
        rubrics=evaluation.rubrics,
        temperature=measurement.temperature,
        samples=measurement.samples,
        graded=measurement.graded,
        faulted=measurement.faulted,
        not_written=measurement.unwritten,
    )


# ---------------------------------------------------------------------------------------------------------- figures


def _difference(values: Sequence[tuple[float, float]], seed: int) -> Difference:
    before, after = [first for first, _ in values], [last for _, last in values]
    change = paired_difference(before, after, seed=seed)
    assert change is not None
    return Difference(before=fmean(before), after=fmean(after), change=change)


def _test(pairs: Sequence[_Pair], seed: int) -> Test:
    if all(pair.before.graded == pair.after.graded == 1 for pair in pairs):
        found = discordance([pair.rates[0] == 1 for pair in pairs], [pair.rates[1] == 1 for pair in pairs])
        p_value = mcnemar(found.gained, found.lost)
        return Test(method="exact McNemar", p_value=p_value, gained=found.gained, lost=found.lost)
    p_value = sign_flip([pair.rates[1] - pair.rates[0] for pair in pairs], seed=seed)
    return Test(method="sign flips over tasks", p_value=p_value, gained=None, lost=None)


def _change(pair: _Pair, before: Mapping[str, Record], after: Mapping[str, Record]) -> Change:
    turn, sides = _turn(pair), (pair.before, pair.after)
    reward_change = pair.rewards[1] - pair.rewards[0]
    stages = [_stage(side) for side in sides]
    shown = turn in (Turn.IMPROVED, Turn.REGRESSED) or abs(reward_change) >= FROZEN_BELOW
    texts = [
        str(found["completion"]) if shown and (found := some.get(pair.before.id)) else None for some in (before, after)
    ]
    return Change(
        id=pair.before.id,
        kind=pair.before.kind,
        difficulty=pair.before.difficulty,
        turn=turn,
        pass_change=pair.rates[1] - pair.rates[0],
        reward_change=reward_change,
        frozen=turn is Turn.BOTH_FAIL and stages[0] == stages[1] and abs(reward_change) < FROZEN_BELOW - ROUNDING,
        before=_answer(pair.before, pair.rewards[0], stages[0], texts[0]),
        after=_answer(pair.after, pair.rewards[1], stages[1], texts[1]),
    )


def _answer(side: ProblemFigures, reward: float, stage: str, completion: str | None) -> Answer:
    return Answer(
        graded=side.graded, passed=side.passed, reward=reward, stage=stage, cause=side.cause, completion=completion
    )


def _stage(side: ProblemFigures) -> str:
    """Where it stopped; files of earlier versions only know whether it passed."""
    return side.stage or (PASSED if side.passed == side.graded else "unknown")


def _turn(pair: _Pair) -> Turn:
    before, after = pair.rates
    if abs(after - before) > ROUNDING:
        return Turn.IMPROVED if after > before else Turn.REGRESSED
    return {1.0: Turn.BOTH_PASS, 0.0: Turn.BOTH_FAIL}.get(before, Turn.UNCHANGED)


def _causes(changes: Sequence[Change]) -> dict[str, tuple[int, int]]:
    before, after = (
        Counter(cause for change in changes if (cause := getattr(change, side).cause) not in (None, PASSED))
        for side in ("before", "after")
    )
    return {cause: (before[cause], after[cause]) for cause, _ in (before + after).most_common()}


def _groups(pairs: Sequence[_Pair], column: str, seed: int) -> Iterator[tuple[str, GroupChange]]:
    by_value: dict[str, list[_Pair]] = {}
    for pair in pairs:
        if (value := getattr(pair.before, column)) is not None:
            by_value.setdefault(value, []).append(pair)
    for value in sorted(by_value):
        found = by_value[value]
        yield (
            value,
            GroupChange(
                tasks=len(found),
                pass_rate=_difference([pair.rates for pair in found], seed),
                reward=_difference([pair.rewards for pair in found], seed),
            ),
        )


def _typical(records: Sequence[Record], mode: Mode, stages: Sequence[str]) -> dict[str, Record]:
    """The middle completion of each task."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for record in records:
        if record.get("mode") == mode and record.get("status") == "graded":
            groups.setdefault(str(record["prompt_id"]), []).append(dict(record))
    return {task: found for task, group in groups.items() if (found := typical_of(group, stages))}


def _shift(
    before: Mapping[str, Record],
    after: Mapping[str, Record],
    pairs: Sequence[_Pair],
    is_imperative: Callable[[str], bool],
) -> Shift | None:
    ids = [pair.before.id for pair in pairs if pair.before.id in before and pair.before.id in after]
    if not ids:
        return None
    found = discordance(*([is_imperative(str(side[task]["completion"])) for task in ids] for side in (before, after)))
    return Shift(both=found.both_passed, gained=found.gained, lost=found.lost, neither=found.neither)


# ------------------------------------------------------------------------------------------------------- the command


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
    from trainer.evaluate.report.compared import write_comparison_report  # which needs this module

    console = Console()
    for part in _printed(found):
        console.print(part, highlight=False, markup=False)
    if html is not None:
        write_comparison_report(found, (first.evaluation, last.evaluation), records, html)
        console.print(f"page: {html}", highlight=False, markup=False, soft_wrap=True)
    if as_json is not None:
        write_text(as_json, found.model_dump_json(by_alias=True, indent=1) + "\n")
        print(as_json)
    return 0


def _printed(found: Comparison) -> Iterator[Table | str]:
    for warning in found.warnings:
        yield f"Careful: measured with {warning}."
    yield _figures_table(found)
    yield _outcomes_table(found)
    yield _stages_table(found)
    for column, groups in found.groups.items():
        if len(groups) > 1:
            yield _groups_table(column, groups)
    yield from _changes_lines(found)


def _figures_table(found: Comparison) -> Table:
    how = "greedy" if found.mode == "greedy" else f"T={found.after.temperature:g}, {found.after.samples} each"
    table = Table(
        "",
        _plain(found.before.name),
        _plain(found.after.name),
        "change",
        "95% interval",
        title=f"{found.tasks} tasks, {how}",
    )
    table.add_row("pass rate", *_difference_cells(found.pass_rate, percent=True))
    table.add_row("reward", *_difference_cells(found.reward, percent=False))
    test = found.test
    counted = f", {test.gained} gained, {test.lost} lost" if test.gained is not None else ""
    fallbacks = {one.change.fallback for one in (found.pass_rate, found.reward) if one.change.fallback}
    table.caption = "\n".join([f"{test.method}: p = {test.p_value:.4g}{counted}", *sorted(fallbacks)])
    return table


def _difference_cells(found: Difference, *, percent: bool) -> tuple[str, str, str, str]:
    show, signed = ("{:.1%}", "{:+.1%}") if percent else ("{:.3f}", "{:+.3f}")
    change = found.change
    interval = f"{signed.format(change.low)} to {signed.format(change.high)}"
    return show.format(found.before), show.format(found.after), signed.format(change.value), interval


def _outcomes_table(found: Comparison) -> Table:
    names = (*found.turns, "net", "frozen")
    table = Table(*names)
    table.add_row(*(str(count) for count in found.turns.values()), f"{found.net:+d}", str(len(found.frozen)))
    return table


def _stages_table(found: Comparison) -> Table:
    table = Table("stage: before / after", *map(_plain, found.migration))
    for stage, later in found.migration.items():
        table.add_row(_plain(stage), *(str(count) if count else "." for count in later.values()))
    return table


def _groups_table(column: str, groups: dict[str, GroupChange]) -> Table:
    table = Table(column, "tasks", "before", "after", "change", "95% interval")
    for name, group in groups.items():
        table.add_row(_plain(name), str(group.tasks), *_difference_cells(group.pass_rate, percent=True))
    return table


def _changes_lines(found: Comparison) -> Iterator[str]:
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
