"""What all integrations share: settings, tasks from rows of data sets, grading from async and from
plain functions.

Settings are keyword arguments, or variables of the environment of the process that runs the reward
function:

| variable | default | meaning | |---|---|---| | `GRADUS_URL` | `http://127.0.0.1:8000` | services,
with commas between | | `GRADUS_API_KEY` | none | key of the services | | `GRADUS_GRADER` | none |
grader, where neither the data set nor an argument names one | | `GRADUS_RUBRIC` | the grader's
first | rubric | | `GRADUS_DEADLINE_S` | 120 | seconds from the call to its last result | |
`GRADUS_TASKS` | none | JSONL files of tasks, with commas between, whose rows a data set names by
`id` | | `GRADUS_COMPLETION_PREFIX` | none | text that prompts already hold of a completion, such as
`<think>` | | `GRADUS_ON_FAULT` | `raise` | what a fault becomes: an exception, or `nan` where the
trainer is set up to leave such samples out (docs/integrations.md) |
"""

from __future__ import annotations

import asyncio
import itertools
import math
import os
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from gradus.coalescing import CoalescingClient
from gradus.contract import Faulted, Graded
from gradus.errors import Fault, Misuse
from gradus.row_reader import read_rows
from gradus.strict_json import parse_strict_json
from gradus.tasks import get_task_class
from gradus.tasks.base import clean_text

T = TypeVar("T")

ROW_COLUMNS = frozenset(
    {
        "id",
        "prompt",
        "solution",
        "stub",
        "title",
        "topics",
        "tags",
        "kind",
        "difficulty",
        "source",
        "notes",
        "group",
    }
    | {"licence", "license", "message", "num_issues", "sprint_name"}
)
"""Columns of a file of tasks that describe a task. They are not part of it."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Where and how completions are graded."""

    urls: tuple[str, ...]
    grader: str | None
    api_key: str | None
    rubric: str | None
    deadline_s: float
    tasks: tuple[str, ...]
    prefix: str
    on_fault: str = "raise"
    """`raise` or `nan`."""


def settings(
    grader: str | None = None,
    *,
    url: str | None = None,
    api_key: str | None = None,
    rubric: str | None = None,
    deadline_s: float | None = None,
    tasks: str | None = None,
    prefix: str | None = None,
    on_fault: str | None = None,
) -> Settings:
    """Return the settings: arguments that are set, else the environment. Raises Misuse for a
    malformed deadline or `on_fault`."""
    get_variable = os.environ.get
    if deadline_s is None:
        text = get_variable("GRADUS_DEADLINE_S", "120")
        try:
            deadline_s = float(text)
        except ValueError:
            raise Misuse(f"GRADUS_DEADLINE_S must be a number of seconds, not {text!r}") from None
    if prefix is None:
        prefix = get_variable("GRADUS_COMPLETION_PREFIX", "")
    on_fault = on_fault or get_variable("GRADUS_ON_FAULT") or "raise"
    if on_fault not in ("raise", "nan"):
        raise Misuse(f"GRADUS_ON_FAULT must be `raise` or `nan`, not {on_fault!r}")
    return Settings(
        urls=_split_list(url or get_variable("GRADUS_URL") or "http://127.0.0.1:8000"),
        grader=grader or get_variable("GRADUS_GRADER") or None,
        api_key=api_key or get_variable("GRADUS_API_KEY") or None,
        rubric=rubric or get_variable("GRADUS_RUBRIC") or None,
        deadline_s=deadline_s,
        tasks=_split_list(tasks or get_variable("GRADUS_TASKS") or ""),
        prefix=prefix,
        on_fault=on_fault,
    )


