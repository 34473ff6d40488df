"""The finer figures of one way of sampling: stages, causes, lengths, speed, kinds of task, repair.
Pure functions.

Shares and their intervals are over verdicts, and tasks weigh alike; what was not written or not
judged is in none of them. Quantiles are interpolated between neighbours.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import inf, isfinite
from statistics import fmean, median
from typing import Any

from gradus.descriptions import GraderDescription
from gradus.languages import language_of
from trainer.evaluate.intervals import (
    Part,
    Quantiles,
    Rate,
    by_task,
    mean_with_interval,
    quantiles,
    share_over_tasks,
)
from trainer.evaluate.verdicts import (
    PASSED,
    Record,
    Test,
    cause_of,
    code_of,
    count_lines,
    invented_names,
    is_judged,
    is_passed,
    rate_test,
)

MOST_NAMES = 20


class Speed(Part):
    """What writing took. None where the source did not say."""

    latency_s: Quantiles | None
    """Time of each completion's request; in this process, time of the batch that it was in."""
    tokens_per_s: float | None
    """All completion tokens by the time in which anything was being written."""
    prompt_tokens: int | None
    completion_tokens: int | None


class Group(Part):
    """The tasks that share a kind or a difficulty."""

    tasks: int
    rate: Rate | None
    mean_reward: float


class HallucinatedNames(Part):
    """Names that the compiler did not find: functions, methods, modules, fields, types and crates.

    A forgotten import counts too.
    """

    answers: Rate | None
    """Share of judged answers with at least one; tasks weigh alike."""
    names: dict[str, int]
    """The most frequent, each with the number of answers that have it."""


class TextMetrics(Part):
    """Words are what stands between white space."""

    distinct_1: float
    """Different words as a share of all words of all completions (Li et al. 2016)."""
    distinct_2: float
    """Different pairs of neighbours as a share of all."""
    words: float


class Details(Part):
    rates: dict[str, Rate]
    """Shares of verdicts by the names and rules of the grader's description, in its order."""
    partial_tests: Rate | None
    """The mean share of tests that passed; an answer that ran none has 0."""
    causes: dict[str, int]
    """What stopped the completions that did not pass, most frequent first."""
    truncated: int | None
    """Completions that were cut off at the limit; None where the source did not report how they
    ended."""
    generation_errors: dict[str, int]
    speed: Speed
    completion_tokens: Quantiles | None
    imperative: Rate | None
    """Share of the completions that assign or loop; None for languages where nothing tells."""
    groups: dict[str, dict[str, Group]]
    invented: HallucinatedNames | None
    answer_lines: Quantiles | None
    """Lines of code that are not blank, over judged answers; None where answers are no code."""
    text: TextMetrics | None


def details_of(
    records: Sequence[Record], description: GraderDescription, *, seed: int = 0
) -> Details:
    """The finer figures of the records of one way of sampling; `description` is the grader's."""
    verdicts = [record for record in records if is_judged(record)]
    fences = description.fences
    is_imperative = language_of(description.name).is_imperative
    written = [record for record in records if record.get("status") != "generation_error"]
    lost = [record for record in records if record.get("status") == "generation_error"]
    shares = {
        name: _share(verdicts, rate_test(rule, description.stages), seed)
        for name, rule in description.rates.items()
    }
    lengths = [count_lines(code_of(str(record["completion"]), fences)) for record in verdicts]
    ends = _known(written, "finish_reason")
    causes = Counter(cause_of(record) for record in records)
    del causes[PASSED]
    return Details(
        rates={name: rate for name, rate in shares.items() if rate is not None},
        partial_tests=_partial_tests(verdicts, seed),
        causes=dict(causes.most_common()),
        truncated=ends.count("length") if ends else None,
        generation_errors=dict(Counter(cause_of(record).partition(":")[2] for record in lost)),
        speed=_speed(written),
        completion_tokens=quantiles(_known(written, "completion_tokens")),
        imperative=_share(
            verdicts, lambda one: is_imperative(code_of(str(one["completion"]), fences)), seed
        )
        if is_imperative
        else None,
        groups={name: _groups(verdicts, name, seed) for name in group_columns(verdicts)},
        invented=invented_of(verdicts, description.name, seed),
        answer_lines=quantiles(lengths) if fences else None,
        text=text_metrics([str(record["completion"]) for record in written]),
    )


def _known(records: Sequence[Record], column: str) -> list[Any]:
    """The values of a column, of the records that have one."""
    return [record[column] for record in records if record.get(column) is not None]


def _partial_tests(verdicts: Sequence[Record], seed: int) -> Rate | None:
    """The mean share of tests that passed; an answer that ran none has 0."""
    if not _known(verdicts, "tests"):
        return None
    means = []
    for group in by_task(verdicts):
        tests = [record.get("tests") or {"passed": 0, "total": 1} for record in group]
        means.append(fmean(one["passed"] / max(1, one["total"]) for one in tests))
    return mean_with_interval(means, seed=seed)


def invented_of(verdicts: Sequence[Record], grader: str, seed: int = 0) -> HallucinatedNames | None:
    """The figures of judged answers; None where the language names none."""
    if language_of(grader).names_stage is None:
        return None
    has_invented: list[list[bool]] = []
    names: Counter[str] = Counter()
    for group in by_task(verdicts):
        found = [set(invented_names(record, grader)) for record in group]
        has_invented.append(list(map(bool, found)))
        for invented in found:
            names.update(invented)
    # Among equally frequent ones, the first in the alphabet.
    ranked = sorted(names.items(), key=lambda item: (-item[1], item[0]))
    return HallucinatedNames(
        answers=share_over_tasks(has_invented, seed),
        names=dict(ranked[:MOST_NAMES]),
    )


