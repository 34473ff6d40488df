"""The finer figures of one way of sampling: stages, causes, lengths, speed, kinds of task, repair.

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
from gradus.languages import load_language
from trainer.evaluate.intervals import (
    Part,
    Quantiles,
    Rate,
    compute_mean,
    compute_quantiles,
    compute_share,
    group_by_task,
)
from trainer.evaluate.verdicts import (
    PASSED,
    Record,
    Test,
    build_rate_test,
    count_lines,
    extract_code,
    find_cause,
    is_judged,
    is_passed,
    list_invented_names,
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


def compute_details(
    records: Sequence[Record], description: GraderDescription, *, seed: int = 0
) -> Details:
    """Return the finer figures of the records of one way of sampling; `description` is the
    grader's."""
    verdicts = list(filter(is_judged, records))
    fences = description.fences
    is_imperative = load_language(description.name).is_imperative
    answers = []
    unwritten = []
    for record in records:
        if record.get("status") == "generation_error":
            unwritten.append(record)
        else:
            answers.append(record)
    shares = {}
    for name, rule in description.rates.items():
        shares[name] = _compute_share(verdicts, build_rate_test(rule, description.stages), seed)
    lengths = [count_lines(extract_code(str(record["completion"]), fences)) for record in verdicts]
    ends = _read_column(answers, "finish_reason")
    causes = Counter(map(find_cause, records))
    del causes[PASSED]
    return Details(
        rates={name: rate for name, rate in shares.items() if rate is not None},
        partial_tests=_compute_partial_tests(verdicts, seed),
        causes=dict(causes.most_common()),
        truncated=ends.count("length") if ends else None,
        generation_errors=dict(
            Counter(find_cause(record).partition(":")[2] for record in unwritten)
        ),
        speed=_compute_speed(answers),
        completion_tokens=compute_quantiles(_read_column(answers, "completion_tokens")),
        imperative=_compute_share(
            verdicts,
            lambda verdict: is_imperative(extract_code(str(verdict["completion"]), fences)),
            seed,
        )
        if is_imperative
        else None,
        groups={
            name: _group_verdicts(verdicts, name, seed) for name in select_group_columns(verdicts)
        },
        invented=measure_invented_names(verdicts, description.name, seed),
        answer_lines=compute_quantiles(lengths) if fences else None,
        text=compute_text_metrics([str(record["completion"]) for record in answers]),
    )


def _read_column(records: Sequence[Record], column: str) -> list[Any]:
    """Return the values of a column, of the records that have one."""
    return [record[column] for record in records if record.get(column) is not None]


def _compute_partial_tests(verdicts: Sequence[Record], seed: int) -> Rate | None:
    """Return the mean share of tests that passed; an answer that ran none has 0."""
    if not _read_column(verdicts, "tests"):
        return None
    means = []
    for group in group_by_task(verdicts):
        tests = [record.get("tests") or {"passed": 0, "total": 1} for record in group]
        means.append(fmean(counts["passed"] / max(1, counts["total"]) for counts in tests))
    return compute_mean(means, seed=seed)


def measure_invented_names(
    verdicts: Sequence[Record], grader: str, seed: int = 0
) -> HallucinatedNames | None:
    """Return the figures of judged answers; None where the language names none."""
    if load_language(grader).names_stage is None:
        return None
    has_invented: list[list[bool]] = []
    names: Counter[str] = Counter()
    for group in group_by_task(verdicts):
        name_sets = [set(list_invented_names(record, grader)) for record in group]
        has_invented.append(list(map(bool, name_sets)))
        for invented in name_sets:
            names.update(invented)
    # Among equally frequent ones, the first in the alphabet.
    ranked = sorted(names.items(), key=lambda item: (-item[1], item[0]))
    return HallucinatedNames(
        answers=compute_share(has_invented, seed),
        names=dict(ranked[:MOST_NAMES]),
    )


def _compute_share(verdicts: Sequence[Record], test: Test, seed: int) -> Rate | None:
    """Return the share of verdicts with that property; tasks weigh alike, and the interval is over
    tasks."""
    return compute_share([list(map(test, group)) for group in group_by_task(verdicts)], seed)


