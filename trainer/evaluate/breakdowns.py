"""The finer figures of one way of sampling: stages, causes, lengths, speed, kinds of task, repair.
Pure functions.

Shares and their intervals are over verdicts, and tasks weigh alike; what was not written or not
judged is in none of them. Quantiles are interpolated between neighbours.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from math import inf, isfinite
from statistics import fmean, median

import numpy as np

from gradus.descriptions import GraderDescription, description_of
from gradus.languages import language_of
from trainer.evaluate.intervals import (
    Part,
    Quantiles,
    Rate,
    by_task,
    mean_with_interval,
    quantiles,
    ratio_over_tasks,
    share_over_tasks,
)
from trainer.evaluate.verdicts import (
    PASSED,
    Record,
    Test,
    cause_of,
    changed_lines,
    code_lines,
    code_of,
    grader_of,
    invented_names,
    is_declined,
    is_judged,
    is_passed,
    rate_test,
)

SCORE_BINS = 10
LENGTH_BINS = 12
MOST_NAMES = 20
REPEATED = 4
"""Words of a run that counts as repeated when it occurs again in the same completion."""


class Speed(Part):
    """What writing took. None where the source did not say."""

    latency_s: Quantiles | None
    """Time of each completion's request; in this process, time of the batch that it was in."""
    tokens_per_s: float | None
    """All completion tokens by the time in which anything was being written."""
    tokens_per_s_each: Quantiles | None
    """Rates of single completions, by their own time."""
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


class HallucinatedNames(Part):
    """Names that the compiler did not find: functions, methods, modules, fields, types and crates.

    A forgotten import counts too.
    """

    answers: Rate | None
    """Share of judged answers with at least one; tasks weigh alike."""
    errors: Rate | None
    """Share of the compiler's errors that report one, of all in all judged answers; None without
    errors."""
    names: dict[str, int]
    """The most frequent, each with the number of answers that have it."""


class Sizes(Part):
    """Lines of code, blank ones left out. Quantiles are over judged answers."""

    answer_lines: Quantiles | None
    """Lines of the answer."""
    changed_lines: Quantiles | None
    """Lines that differ between the task's `stub` and the answer; None where no task has one."""


class TextMetrics(Part):
    """Words are what stands between white space."""

    distinct_1: float
    """Different words as a share of all words of all completions (Li et al. 2016)."""
    distinct_2: float
    """Different pairs of neighbours as a share of all."""
    repetition: float
    """Share of a completion's runs of four words that stood in it before; the mean over
    completions."""
    words: float
    """Words of a completion, on average."""


class Details(Part):
    rates: dict[str, Rate]
    """Shares of verdicts by the names and rules of the grader's description, in its order."""
    partial_tests: Rate | None
    """The mean share of tests that passed; an answer that ran none has 0."""
    causes: dict[str, int]
    """What stopped the completions that did not pass, most frequent first."""
    truncated: Truncated | None
    """None where the source did not report how completions ended."""
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
    invented: HallucinatedNames | None = None
    """Names that the compiler did not find; None for graders without a language, and in files of
    earlier versions."""
    sizes: Sizes | None = None
    """Lines of code; None where answers are none, and in files of earlier versions."""
    declined: Rate | None = None
    """Share of answers that decline a task; None where answers are no code, and in files of earlier
    versions."""
    text: TextMetrics | None = None
    """Variety and repetition of the completions; None in files of earlier versions."""


def details_of(
    records: Sequence[Record], description: GraderDescription | None = None, *, seed: int = 0
) -> Details:
    """The finer figures of the records of one way of sampling; by default of the grader that the
    records name."""
    verdicts = [record for record in records if is_judged(record)]
    if description is None or not verdicts:
        description = description_of(grader_of(verdicts))
    is_imperative, fences = language_of(description.name).is_imperative, description.fences
    written = [record for record in records if record.get("status") != "generation_error"]
    lost = [record for record in records if record.get("status") == "generation_error"]
    cut = [record for record in written if record.get("finish_reason") == "length"]
    tokens = [
        record["completion_tokens"]
        for record in written
        if record.get("completion_tokens") is not None
    ]
    chars = [len(record["completion"]) for record in written]
    in_tokens = len(tokens) == len(written) > 0
    codes = (
        [(code_of(str(one["completion"]), fences), one.get("stub")) for one in verdicts]
        if fences
        else []
    )
    return Details(
        rates={
            name: rate
            for name, rule in description.rates.items()
            if (rate := _share(verdicts, rate_test(rule, description.stages), seed)) is not None
        },
        partial_tests=mean_with_interval(
            [fmean(map(_partial, group)) for group in by_task(verdicts)], seed=seed
        )
        if any(record.get("tests") for record in verdicts)
        else None,
        causes=dict(
            Counter(
                cause for record in records if (cause := cause_of(record)) != PASSED
            ).most_common()
        ),
        truncated=Truncated(completions=len(cut), passed=sum(map(is_passed, cut)))
        if any(record.get("finish_reason") is not None for record in written)
        else None,
        generation_errors=dict(Counter(cause_of(record).partition(":")[2] for record in lost)),
        speed=_speed(written),
        completion_tokens=quantiles(tokens),
        completion_chars=quantiles(chars),
        imperative=_share(
            verdicts, lambda r: is_imperative(code_of(str(r["completion"]), fences)), seed
        )
        if is_imperative
        else None,
        groups={name: _groups(verdicts, name, seed) for name in group_columns(verdicts)},
        rewards=histogram([record["reward"] for record in verdicts], SCORE_BINS, (0.0, 1.0)),
        lengths=histogram(tokens if in_tokens else chars, LENGTH_BINS),
        lengths_in="tokens" if in_tokens else "characters",
        invented=invented_of(verdicts, description.name, seed),
        sizes=Sizes(
            answer_lines=quantiles([len(code_lines(code)) for code, _ in codes]),
            changed_lines=quantiles(
                [changed_lines(stub, code) for code, stub in codes if isinstance(stub, str)]
            ),
        )
        if fences
        else None,
        declined=_share(verdicts, lambda record: is_declined(record, description), seed)
        if fences
        else None,
        text=text_metrics([str(record["completion"]) for record in written]),
    )


