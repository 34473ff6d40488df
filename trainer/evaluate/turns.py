"""The figures of repair: how many turns answers take until every test passes, and what that costs. Pure; asks nothing.

A chain is a first answer that was judged and all that was asked again after it; it is green from the turn on in which
every test passed. What its end was broken off by, a fault or a generation error, is told apart; it counts as not green
all the same: only chains that are not green can break off, and without them a model would look better than it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, isfinite
from statistics import median
from typing import Any

from gradus.descriptions import GraderDescription, description_of
from trainer.evaluate.details import busy_s, is_judged
from trainer.evaluate.figures import Part, Quantiles, Rate, quantiles, rate_of
from trainer.evaluate.intervals import pass_rate
from trainer.evaluate.sizes import changed_lines, code_of
from trainer.evaluate.stages import grader_of

Record = Mapping[str, Any]


class Turns(Part):
    """What came of asking again. Shares are of chains; tasks weigh alike, and intervals are over tasks."""

    asked: int
    """How often an answer was asked for, at most."""
    chains: int
    green_by: dict[int, Rate]
    """By turn: the share that is green in this turn or an earlier one. Turn 1 is pass@1."""
    never_green: Rate | None
    median_turns: float | None
    """Over all chains, where one that never got green took more turns than any; None where that is the median."""
    median_turns_of_green: float | None
    """Over the chains that got green only: says nothing about how many those are."""
    repair_lines: Quantiles | None = None
    """Lines that changed from the first answer to the one that turned green, of chains that did so in a later turn."""
    broken: int
    """Chains that ended with a fault or a generation error, other than those below: counted as not green."""
    refused: int
    """Chains that ended since their server, or the model's window, takes no prompt so long: counted as not green."""
    completion_tokens_per_green: float | None
    """Of all turns of all chains, by the number of chains that got green; None where tokens are not known."""
    prompt_tokens_per_green: float | None
    seconds_per_green: float | None
    """The time in which anything was being written, by the number of chains that got green."""


@dataclass(frozen=True, slots=True)
class Chain:
    """A first answer and what was asked again after it, in the order of turns."""

    records: tuple[Record, ...]

    @property
    def task(self) -> str:
        return str(self.records[0]["prompt_id"])

    @property
    def green_at(self) -> float:
        """The turn in which every test passed, from 1 on; infinite where none did."""
        return next((turn for turn, one in enumerate(self.records, start=1) if one["passed"] is True), inf)

    @property
    def is_refused(self) -> bool:
        last = self.records[-1]
        return last["status"] == "generation_error" and (last.get("error") or {}).get("kind") == "refused"

    @property
    def is_broken(self) -> bool:
        return not is_judged(self.records[-1]) and not self.is_refused


def chains_of(firsts: Sequence[Record], later: Sequence[Record]) -> list[Chain]:
    """The chains of one way of sampling, from its first answers and those of later turns, in the order of the first."""
    following: dict[tuple[str, int], list[Record]] = {}
    for record in sorted(later, key=lambda one: int(one["turn"])):
        following.setdefault((record["prompt_id"], record["sample"]), []).append(record)
    return [
        Chain((first, *following.get((first["prompt_id"], first["sample"]), ())))
        for first in firsts
        if is_judged(first)
    ]


def turns_of(
    firsts: Sequence[Record],
    later: Sequence[Record],
    asked: int,
    description: GraderDescription | None = None,
    *,
    seed: int = 0,
) -> Turns:
    """The figures of one way of sampling; by default of the grader that the records name."""
    chains = chains_of(firsts, later)
    fences = (description or description_of(grader_of([chain.records[0] for chain in chains]))).fences
    ends = [chain.green_at for chain in chains]
    green = [end for end in ends if isfinite(end)]
    middle = median(ends) if ends else inf
    records = [record for chain in chains for record in chain.records if record["status"] != "generation_error"]
    timed = [record for record in records if record.get("latency_s") is not None]
    return Turns(
        asked=asked,
        chains=len(chains),
        green_by={turn: rate for turn in range(1, asked + 1) if (rate := _share(chains, turn, seed)) is not None},
        never_green=_share(chains, asked, seed, green=False),
        median_turns=middle if isfinite(middle) else None,
        median_turns_of_green=median(green) if green else None,
        repair_lines=quantiles([_repaired(chain, fences) for chain in chains if 1 < chain.green_at < inf]),
        broken=sum(chain.is_broken for chain in chains),
        refused=sum(chain.is_refused for chain in chains),
        completion_tokens_per_green=_per_green(_sum(records, "completion_tokens"), len(green)),
        prompt_tokens_per_green=_per_green(_sum(records, "prompt_tokens"), len(green)),
        seconds_per_green=_per_green(busy_s(timed) if len(timed) == len(records) else None, len(green)),
    )


def _share(chains: Sequence[Chain], turn: int, seed: int, *, green: bool = True) -> Rate | None:
    """The share that is green by that turn, or is not."""
    counts: dict[str, tuple[int, int]] = {}
    for chain in chains:
        total, those = counts.get(chain.task, (0, 0))
        counts[chain.task] = total + 1, those + ((chain.green_at <= turn) is green)
    return rate_of(pass_rate(list(counts.values()), seed=seed))


def _repaired(chain: Chain, fences: Sequence[str]) -> int:
    first, green = (code_of(str(chain.records[n]["completion"]), fences) for n in (0, int(chain.green_at) - 1))
    return changed_lines(first, green)


def _sum(records: Sequence[Record], column: str) -> float | None:
    """None where any is not known."""
    values = [record.get(column) for record in records]
    return None if None in values else float(sum(value for value in values if value is not None))


def _per_green(total: float | None, green: int) -> float | None:
    return total / green if total is not None and green else None