def _share(verdicts: Sequence[Record], test: Test, seed: int) -> Rate | None:
    """The share of verdicts with that property; tasks weigh alike, and the interval is over
    tasks."""
    return share_over_tasks([list(map(test, group)) for group in by_task(verdicts)], seed)


def group_columns(rows: Sequence[Record]) -> list[str]:
    """Columns that rows have, of `difficulty` and `kind`; a kind that only repeats the difficulty
    is left out."""
    given = [name for name in ("difficulty", "kind") if _known(rows, name)]
    same = all(row.get("kind") == row.get("difficulty") for row in rows)
    return given[:1] if same else given


def _groups(verdicts: Sequence[Record], column: str, seed: int) -> dict[str, Group]:
    by_value: dict[str, list[Record]] = {}
    for record in verdicts:
        value = record.get(column)
        by_value.setdefault("none" if value is None else str(value), []).append(record)
    return {
        value: Group(
            tasks=len(by_task(found)),
            rate=_share(found, is_passed, seed),
            mean_reward=fmean(_known(found, "reward")),
        )
        for value, found in sorted(by_value.items())
    }


def _speed(written: Sequence[Record]) -> Speed:
    timed = [record for record in written if record.get("latency_s") is not None]
    tokens = _known(timed, "completion_tokens")
    asked = _known(written, "prompt_tokens")
    spent_s = busy_s(timed)
    return Speed(
        latency_s=quantiles(_known(timed, "latency_s")),
        tokens_per_s=sum(tokens) / spent_s if tokens and spent_s > 0 else None,
        prompt_tokens=sum(asked) if asked else None,
        completion_tokens=sum(tokens) if tokens else None,
    )


def busy_s(timed: Sequence[Record]) -> float:
    """How long anything was being written: pauses between two sittings do not count."""
    ends = [record for record in timed if record.get("written_at") is not None]
    spans = sorted(
        (record["written_at"] - record["latency_s"], record["written_at"]) for record in ends
    )
    total_s = 0.0
    until = -inf
    for start, end in spans:
        total_s += max(0.0, end - max(start, until))
        until = max(until, end)
    return total_s


# ---------------------------------------------------------------------- variety of texts


def text_metrics(texts: Sequence[str]) -> TextMetrics | None:
    """The metrics of these completions; None where there is none."""
    if not texts:
        return None
    split = [text.split() for text in texts]
    return TextMetrics(
        distinct_1=_distinct(split, 1),
        distinct_2=_distinct(split, 2),
        words=fmean(map(len, split)),
    )


def _distinct(texts: Sequence[Sequence[str]], length: int) -> float:
    """The share of different ones among all runs of so many words; 0 where there is none."""
    runs: list[tuple[str, ...]] = []
    for words in texts:
        runs += zip(*(words[start:] for start in range(length)), strict=False)
    return len(set(runs)) / len(runs) if runs else 0.0


# ------------------------------------------------------------------------------------------- turns


class Turns(Part):
    """What came of asking again. Shares are of chains; tasks weigh alike, and intervals are over
    tasks."""

    asked: int
    chains: int
    green_by: dict[int, Rate]
    """By turn: the share that is green in this turn or an earlier one. Turn 1 is pass@1."""
    median_turns: float | None
    """Over all chains, where one that never got green took more turns than any; None where that is
    the median."""
    broken: int
    """Chains that ended with a fault or a generation error, other than those below: counted as not
    green."""
    refused: int
    """Chains that ended since their server, or the model's window, takes no prompt so long: counted
    as not green."""


def turns_of(
    firsts: Sequence[Record], later: Sequence[Record], asked: int, *, seed: int = 0
) -> Turns:
    """The figures of one way of sampling."""
    chains: dict[tuple[str, int], list[Record]] = {}
    for record in filter(is_judged, firsts):
        chains[record["prompt_id"], record["sample"]] = [record]
    for record in sorted(later, key=lambda one: int(one["turn"])):
        chains.get((record["prompt_id"], record["sample"]), []).append(record)
    ends: dict[str, list[float]] = {}
    for (task, _), chain in chains.items():
        ends.setdefault(task, []).append(_green_turn(chain))
    green_by = {}
    for turn in range(1, asked + 1):
        rate = share_over_tasks([_greens(task, turn) for task in ends.values()], seed)
        if rate is not None:
            green_by[turn] = rate
    every_end = [end for task in ends.values() for end in task]
    middle = median(every_end) if every_end else inf
    stopped = [cause_of(chain[-1]) for chain in chains.values() if not is_judged(chain[-1])]
    refused = stopped.count("generation:refused")
    return Turns(
        asked=asked,
        chains=len(chains),
        green_by=green_by,
        median_turns=middle if isfinite(middle) else None,
        broken=len(stopped) - refused,
        refused=refused,
    )


def _green_turn(chain: Sequence[Record]) -> float:
    """The turn in which every test passed, from 1 on; infinite where none did."""
    for turn, record in enumerate(chain, start=1):
        if is_passed(record):
            return turn
    return inf


def _greens(ends: Sequence[float], turn: int) -> list[bool]:
    return [end <= turn for end in ends]