def invented_of(verdicts: Sequence[Record], grader: str, seed: int = 0) -> HallucinatedNames | None:
    """The figures of judged answers; None where the language names none."""
    if language_of(grader).names_stage is None:
        return None
    tasks = [[invented_names(record, grader) for record in group] for group in by_task(verdicts)]
    # Names of one answer count once; among equally frequent ones, the first in the alphabet.
    names = Counter(name for task in tasks for _, invented in task for name in {*invented})
    return HallucinatedNames(
        answers=share_over_tasks(
            [[bool(invented) for _, invented in task] for task in tasks], seed
        ),
        errors=ratio_over_tasks(
            [sum(len(invented) for _, invented in task) for task in tasks],
            [sum(errors for errors, _ in task) for task in tasks],
            seed,
        ),
        names=dict(sorted(names.items(), key=lambda item: (-item[1], item[0]))[:MOST_NAMES]),
    )


def _partial(record: Record) -> float:
    """The share of tests that passed."""
    tests = record.get("tests")
    return tests["passed"] / tests["total"] if tests and tests["total"] else 0.0


def _share(verdicts: Sequence[Record], test: Test, seed: int) -> Rate | None:
    """The share of verdicts with that property; tasks weigh alike, and the interval is over
    tasks."""
    return share_over_tasks(
        [[test(record) for record in group] for group in by_task(verdicts)], seed
    )


def group_columns(rows: Sequence[Record]) -> list[str]:
    """Columns that rows have, of `difficulty` and `kind`; a kind that only repeats the difficulty
    is left out."""
    given = [
        name for name in ("difficulty", "kind") if any(row.get(name) is not None for row in rows)
    ]
    same = all(row.get("kind") == row.get("difficulty") for row in rows)
    return given[:1] if same else given


def _groups(verdicts: Sequence[Record], column: str, seed: int) -> dict[str, Group]:
    by_value: dict[str, list[Record]] = {}
    for record in verdicts:
        by_value.setdefault(
            "none" if record.get(column) is None else str(record[column]), []
        ).append(record)
    return {
        value: Group(
            tasks=len(by_task(found)),
            graded=len(found),
            passed=sum(map(is_passed, found)),
            rate=_share(found, is_passed, seed),
            mean_reward=fmean(record["reward"] for record in found),
            partial_tests=fmean(map(_partial, found))
            if any(r.get("tests") for r in found)
            else None,
        )
        for value, found in sorted(by_value.items())
    }


# ---------------------------------------------------------------------- lengths and speed


def histogram(
    values: Sequence[float], bins: int, span: tuple[float, float] | None = None
) -> Histogram | None:
    """Counts in `bins` of equal width over `span`; without one, in at most so many of a round width
    from 0 on."""
    if not values:
        return None
    if span is None:
        most = max(1.0, float(max(values)))
        power = 10.0 ** math.floor(math.log10(most / bins))
        rounds = (factor * power for factor in (1, 2, 5, 10))
        width = max(1.0, next(one for one in rounds if one >= most / bins * (1 - 1e-9)))
        # The largest value lies within the last bin, also where it is a multiple of the width.
        bins = math.ceil(most / width)
        span = (0.0, bins * width)
    counts, edges = np.histogram(
        np.clip(np.asarray(values, dtype=np.float64), *span), bins=bins, range=span
    )
    return Histogram(
        edges=tuple(round(float(e), 9) for e in edges), counts=tuple(int(count) for count in counts)
    )


