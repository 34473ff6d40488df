"""Rows of tasks: the task of a row, submissions to it, and what was found about a row."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from gradus.contract import GraderName, TaskSubmission, get_submission_class
from gradus.row_reader import Row
from gradus.tasks import TASKS


@dataclass
class Finding:
    """What was found about one row, or a changed row."""

    row: Row
    problems: list[str] = field(default_factory=list)
    """Why the row is left out or not changed; none where it can be used."""
    warnings: list[str] = field(default_factory=list)


def extract_task(values: Mapping[str, Any], name: GraderName) -> dict[str, Any]:
    """Return the fields of a row that judge it, flat or under `task`."""
    if isinstance(values.get("task"), Mapping):
        return dict(values["task"])
    return {field: values[field] for field in TASKS[name].model_fields if values.get(field)}


def replace_task(row: Row, changes: Mapping[str, Any]) -> Row:
    """Return a copy of a row with other fields of its task, flat or under `task`."""
    values = row.values
    if isinstance(values.get("task"), Mapping):
        changes = {"task": {**values["task"], **changes}}
    return replace(row, values={**values, **changes})


def wrap_in_fence(name: GraderName, code: str) -> str:
    """Return `code` as a model would write it, behind a fence that is longer than any in it."""
    if not code or name == "story":
        return code
    fence = "`" * (max([2, *map(len, re.findall("`+", code))]) + 1)
    return f"{fence}{name}\n{code}\n{fence}"


def build_submission(name: GraderName, answer: str, task: Any) -> TaskSubmission[Any]:
    """Return the submission of an answer to a task. Raises ValidationError."""
    payload = {"id": "answer", "completion": wrap_in_fence(name, answer), "task": task}
    return get_submission_class(name).model_validate(payload)