def _split_list(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


# ---------------------------------------------------------------------- from rows to submissions


class Completion(NamedTuple):
    task: Any
    """A task as a mapping or as JSON text, the id of a row of a file of tasks, or a row that holds
    one in `task`."""
    text: Any
    """A text, or the messages of a conversation, the last of which is graded."""
    prompt: Any = ""
    """A text or messages; sent only to graders that read it."""


def parse_task(
    value: Any,
    rows: Mapping[str, Mapping[str, Any]] | None = None,
    parse: Callable[[str], Any] = parse_strict_json,
) -> dict[str, Any]:
    """Return the task that a data set's cell holds. `parse`: reader of JSON texts.

    Arrow writes null for the fields that a row lacks and other rows have: they count as absent, at
    every depth. A text that is no JSON object is the id of one of `rows`. Raises Misuse for what is
    neither.
    """
    if isinstance(value, bytes):
        value = value.decode()
    if isinstance(value, str):
        value = _resolve_task_text(value, rows or {}, parse)
    if not isinstance(value, Mapping):
        raise Misuse(
            "a task is an object, JSON text or the id of a row of tasks, not"
            f" {type(value).__name__}"
        )
    inner = value.get("task")
    if isinstance(inner, Mapping | str | bytes):
        return parse_task(inner, rows, parse)
    task: dict[str, Any] = _remove_nulls(value)
    return task


def _resolve_task_text(
    text: str, rows: Mapping[str, Mapping[str, Any]], parse: Callable[[str], Any]
) -> Any:
    if text in rows:
        return rows[text]
    if text.lstrip().startswith("{"):
        try:
            return parse(text)
        except ValueError as error:
            raise Misuse(f"a task is not JSON: {error}") from None
    raise Misuse(
        f"there is no task with the id {text[:80]!r}: a task is JSON text, or the id of a row of"
        " the files of tasks (GRADUS_TASKS for an integration, `gradus serve --tasks GRADER=FILE`"
        " for a route)"
    )


def _remove_nulls(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _remove_nulls(inner) for name, inner in value.items() if inner is not None}
    if hasattr(value, "tolist"):  # numpy's arrays and scalars, which rows of Parquet files hold
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [_remove_nulls(inner) for inner in value]
    return value


def extract_task(row: Mapping[str, Any], grader: str | None = None) -> dict[str, Any]:
    """Return the task of a row of a file of tasks: the column `task`, or the columns that are
    fields of a task."""
    if row.get("task") is not None:
        return parse_task(row["task"])
    fields = get_task_class(grader or "").model_fields
    names = {*fields, "formatted_issues"} if fields else row.keys() - ROW_COLUMNS
    return parse_task({name: row[name] for name in names if name in row})


@cache
def load_tasks(
    files: tuple[str, ...], grader: str | None = None
) -> Mapping[str, Mapping[str, Any]]:
    """Return the tasks in files of tasks, by id, read once. Raises Misuse for what cannot be read,
    and for an id twice."""
    tasks: dict[str, Mapping[str, Any]] = {}
    for file in files:
        for row in read_rows(Path(file)):
            name = row.require_valid().text("id")
            if name in tasks:
                raise Misuse(f"{row.where}: the id {name!r} occurred before")
            tasks[name] = extract_task(row.values, grader)
    return tasks


def get_completion_text(completion: Any) -> str:
    """Return the text of a completion; of messages the content of the last, of its parts those that
    are text."""
    if isinstance(completion, str):
        return completion
    if isinstance(completion, Mapping):
        completion = [completion]
    content = completion[-1]["content"] if len(completion) else ""
    if isinstance(content, list):
        content = "".join(part.get("text") or "" for part in content)
    return content or ""


_IDS = itertools.count()


def build_submission(grader: str, completion: Completion, chosen: Settings) -> dict[str, Any]:
    """Return the submission of a completion, with an id that is unique in this process. Raises
    Misuse for a wrong task."""
    task, text, prompt = completion
    payload: dict[str, Any] = {
        "id": f"i{next(_IDS)}",
        "task": parse_task(task, load_tasks(chosen.tasks, grader) if chosen.tasks else None),
        "completion": clean_text(chosen.prefix + get_completion_text(text)),
    }
    if prompt and get_task_class(grader).READS_PROMPT:
        if isinstance(prompt, str):
            payload["prompt"] = clean_text(prompt)
        else:
            payload["task"].setdefault(
                "messages",
                [
                    {"role": message["role"], "content": get_completion_text(message)}
                    for message in prompt
                ],
            )
    return payload


# ----------------------------------------------------------------------------------------- grading


async def grade(completions: Sequence[Completion], chosen: Settings) -> list[Graded | Faulted]:
    """Return one result per completion, in order. Single completions of concurrent calls are sent
    together.

    Raises Misuse for tasks that the grader refuses and where no grader is named.
    """
    if chosen.grader is None:
        raise Misuse(
            "no grader is named: pass its name, or set GRADUS_GRADER to `ocaml`, `rust`,"
            " `story` ..."
        )
    grader = chosen.grader
    submissions = [build_submission(grader, completion, chosen) for completion in completions]
    client = _get_client(chosen.urls, chosen.api_key)
    return await client.grade(
        grader, submissions, rubric=chosen.rubric, deadline_s=chosen.deadline_s
    )


def grade_blocking(completions: Sequence[Completion], chosen: Settings) -> list[Graded | Faulted]:
    """`grade` for plain functions: runs on a loop in a thread of its own, also where another loop
    is running."""
    return run_blocking(grade(completions, chosen))


def run_blocking(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run_coroutine_threadsafe(work, _get_loop()).result()


@cache
def _get_client(urls: tuple[str, ...], api_key: str | None) -> CoalescingClient:
    return CoalescingClient(urls, api_key=api_key)


@cache
def _get_loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="gradus", daemon=True).start()
    return loop


# A forked child has no thread that runs the parent's loop. Trainers fork pools of reward workers.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_get_loop.cache_clear)
    os.register_at_fork(after_in_child=_get_client.cache_clear)


# ----------------------------------------------------------------------------------------- results


def require_reward(result: Graded | Faulted) -> float:
    """Return the reward. Raises Fault, of the kind that the service reported, where there is
    none."""
    if isinstance(result, Graded):
        return result.reward
    kind = next(fault for fault in Fault.__subclasses__() if fault.kind is result.fault.kind)
    raise kind(result.fault.message, retryable=result.fault.retryable)


def get_reward(result: Graded | Faulted, chosen: Settings) -> float:
    """Return the reward; for a fault NaN if the settings ask for it. Raises Fault otherwise."""
    if isinstance(result, Faulted) and chosen.on_fault == "nan":
        return math.nan
    return require_reward(result)


def build_metrics(result: Graded | Faulted) -> dict[str, float]:
    """Return numbers for a trainer's metrics, with the same names for every result."""
    graded = isinstance(result, Graded)
    return {
        "passed": float(isinstance(result, Graded) and result.passed),
        "fault": float(not graded),
        "cached": float(isinstance(result, Graded) and result.cached),
    }
