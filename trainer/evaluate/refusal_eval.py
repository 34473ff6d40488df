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
from gradus.extract import remove_thinking
from gradus.languages import DECLINE_INSTRUCTION
from trainer.config.run import PromptConfig
from trainer.data.prompts import render_text
from trainer.evaluate.intervals import Rate, compute_share
from trainer.evaluate.plan import EvalPlan, Problem
from trainer.evaluate.setup import (
    SamplingOptions,
    resolve_config,
    resolve_model,
    resolve_prompt_config,
)
from trainer.evaluate.single_sample_runs import (
    UngradedFigures,
    generate_completions,
    print_figures,
    read_named_rows,
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
class DeclineRequest:
    """One thing to ask for."""

    problem: Problem
    pair: str
    can: bool


def main(options: SamplingOptions, data: Path, out: Path) -> int:
    """Ask for everything in a file of pairs; the figures are printed, and the path of their file
    last.

    The same call resumes where it was stopped. Returns 3 when answers were not written, else 0.
    Raises Misuse for rows that are no such asks, and QueueFault when the model's server is away.
    """
    started = time.monotonic()
    options = asyncio.run(resolve_model(options))
    config = resolve_prompt_config(options, resolve_config(options))
    requests = list(read_requests(data, options.limit, config))
    file = out / "declines.jsonl"
    plan, records = generate_completions(
        options, data, [request.problem for request in requests], config, file, keep_special=False
    )
    figures = compute_declines(records, requests, plan, time.monotonic() - started)
    rates: dict[str, Rate | None] = {
        name: getattr(figures, name)
        for name in ("accuracy", "declined_when_due", "answered_when_due")
    }
    lines = [f"{name}: {rate.text if rate else 'none'}" for name, rate in rates.items()]
    return print_figures(figures, lines, out / "declines.json")


def read_requests(data: Path, limit: int | None, config: PromptConfig) -> Iterator[DeclineRequest]:
    """Yield the rows of a file: `id`, `prompt`, `can`, and perhaps `pair` and `kind`. Raises Misuse
    naming the row."""
    for name, row in read_named_rows(data, limit):
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
        yield DeclineRequest(problem, pair, can)


def classify_answer(completion: str) -> Answered:
    """Return what an answer to `DECLINE_INSTRUCTION` is. Both forms at once are neither."""
    visible = remove_thinking(completion)
    has_code = bool(_FENCE.search(visible))
    if has_code is bool(_LINE.search(visible)):
        return "neither"
    return "code" if has_code else "declined"


def compute_declines(
    records: Sequence[Record], requests: Sequence[DeclineRequest], plan: EvalPlan, duration_s: float
) -> Declines:
    """Return the figures of records, one for each thing that was asked for, in their order."""
    answers = []
    for record, request in zip(records, requests, strict=True):
        if record["status"] == "written":
            answers.append((request, classify_answer(str(record["completion"]))))

    def accuracy(can: bool | None = None) -> Rate | None:
        """Over asks that can be done, that cannot, or both."""
        outcomes: dict[str, list[bool]] = {}
        for request, form in answers:
            if can in (None, request.can):
                outcomes.setdefault(request.pair, []).append(
                    form == ("code" if request.can else "declined")
                )
        return compute_share(outcomes.values(), plan.seed)

    return Declines(
        asks=len(answers),
        accuracy=accuracy(),
        declined_when_due=accuracy(can=False),
        answered_when_due=accuracy(can=True),
        neither=sum(form == "neither" for _, form in answers),
        **UngradedFigures.compute_fields(plan, records, duration_s),
    )
