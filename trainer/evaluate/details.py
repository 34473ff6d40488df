"""The finer figures of one way of sampling: stages, causes, lengths, speed, kinds of task. Pure functions of records.

Shares and their intervals are over verdicts, as in `outcome`; what was not written or not judged is in none of them.
Quantiles are interpolated between neighbours.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

import numpy as np

from gradus.descriptions import GraderDescription, description_of
from trainer.evaluate.causes import PASSED, cause_of
from trainer.evaluate.figures import Part, Quantiles, Rate, by_task, quantiles, rate_of, share_over_tasks
from trainer.evaluate.intervals import mean_with_interval
from trainer.evaluate.invented import Invented, invented_of
from trainer.evaluate.refusing import declined_of
from trainer.evaluate.sizes import Sizes, sizes_of
from trainer.evaluate.stages import Test, grader_of, is_passed, rate_test
from trainer.languages import language_of

Record = Mapping[str, Any]
SCORE_BINS = 10
LENGTH_BINS = 12


class Speed(Part):
    """What writing took. None where the source did not say."""

    latency_s: Quantiles | None
    """Of a request; in this process, of the batch that a completion was in."""
    tokens_per_s: float | None
    """All completion tokens by the time in which anything was being written."""
    tokens_per_s_each: Quantiles | None
    """Of each completion by itself."""
    prompt_tokens: int | None
    completion_tokens: int | None
    retried: int
    """Completions that took more than one attempt."""


class Truncated(Part):
    """Completions that were cut off at the limit."""

    completions: int
    passed: int


class Histogram(Part):
    edges: tuple[float, ...]
    """One more than counts; a bin holds its lower edge, the last one both."""
    counts: tuple[int, ...]


class Group(Part):
    """The tasks that share a kind or a difficulty."""

    tasks: int
    graded: int
    passed: int
    rate: Rate | None
    mean_reward: float | None
    partial_tests: float | None


class Details(Part):
    rates: dict[str, Rate]
    """Shares of verdicts by the names and rules of the grader's description, in its order."""
    partial_tests: Rate | None
    """The mean share of tests that passed; an answer that ran none has 0."""
    causes: dict[str, int]
    """What stopped the completions that did not pass, most frequent first."""
    truncated: Truncated | None
    """None where nobody said how completions ended."""
    generation_errors: dict[str, int]
    """By kind."""
    speed: Speed
    completion_tokens: Quantiles | None
    completion_chars: Quantiles | None
    imperative: Rate | None
    """Share of the completions that assign or loop; None for languages where nothing tells."""
    groups: dict[str, dict[str, Group]]
    """By column, `kind` or `difficulty`, and by its values."""
    rewards: Histogram | None
    lengths: Histogram | None
    """In tokens where they are known, else in characters."""
    lengths_in: str
    invented: Invented | None = None
    """Names that the compiler did not find; None for graders without a language, and in files of earlier versions."""
    sizes: Sizes | None = None
    """Lines of code; None where answers are none, and in files of earlier versions."""
    declined: Rate | None = None
    """Share of answers that decline a task; None where answers are no code, and in files of earlier versions."""


def details_of(records: Sequence[Record], description: GraderDescription | None = None, *, seed: int = 0) -> Details:
    """The finer figures of the records of one way of sampling; by default of the grader that the records name."""
    verdicts = [record for record in records if is_judged(record)]
    if description is None or not verdicts:
        description = description_of(grader_of(verdicts))
    is_imperative = language_of(description.name).is_imperative
    written = [record for record in records if record.get("status") != "generation_error"]
    lost = [record for record in records if record.get("status") == "generation_error"]
    tokens = [record["completion_tokens"] for record in written if record.get("completion_tokens") is not None]
    chars = [len(record["completion"]) for record in written]
    in_tokens = len(tokens) == len(written) > 0
    return Details(
        rates={
            name: rate
            for name, rule in description.rates.items()
            if (rate := _share(verdicts, rate_test(rule, description.stages), seed)) is not None
        },
        partial_tests=rate_of(
            mean_with_interval([fmean(map(partial_of, group)) for group in by_task(verdicts)], seed=seed)
        )
        if any(record.get("tests") for record in verdicts)
        else None,
        causes=dict(Counter(cause for record in records if (cause := cause_of(record)) != PASSED).most_common()),
        truncated=_truncated(written),
        generation_errors=dict(Counter(cause_of(record).partition(":")[2] for record in lost)),
        speed=_speed(written),
        completion_tokens=quantiles(tokens),
        completion_chars=quantiles(chars),
        imperative=_share(verdicts, lambda r: is_imperative(str(r["completion"])), seed) if is_imperative else None,
        groups={name: dict(_groups(verdicts, name, seed)) for name in group_columns(verdicts)},
        rewards=histogram([record["reward"] for record in verdicts], SCORE_BINS, (0.0, 1.0)),
        lengths=histogram(tokens if in_tokens else chars, LENGTH_BINS),
        lengths_in="tokens" if in_tokens else "characters",
        invented=invented_of(verdicts, description.name, seed),
        sizes=sizes_of(verdicts, description.fences),
        declined=declined_of(verdicts, description, seed),
    )


