"""`gradus eval-tools`: whether a model calls tools as they are declared, and the one that is due.
Runs no tool.

Trajectories of `gradus tasks trajectories` (or others in its two forms) are cut before each turn of
the assistant; the model is asked for that turn. What it wrote is held to the declared schemas, and
its first call to the trajectory's.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from gradus.errors import Misuse
from trainer.config.run import PromptConfig
from trainer.evaluate.completion_store import is_chat
from trainer.evaluate.intervals import Rate, ratio_over_tasks
from trainer.evaluate.plan import EvalPlan, Problem
from trainer.evaluate.setup import SamplingOptions, with_model
from trainer.evaluate.single_sample_runs import (
    ROLES,
    UngradedFigures,
    asked_for,
    named_rows,
    told_on_terminal,
)
from trainer.evaluate.tool_calls import Tools, calls_in, declared, declared_in_harmony
from trainer.rewards.judge import Record

NONE = "none"
"""Stands for a turn that calls nothing."""


class Calls(UngradedFigures):
    """What came of asking for turns. Intervals are over trajectories, whose turns are alike."""

    schema_: Literal["gradus/calls@1"] = Field("gradus/calls@1", alias="schema")
    trajectories: int
    turns: int
    """That were written."""
    calls: int
    format: Rate | None
    """Share of the calls that are well formed; None where nothing was called at all."""
    malformed: dict[str, int]
    """The other calls, by what is wrong with them."""
    selection: Rate | None
    """Share of the turns whose first call is of the tool that the trajectory calls there, or which
    call none, as it."""
    selection_by: dict[str, Rate]
    """The selection by the tool that is due, `none` where none is."""


@dataclass(frozen=True, slots=True)
class CutPoint:
    """One turn of the assistant that a model is asked for."""

    problem: Problem
    trajectory: str
    tools: Tools
    due: str
    """The tool that the trajectory calls first in this turn, or `none`."""


def main(asked: SamplingOptions, data: Path, out: Path) -> int:
    """Ask for every turn of the assistant in a file of trajectories; the figures are printed, their
    path last.

    The same call resumes where it was stopped. Returns 3 when turns were not written, else 0.
    Raises Misuse for rows that are no trajectories, and QueueFault when the model's server is away.
    """
    started = time.monotonic()
    asked = asyncio.run(with_model(asked))
    points = list(cut_points(data, asked.limit, served=asked.server is not None))
    style: Literal["chat", "plain"] = (
        "chat" if isinstance(points[0].problem.prompt, list) else "plain"
    )
    problems = [point.problem for point in points]
    file = out / "calls.jsonl"
    plan, records = asked_for(
        asked, data, problems, PromptConfig(style=style), file, keep_special=True
    )
    found = calls_of(records, points, plan, time.monotonic() - started)
    lines = [
        f"{rate.text if rate else 'none'} of {of}: {what}"
        for what, rate, of in (
            ("calls are well formed", found.format, f"{found.calls} calls"),
            (
                "turns call the tool that is due, or none as is due",
                found.selection,
                f"{found.turns} turns",
            ),
        )
    ]
    return told_on_terminal(found, lines, out / "calls.json")


def calls_of(
    records: Sequence[Record], points: Sequence[CutPoint], plan: EvalPlan, duration_s: float
) -> Calls:
    """The figures of records, one for each cut point in their order."""
    written = [
        (one, point)
        for one, point in zip(records, points, strict=True)
        if one["status"] == "written"
    ]
    found = [
        (point, calls_in(one["completion"], one.get("tool_calls"), point.tools))
        for one, point in written
    ]
    chosen = [(point, (calls[0].name or "?") if calls else NONE) for point, calls in found]

    def share(held: Sequence[tuple[CutPoint, Sequence[bool]]]) -> Rate | None:
        sums: dict[str, Counter[bool]] = {}
        for point, holds in held:
            sums.setdefault(point.trajectory, Counter()).update(holds)
        return ratio_over_tasks(
            [one[True] for one in sums.values()], [one.total() for one in sums.values()], plan.seed
        )

    return Calls(
        trajectories=len({point.trajectory for point in points}),
        turns=len(written),
        calls=sum(len(calls) for _, calls in found),
        format=share([(point, [call.problem is None for call in calls]) for point, calls in found]),
        malformed=dict(
            Counter(
                call.problem for _, calls in found for call in calls if call.problem
            ).most_common()
        ),
        selection=share([(point, [point.due == name]) for point, name in chosen]),
        selection_by={
            due: rate
            for due in sorted({point.due for point, _ in chosen})
            if (
                rate := share(
                    [(point, [due == name]) for point, name in chosen if point.due == due]
                )
            )
        },
        **UngradedFigures.told(plan, records, duration_s),
    )


def cut_points(data: Path, limit: int | None, *, served: bool) -> Iterator[CutPoint]:
    """Every turn of the assistant: rows have `messages` and `tools`, or `prompt` and `completion`
    in Harmony.

    `served`: messages are for a server, which takes arguments as texts. `limit`: of rows. Raises
    Misuse naming the row, and where there is none.
    """
    kinds: set[bool] = set()
    for name, row in named_rows(data, limit):
        values = row.values
        kinds.add("messages" in values)
        if len(kinds) > 1:
            raise Misuse(f"{row.where}: is of another form than the rows before it")
        try:
            yield from (
                _of_messages(name, values, served)
                if "messages" in values
                else _of_harmony(name, values)
            )
        except ValueError as error:
            raise Misuse(f"{row.where}: {error}") from None


def _of_messages(name: str, values: Mapping[str, Any], served: bool) -> Iterator[CutPoint]:
    messages, tools = values["messages"], values.get("tools")
    if not is_chat(messages, ROLES) or not all(
        _is_call(one) for turn in messages for one in _calls(turn)
    ):
        raise ValueError("messages: are not messages with role and content")
    try:
        listed = json.loads(tools) if isinstance(tools, str) else tools
        schemas = declared(listed)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"tools: {error}") from None
    said = [_as_served(turn) for turn in messages] if served else messages
    places = [place for place, turn in enumerate(messages) if place and turn["role"] == "assistant"]
    if not places:
        raise ValueError("messages: the assistant has no turn behind another one")
    for number, place in enumerate(places, start=1):
        due = next((str(call["function"]["name"]) for call in _calls(messages[place])), NONE)
        yield CutPoint(
            Problem(f"{name}#{number}", said[:place], None, tools=listed), name, schemas, due
        )


def _calls(turn: Mapping[str, Any]) -> Any:
    return turn.get("tool_calls") or ()


def _is_call(call: Any) -> bool:
    function = call.get("function") if isinstance(call, dict) else None
    return (
        isinstance(function, dict)
        and isinstance(function.get("name"), str)
        and "arguments" in function
    )


def _as_served(turn: dict[str, Any]) -> dict[str, Any]:
    """The turn with the arguments of its calls as texts."""
    calls = []
    for call in _calls(turn):
        given = call["function"]["arguments"]
        text = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
        calls.append({**call, "function": {**call["function"], "arguments": text}})
    return {**turn, "tool_calls": calls} if calls else turn


def _of_harmony(name: str, values: Mapping[str, Any]) -> Iterator[CutPoint]:
    prompt, completion = values.get("prompt"), values.get("completion")
    if not isinstance(prompt, str) or not isinstance(completion, str):
        raise ValueError(
            "has neither messages and tools, nor prompt and completion (--format harmony"
            " --per-turn)"
        )
    tools = declared_in_harmony(prompt)
    calls = calls_in(completion, None, tools)
    due = (calls[0].name or NONE) if calls else NONE
    yield CutPoint(Problem(name, prompt, None), name.rpartition("#")[0] or name, tools, due)
