"""Before against after on the same held-out tasks: rates, differences, where answers stop, single tasks side by side.

Computes and chooses; it formats no page. Only verdicts count, and only tasks that were judged both times are compared.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from gradus.descriptions import GraderDescription
from trainer.evaluate.intervals import Discordance, Estimate, discordance, paired_difference
from trainer.evaluate.outcome import Evaluation, Measurement, Mode, ProblemFigures
from trainer.evaluate.report.history import Json, is_verdict, task_of
from trainer.evaluate.stages import rank_of
from trainer.languages import language_of


@dataclass(frozen=True, slots=True)
class Difference:
    """What changed in one mode. `change` is None when no task was judged both times."""

    mode: Mode
    before: Measurement
    after: Measurement
    tasks: int
    """Judged both times."""
    change: Estimate | None
    reward_change: Estimate | None
    pairs: Discordance | None
    """Only where each task has one completion."""


class Turn(StrEnum):
    """What became of one task."""

    LEARNED = "learned"
    LOST = "lost"
    STILL_WRONG = "still wrong"
    KEPT = "kept"


@dataclass(frozen=True, slots=True)
class Pair:
    """Two completions for one task."""

    task_id: str
    turn: Turn
    before: Json
    after: Json


# ---------------------------------------------------------------------------------------------------- differences


def difference(before: Evaluation, after: Evaluation, mode: Mode) -> Difference | None:
    """The change in one mode; None when it was not measured both times."""
    first, last = before.measured(mode), after.measured(mode)
    if first is None or last is None:
        return None
    both = list(_judged_twice(first, last))
    rates = [[problem.passed / problem.graded for problem in side] for side in _sides(both)]
    rewards = [[problem.mean_reward or 0.0 for problem in side] for side in _sides(both)]
    one_each = bool(both) and all(a.graded == b.graded == 1 for a, b in both)
    return Difference(
        mode=mode,
        before=first,
        after=last,
        tasks=len(both),
        change=paired_difference(rates[0], rates[1]),
        reward_change=paired_difference(rewards[0], rewards[1]),
        pairs=discordance([rate == 1 for rate in rates[0]], [rate == 1 for rate in rates[1]]) if one_each else None,
    )


def _judged_twice(first: Measurement, last: Measurement) -> Iterator[tuple[ProblemFigures, ProblemFigures]]:
    later = {problem.id: problem for problem in last.problems}
    for problem in first.problems:
        other = later.get(problem.id)
        if other is not None and problem.graded and other.graded:
            yield problem, other


def _sides(
    pairs: Sequence[tuple[ProblemFigures, ProblemFigures]],
) -> tuple[list[ProblemFigures], list[ProblemFigures]]:
    return [first for first, _ in pairs], [last for _, last in pairs]


# ------------------------------------------------------------------------------------------------- funnel and kinds


def funnel(description: GraderDescription, measurements: Sequence[Measurement]) -> list[tuple[str, list[int]]]:
    """(how far, how many of each measurement's verdicts came so far), from all verdicts to all tests passed."""
    seen = {stage for found in measurements for stage in found.stopped_at}
    stages = sorted(
        {*map(str, description.stages), *seen}, key=lambda stage: (rank_of(stage, description.stages), stage)
    )
    words = {"extract": "an answer was found", **language_of(description.name).stage_words}
    levels = [("verdicts", [found.graded for found in measurements])]
    for n, stage in enumerate(stages[:-1]):
        later = stages[n + 1 :]
        got_past = [found.passed + sum(found.stopped_at.get(name, 0) for name in later) for found in measurements]
        levels.append((words.get(stage, f"it got past {stage}"), got_past))
    return [*levels, ("every test passes", [found.passed for found in measurements])]


def kinds(measurement: Measurement) -> dict[str, tuple[int, int, int]]:
    """Kind of task: (tasks, verdicts, of them passed)."""
    found: dict[str, list[ProblemFigures]] = defaultdict(list)
    for problem in measurement.problems:
        if problem.kind is not None:
            found[problem.kind].append(problem)
    return {
        kind: (len(problems), sum(p.graded for p in problems), sum(p.passed for p in problems))
        for kind, problems in found.items()
    }


# ---------------------------------------------------------------------------------------------------- side by side


def pairs_of(before: Iterable[Json], after: Iterable[Json]) -> list[Pair]:
    """One pair of completions per task that was judged both times: the greedy ones, else the first sampled ones."""
    first, last = _one_each(before), _one_each(after)
    return [Pair(task, _turn(first[task], last[task]), first[task], last[task]) for task in first if task in last]


def _one_each(records: Iterable[Json]) -> dict[str, Json]:
    greedy: dict[str, Json] = {}
    sampled: dict[str, Json] = {}
    for record in records:
        if is_verdict(record):
            (greedy if record.get("mode") == "greedy" else sampled).setdefault(task_of(record), record)
    return greedy or sampled


def _turn(before: Json, after: Json) -> Turn:
    if before.get("passed") is True:
        return Turn.KEPT if after.get("passed") is True else Turn.LOST
    return Turn.LEARNED if after.get("passed") is True else Turn.STILL_WRONG


def varied(pairs: Sequence[Pair], most: int) -> list[Pair]:
    """Up to `most` of them, in their order, but the first of every kind of task before the second of any."""
    counts: Counter[str] = Counter()
    ranked = []
    for place, pair in enumerate(pairs):
        kind = str(pair.before.get("kind"))
        ranked.append((counts[kind], place, pair))
        counts[kind] += 1
    return [pair for _, _, pair in sorted(ranked, key=lambda entry: entry[:2])[:most]]