def is_judged(record: Record) -> bool:
    """It has a verdict."""
    return record.get("status", "graded") == "graded" and record.get("fault") is None and record["reward"] is not None


def partial_of(record: Record) -> float:
    """The share of tests that passed."""
    tests = record.get("tests")
    return tests["passed"] / tests["total"] if tests and tests["total"] else 0.0


def _share(verdicts: Sequence[Record], test: Test, seed: int) -> Rate | None:
    """The share of verdicts with that property; tasks weigh alike, and the interval is over tasks."""
    return share_over_tasks([[test(record) for record in group] for group in by_task(verdicts)], seed)


def group_columns(rows: Sequence[Record]) -> list[str]:
    """Of `difficulty` and `kind` those that rows have; a kind that only repeats the difficulty is none."""
    given = [name for name in ("difficulty", "kind") if any(row.get(name) is not None for row in rows)]
    same = all(row.get("kind") == row.get("difficulty") for row in rows)
    return given[:1] if same else given


def _groups(verdicts: Sequence[Record], column: str, seed: int) -> Iterator[tuple[str, Group]]:
    by_value: dict[str, list[Record]] = {}
    for record in verdicts:
        by_value.setdefault("none" if record.get(column) is None else str(record[column]), []).append(record)
    for value in sorted(by_value):
        found = by_value[value]
        yield (
            value,
            Group(
                tasks=len(by_task(found)),
                graded=len(found),
                passed=sum(map(is_passed, found)),
                rate=_share(found, is_passed, seed),
                mean_reward=fmean(record["reward"] for record in found),
                partial_tests=fmean(map(partial_of, found)) if any(r.get("tests") for r in found) else None,
            ),
        )


# ------------------------------------------------------------------------------------------------ lengths and speed


def histogram(values: Sequence[float], bins: int, span: tuple[float, float] | None = None) -> Histogram | None:
    """Counts in `bins` of equal width over `span`; without one, in at most so many of a round width from 0 on."""
    if not values:
        return None
    low, high = span or (0.0, 0.0)
    if span is None:
        width = _round_width(max(1.0, float(max(values))) / bins)
        # The largest value lies within the last bin, also where it is a multiple of the width.
        bins = math.ceil(max(1.0, float(max(values))) / width)
        high = bins * width
    counts, edges = np.histogram(np.clip(np.asarray(values, dtype=np.float64), low, high), bins=bins, range=(low, high))
    return Histogram(edges=tuple(round(float(e), 9) for e in edges), counts=tuple(int(count) for count in counts))


def _round_width(rough: float) -> float:
    """The next number of form 1, 2 or 5 times a power of ten, 1 at least."""
    power = 10.0 ** math.floor(math.log10(rough))
    return max(1.0, next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * (1 - 1e-9)))


def _truncated(written: Sequence[Record]) -> Truncated | None:
    if all(record.get("finish_reason") is None for record in written):
        return None
    cut = [record for record in written if record.get("finish_reason") == "length"]
    return Truncated(completions=len(cut), passed=sum(map(is_passed, cut)))


def _speed(written: Sequence[Record]) -> Speed:
    timed = [record for record in written if record.get("latency_s") is not None]
    counted = [record for record in timed if record.get("completion_tokens") is not None]
    spent_s = busy_s(timed)
    each = [record["completion_tokens"] / record["latency_s"] for record in counted if record["latency_s"] > 0]
    total = sum(record["completion_tokens"] for record in counted) if counted else None
    asked = [record["prompt_tokens"] for record in written if record.get("prompt_tokens") is not None]
    return Speed(
        latency_s=quantiles([record["latency_s"] for record in timed]),
        tokens_per_s=total / spent_s if total is not None and spent_s > 0 else None,
        tokens_per_s_each=quantiles(each),
        prompt_tokens=sum(asked) if asked else None,
        completion_tokens=total,
        retried=sum((record.get("attempts") or 1) > 1 for record in written),
    )


def busy_s(timed: Sequence[Record]) -> float:
    """How long anything was being written: pauses between two sittings do not count."""
    ends = [record for record in timed if record.get("written_at") is not None]
    spans = sorted((record["written_at"] - record["latency_s"], record["written_at"]) for record in ends)
    total_s, until = 0.0, float("-inf")
    for start, end in spans:
        total_s += max(0.0, end - max(start, until))
        until = max(until, end)
    return total_s