def select_group_columns(rows: Sequence[Record]) -> list[str]:
    """Return columns that rows have, of `difficulty` and `kind`; a kind that only repeats the
    difficulty is left out."""
    columns = [name for name in ("difficulty", "kind") if _read_column(rows, name)]
    same = all(row.get("kind") == row.get("difficulty") for row in rows)
    return columns[:1] if same else columns


def _group_verdicts(verdicts: Sequence[Record], column: str, seed: int) -> dict[str, Group]:
    by_value: dict[str, list[Record]] = {}
    for record in verdicts:
        value = record.get(column)
        by_value.setdefault("none" if value is None else str(value), []).append(record)
    groups = {}
    for value, group in sorted(by_value.items()):
        groups[value] = Group(
            tasks=len(group_by_task(group)),
            rate=_compute_share(group, is_passed, seed),
            mean_reward=fmean(_read_column(group, "reward")),
        )
    return groups


def _compute_speed(answers: Sequence[Record]) -> Speed:
    timed = [record for record in answers if record.get("latency_s") is not None]
    tokens = _read_column(timed, "completion_tokens")
    prompt_tokens = _read_column(answers, "prompt_tokens")
    spent_s = compute_busy_s(timed)
    return Speed(
        latency_s=compute_quantiles(_read_column(timed, "latency_s")),
        tokens_per_s=sum(tokens) / spent_s if tokens and spent_s > 0 else None,
        prompt_tokens=sum(prompt_tokens) if prompt_tokens else None,
        completion_tokens=sum(tokens) if tokens else None,
    )


def compute_busy_s(timed: Sequence[Record]) -> float:
    """Return how long anything was being written: pauses between two sittings do not count."""
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


def compute_text_metrics(texts: Sequence[str]) -> TextMetrics | None:
    """Return the metrics of these completions; None where there is none."""
    if not texts:
        return None
    split = [text.split() for text in texts]
    return TextMetrics(
        distinct_1=_compute_distinct_share(split, 1),
        distinct_2=_compute_distinct_share(split, 2),
        words=fmean(map(len, split)),
    )


def _compute_distinct_share(texts: Sequence[Sequence[str]], length: int) -> float:
    """Return the share of different ones among all runs of so many words; 0 where there is none."""
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


def compute_turns(
    firsts: Sequence[Record], later: Sequence[Record], max_turns: int, *, seed: int = 0
) -> Turns:
    """Return the figures of one way of sampling."""
    chains: dict[tuple[str, int], list[Record]] = {}
    for record in filter(is_judged, firsts):
        chains[record["prompt_id"], record["sample"]] = [record]
    for record in sorted(later, key=lambda row: int(row["turn"])):
        chains.get((record["prompt_id"], record["sample"]), []).append(record)
    ends: dict[str, list[float]] = {}
    for (task, _), chain in chains.items():
        ends.setdefault(task, []).append(_find_green_turn(chain))
    green_by = {}
    for turn in range(1, max_turns + 1):
        rate = compute_share([_check_green(task, turn) for task in ends.values()], seed)
        if rate is not None:
            green_by[turn] = rate
    every_end = [end for task in ends.values() for end in task]
    middle = median(every_end) if every_end else inf
    stopped = [find_cause(chain[-1]) for chain in chains.values() if not is_judged(chain[-1])]
    refused = stopped.count("generation:refused")
    return Turns(
        asked=max_turns,
        chains=len(chains),
        green_by=green_by,
        median_turns=middle if isfinite(middle) else None,
        broken=len(stopped) - refused,
        refused=refused,
    )


def _find_green_turn(chain: Sequence[Record]) -> float:
    """Return the turn in which every test passed, from 1 on; infinite where none did."""
    for turn, record in enumerate(chain, start=1):
        if is_passed(record):
            return turn
    return inf


def _check_green(ends: Sequence[float], turn: int) -> list[bool]:
    return [end <= turn for end in ends]
