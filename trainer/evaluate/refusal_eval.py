"""`gradus eval-refusals`: whether a model declines what cannot be done, and nothing else. Grades no
code.

Each thing is asked with the same instruction: code, or one line `CANNOT: reason`. Answers are
judged by that form and by no taste: a text that has neither is wrong either way, so that no phrase
has to be guessed.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import Field

from gradus.errors import Misuse
from gradus.extract import after_thinking
from gradus.languages import DECLINE_INSTRUCTION
from trainer.config.run import PromptConfig
from trainer.data.prompts import render_text
from trainer.evaluate.intervals import Rate, share_over_tasks
from trainer.evaluate.plan import EvalPlan, Problem
from trainer.evaluate.setup import SamplingOptions, config_of, prompt_config, with_model
from trainer.evaluate.single_sample_runs import (
    UngradedFigures,
    asked_for,
    named_rows,
    told_on_terminal,
)
from trainer.rewards.judge import Record

Answered = Literal["code", "declined", "neither"]
_LINE = re.compile(r"^[ \t*_`>]*CANNOT:[ \t*_`]*\S", re.MULTILINE)
_FENCE = re.compile(r"^[ \t]*(?:```|~~~)", re.MULTILINE)


class Declines(UngradedFigures):
    """What came of asking for things that can be done and things that cannot. Intervals are over
    pairs of both."""

    schema_: Literal["gradus/declines@1"] = Field("gradus/declines@1", alias="schema")
    asks: int
    accuracy: Rate | None
    """Share of the answers that decline what cannot be done and have code for what can."""
    declined_when_due: Rate | None
    """Share of the impossible requests that are declined."""
    answered_when_due: Rate | None
    """Share of the possible requests that are answered with code, right or wrong."""
    neither: int
    """Answers with neither code nor the declared line, or with both; wrong either way."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """One thing to ask for."""

    problem: Problem
    pair: str
    can: bool


def main(asked: SamplingOptions, data: Path, out: Path) -> int:
    """Ask for everything in a file of pairs; the figures are printed, and the path of their file
    last.

    The same call resumes where it was stopped. Returns 3 when answers were not written, else 0.
    Raises Misuse for rows that are no such asks, and QueueFault when the model's server is away.
    """
    started = time.monotonic()
    asked = asyncio.run(with_model(asked))
    config = prompt_config(asked, config_of(asked))
    wanted = list(asks_in(data, asked.limit, config))
    file = out / "declines.jsonl"
    plan, records = asked_for(
        asked, data, [one.problem for one in wanted], config, file, keep_special=False
    )
    found = declines_of(records, wanted, plan, time.monotonic() - started)
    rates: dict[str, Rate | None] = {
        what: getattr(found, what)
        for what in ("accuracy", "declined_when_due", "answered_when_due")
    }
    lines = [f"{what}: {rate.text if rate else 'none'}" for what, rate in rates.items()]
    return told_on_terminal(found, lines, out / "declines.json")


def asks_in(data: Path, limit: int | None, config: PromptConfig) -> Iterator[Wanted]:
    """The rows of a file: `id`, `prompt`, `can`, and perhaps `pair` and `kind`. Raises Misuse
    naming the row."""
    for name, row in named_rows(data, limit):
        row.text("id")  # every row needs one
        prompt = row.text("prompt")
        can = row.values.get("can")
        if not isinstance(can, bool):
            raise Misuse(
                f"{row.where}: can: must say true or false: whether what is asked can be done"
            )
        problem = Problem(
            name,
            render_text(config, f"{DECLINE_INSTRUCTION}\n\n{prompt}"),
            None,
        )
        pair = name if row.values.get("pair") in (None, "") else row.text("pair")
        yield Wanted(problem, pair, can)


def answered(completion: str) -> Answered:
    """What an answer to `DECLINE_INSTRUCTION` is. Both forms at once are neither."""
    visible = after_thinking(completion)
    has_code = bool(_FENCE.search(visible))
    if has_code is bool(_LINE.search(visible)):
        return "neither"
    return "code" if has_code else "declined"


def declines_of(
    records: Sequence[Record], wanted: Sequence[Wanted], plan: EvalPlan, duration_s: float
) -> Declines:
    """The figures of records, one for each thing that was asked for, in their order."""
    found = [
        (one, answered(str(record["completion"])))
        for record, one in zip(records, wanted, strict=True)
        if record["status"] == "written"
    ]

    def accuracy(can: bool | None = None) -> Rate | None:
        """Over asks that can be done, that cannot, or both."""
        held: dict[str, list[bool]] = {}
        for one, what in found:
            if can in (None, one.can):
                held.setdefault(one.pair, []).append(what == ("code" if one.can else "declined"))
        return share_over_tasks(held.values(), plan.seed)

    return Declines(
        asks=len(found),
        accuracy=accuracy(),
        declined_when_due=accuracy(can=False),
        answered_when_due=accuracy(can=True),
        neither=sum(what == "neither" for _, what in found),
        **UngradedFigures.told(plan, records, duration_s),
    )
