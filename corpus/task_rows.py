"""Rows of tasks: the task of a row, submissions to it, and what was found about a row."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from gradus.contract import GraderName, TaskSubmission
from gradus.row_reader import Row
from gradus.tasks import TASKS
from gradus.tasks.base import AnyTask, Task
from services.graders.base import find_installed_graders


@dataclass
class Finding:
    """What was found about one row, or a changed row."""

    row: Row
    problems: list[str] = field(default_factory=list)
    """Why the row is left out or not changed; none where it can be used."""
    warnings: list[str] = field(default_factory=list)


@cache
def find_task_class(name: GraderName) -> type[Task]:
    """Return the task class of a grader that ships or is installed; `AnyTask` for one that names
    none."""
    if name in TASKS:
        return TASKS[name]
    point = find_installed_graders().get(name)
    found: type[Task] = getattr(point.load(), "task", AnyTask) if point else AnyTask
    return found


def list_columns(name: GraderName) -> set[str]:
    """Return the columns that a row of the grader's tasks may have, beside `DESCRIBING`."""
    return {"id", "prompt", "solution", "stub", "task", *find_task_class(name).model_fields}


def extract_task(values: Mapping[str, Any], name: GraderName) -> dict[str, Any]:
    """Return the fields of a row that judge it, flat or under `task`."""
    if isinstance(values.get("task"), Mapping):
        return dict(values["task"])
    fields = find_task_class(name).model_fields
    given = {field: values[field] for field in fields if field in values}
    return {field: value for field, value in given.items() if value not in (None, "", [], {})}


def replace_task(row: Row, changes: Mapping[str, Any]) -> Row:
    """Return a copy of a row with other fields of its task, flat or under `task`."""
    values = row.values
    if isinstance(values.get("task"), Mapping):
        changes = {"task": {**values["task"], **changes}}
    return replace(row, values={**values, **changes})


def wrap_in_fence(name: GraderName, code: str, language: str = "") -> str:
    """Return `code` as a model would write it, behind a fence that is longer than any in it.

    `language`: where tasks of the grader name one.
    """
    fences = find_task_class(name).FENCES
    if not code or not fences:
        return code
    tag = language or fences[0]
    fence = "`" * (max([2, *map(len, re.findall("`+", code))]) + 1)
    return f"{fence}{tag}\n{code}\n{fence}"


def build_submission(name: GraderName, answer: str, task: Any) -> TaskSubmission[Any]:
    """Return the submission of an answer to a task. Raises ValidationError."""
    task_class = find_task_class(name)
    language = str(task.get("language", "")) if isinstance(task, Mapping) else ""
    completion = wrap_in_fence(name, answer, language)
    submission: TaskSubmission[Any] = TaskSubmission[task_class].model_validate(  # type: ignore[valid-type]
        {"id": "answer", "completion": completion, "task": task}
    )
    return submission