def _speed(written: Sequence[Record]) -> Speed:
    timed = [record for record in written if record.get("latency_s") is not None]
    counted = [record for record in timed if record.get("completion_tokens") is not None]
    spent_s = busy_s(timed)
    each = [
        record["completion_tokens"] / record["latency_s"]
        for record in counted
        if record["latency_s"] > 0
    ]
    total = sum(record["completion_tokens"] for record in counted) if counted else None
    asked = [
        record["prompt_tokens"] for record in written if record.get("prompt_tokens") is not None
    ]
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
    spans = sorted(
        (record["written_at"] - record["latency_s"], record["written_at"]) for record in ends
    )
    total_s, until = 0.0, float("-inf")
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
        distinct_1=_distinct(run for words in split for run in _runs(words, 1)),
        distinct_2=_distinct(run for words in split for run in _runs(words, 2)),
        repetition=fmean(
            1 - _distinct(_runs(words, REPEATED)) if len(words) > REPEATED else 0.0
            for words in split
        ),
        words=fmean(map(len, split)),
    )


def _runs(words: Sequence[str], length: int) -> Iterator[tuple[str, ...]]:
    return zip(*(words[start:] for start in range(length)), strict=False)


def _distinct(runs: Iterator[tuple[str, ...]]) -> float:
    """The share of different ones; 0 where there is none."""
    found = list(runs)
    return len(set(found)) / len(found) if found else 0.0


# ------------------------------------------------------------------------------------------- turns


class Turns(Part):
    """What came of asking again. Shares are of chains; tasks weigh alike, and intervals are over
    tasks."""

    asked: int
    """How often an answer was asked for, at most."""
    chains: int
    green_by: dict[int, Rate]
    """By turn: the share that is green in this turn or an earlier one. Turn 1 is pass@1."""
    never_green: Rate | None
    median_turns: float | None
    """Over all chains, where one that never got green took more turns than any; None where that is
    the median."""
    median_turns_of_green: float | None
    """Over the chains that got green only: says nothing about how many those are."""
    repair_lines: Quantiles | None = None
    """Lines that changed from the first answer to the one that turned green, of chains that did so
    in a later turn."""
    broken: int
    """Chains that ended with a fault or a generation error, other than those below: counted as not
    green."""
    refused: int
    """Chains that ended since their server, or the model's window, takes no prompt so long: counted
    as not green."""
    completion_tokens_per_green: float | None
    """Tokens of all turns of all chains, divided by the chains that got green; None where tokens
    are not known."""
    prompt_tokens_per_green: float | None
    seconds_per_green: float | None
    """The time in which anything was being written, by the number of chains that got green."""


def turns_of(
    firsts: Sequence[Record],
    later: Sequence[Record],
    asked: int,
    description: GraderDescription | None = None,
    *,
    seed: int = 0,
) -> Turns:
    """The figures of one way of sampling; by default of the grader that the records name."""
    following: dict[tuple[str, int], list[Record]] = {}
    for record in sorted(later, key=lambda one: int(one["turn"])):
        following.setdefault((record["prompt_id"], record["sample"]), []).append(record)
    chains = [
        [first, *following.get((first["prompt_id"], first["sample"]), ())]
        for first in firsts
        if is_judged(first)
    ]
    fences = (description or description_of(grader_of([chain[0] for chain in chains]))).fences
    # The turn in which every test passed, from 1 on; infinite where none did.
    ends = [
        next((turn for turn, one in enumerate(chain, 1) if one["passed"] is True), inf)
        for chain in chains
    ]
    green = [int(end) for end in ends if isfinite(end)]
    repaired = [
        changed_lines(*(code_of(str(chain[n]["completion"]), fences) for n in (0, int(end) - 1)))
        for chain, end in zip(chains, ends, strict=True)
        if 1 < end < inf
    ]
    stopped = [cause_of(chain[-1]) for chain in chains if not is_judged(chain[-1])]
    refused = stopped.count("generation:refused")
    records = [
        record for chain in chains for record in chain if record["status"] != "generation_error"
    ]
    middle = median(ends) if ends else inf

    def share(turn: int, *, is_green: bool = True) -> Rate | None:
        """The share that is green by that turn, or is not."""
        by_chain: dict[str, list[bool]] = {}
        for chain, end in zip(chains, ends, strict=True):
            by_chain.setdefault(str(chain[0]["prompt_id"]), []).append((end <= turn) is is_green)
        return share_over_tasks(by_chain.values(), seed)

    def per_green(column: str) -> float | None:
        """What the records have in that column by the number of green chains; None where one does
        not have it."""
        values = [record.get(column) for record in records]
        return (
            float(sum(filter(None, values))) / len(green) if green and None not in values else None
        )

    return Turns(
        asked=asked,
        chains=len(chains),
        green_by={turn: rate for turn in range(1, asked + 1) if (rate := share(turn)) is not None},
        never_green=share(asked, is_green=False),
        median_turns=middle if isfinite(middle) else None,
        median_turns_of_green=median(green) if green else None,
        repair_lines=quantiles(repaired),
        broken=len(stopped) - refused,
        refused=refused,
        completion_tokens_per_green=per_green("completion_tokens"),
        prompt_tokens_per_green=per_green("prompt_tokens"),
        seconds_per_green=busy_s(records) / len(green)
        if per_green("latency_s") is not None
        else None,
    )
