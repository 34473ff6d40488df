"""`gradus eval-tools`: whether a model calls tools as they are declared, and the one that is due.
Runs no tool.

Trajectories of `gradus tasks trajectories` (or others of its form) are cut before each turn of the
assistant; the model is asked for that turn. What it wrote is held to the declared schemas, and its
first call to the trajectory's.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from gradus.errors import Misuse
from gradus.strict_json import parse_strict_json
from trainer.config.run import PromptConfig
from trainer.evaluate.completion_store import is_chat
from trainer.evaluate.intervals import Rate, compute_ratio
from trainer.evaluate.plan import EvalPlan, Problem
from trainer.evaluate.setup import SamplingOptions, resolve_model
from trainer.evaluate.single_sample_runs import (
    ROLES,
    UngradedFigures,
    generate_completions,
    print_figures,
    read_named_rows,
)
from trainer.evaluate.tool_calls import Tools, build_schemas, extract_calls
from trainer.rewards.judge import Record

NONE = "none"
"""Stands for a turn that calls nothing."""


class Calls(UngradedFigures):
    """What came of asking for turns. Intervals are over trajectories, whose turns are alike."""

    schema_: Literal["gradus/calls@1"] = Field("gradus/calls@1", alias="schema")
    trajectories: int
    turns: int
    calls: int
    format: Rate | None
    """Share of the calls that are well formed; None where nothing was called at all."""
    malformed: dict[str, int]
    """The other calls, by what is wrong with them."""
    selection: Rate | None
    """Share of the turns whose first call is of the tool that the trajectory calls there, or which
    call none, as it."""


@dataclass(frozen=True, slots=True)
class CutPoint:
    """One turn of the assistant that a model is asked for."""

    problem: Problem
    trajectory: str
    tools: Tools
    due: str
    """The tool that the trajectory calls first in this turn, or `none`."""


def main(options: SamplingOptions, data: Path, out: Path) -> int:
    """Ask for every turn of the assistant in a file of trajectories; the figures are printed, their
    path last.

    The same call resumes where it was stopped. Returns 3 when turns were not written, else 0.
    Raises Misuse for rows that are no trajectories, and QueueFault when the model's server is away.
    """
    started = time.monotonic()
    options = asyncio.run(resolve_model(options))
    points = list(read_cut_points(data, options.limit, served=options.server is not None))
    problems = [point.problem for point in points]
    prompt = PromptConfig(style="chat")
    plan, records = generate_completions(
        options, data, problems, prompt, out / "calls.jsonl", keep_special=True
    )
    figures = compute_calls(records, points, plan, time.monotonic() - started)
    lines = [
        f"{figures.format.text if figures.format else 'none'} of {figures.calls} calls are well"
        " formed",
        f"{figures.selection.text if figures.selection else 'none'} of {figures.turns} turns call"
        " the tool that is due, or none as is due",
    ]
    return print_figures(figures, lines, out / "calls.json")


def compute_calls(
    records: Sequence[Record], points: Sequence[CutPoint], plan: EvalPlan, duration_s: float
) -> Calls:
    """Return the figures of records, one for each cut point in their order."""
    answers = []
    for record, point in zip(records, points, strict=True):
        if record["status"] == "written":
            answers.append(
                (point, extract_calls(record["completion"], record.get("tool_calls"), point.tools))
            )
    every_call = [(point.trajectory, call) for point, calls in answers for call in calls]
    selected = []
    for point, calls in answers:
        selected.append((point.trajectory, (calls[0].name if calls else NONE) == point.due))
    problems = Counter(call.problem for _, call in every_call if call.problem is not None)
    return Calls(
        trajectories=len({point.trajectory for point in points}),
        turns=len(answers),
        calls=len(every_call),
        format=_compute_share(
            [(name, call.problem is None) for name, call in every_call], plan.seed
        ),
        malformed=dict(problems.most_common()),
        selection=_compute_share(selected, plan.seed),
        **UngradedFigures.compute_fields(plan, records, duration_s),
    )


def _compute_share(outcomes: Iterable[tuple[str, bool]], seed: int) -> Rate | None:
    """Return the share for which something holds, with its interval over trajectories."""
    by_trajectory: dict[str, list[bool]] = {}
    for trajectory, holds in outcomes:
        by_trajectory.setdefault(trajectory, []).append(holds)
    groups = by_trajectory.values()
    return compute_ratio(list(map(sum, groups)), list(map(len, groups)), seed)


def read_cut_points(data: Path, limit: int | None, *, served: bool) -> Iterator[CutPoint]:
    """Yield every turn of the assistant, in rows of `messages` and `tools`.

    `served`: messages are for a server, which takes arguments as texts. `limit`: of rows. Raises
    Misuse naming the row, and where there is none.
    """
    for name, row in read_named_rows(data, limit):
        try:
            yield from _split_messages(name, row.values, served)
        except ValueError as error:
            raise Misuse(f"{row.where}: {error}") from None


def _split_messages(name: str, values: Mapping[str, Any], served: bool) -> Iterator[CutPoint]:
    messages: Any = values.get("messages")
    tools = values.get("tools")
    if not is_chat(messages, ROLES) or not all(
        _is_call(call) for turn in messages for call in _get_calls(turn)
    ):
        raise ValueError("messages: are not messages with role and content")
    try:
        listed = parse_strict_json(tools) if isinstance(tools, str) else tools
        schemas = build_schemas(listed)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"tools: {error}") from None
    if served:
        prompt_messages = list(map(_encode_arguments, messages))
    else:
        prompt_messages = messages
    places = []
    for place, turn in enumerate(messages):
        if place and turn["role"] == "assistant":
            places.append(place)
    if not places:
        raise ValueError("messages: the assistant has no turn behind another one")
    for number, place in enumerate(places, start=1):
        due = next((str(call["function"]["name"]) for call in _get_calls(messages[place])), NONE)
        yield CutPoint(
            Problem(f"{name}#{number}", prompt_messages[:place], None, tools=listed),
            name,
            schemas,
            due,
        )


def _get_calls(turn: Mapping[str, Any]) -> Any:
    return turn.get("tool_calls") or ()


def _is_call(call: Any) -> bool:
    function = call.get("function") if isinstance(call, dict) else None
    return (
        isinstance(function, dict)
        and isinstance(function.get("name"), str)
        and "arguments" in function
    )


def _encode_arguments(turn: dict[str, Any]) -> dict[str, Any]:
    """Return the turn with the arguments of its calls as texts."""
    calls = []
    for call in _get_calls(turn):
        arguments = call["function"]["arguments"]
        if isinstance(arguments, str):
            text = arguments
        else:
            text = json.dumps(arguments, ensure_ascii=False)
        calls.append({**call, "function": {**call["function"], "arguments": text}})
    return {**turn, "tool_calls": calls} if calls else turn
