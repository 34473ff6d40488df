"""Rows of sprint data sets, made into rows of story tasks. Reads no file and checks no task.

Such a data set has `sprint_name`, `sprint_goal`, `formatted_issues` (`a ||||| b`), `num_issues` and
perhaps `team_context`, and neither `id` nor `prompt`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NoReturn

from gradus.contract import GraderName

SPRINT_COLUMNS = ("sprint_name", "formatted_issues", "num_issues")
"""Columns that such rows have and the other graders' rows do not."""

_STANDS_FOR = {"id": "sprint_name", "prompt": "sprint_goal"}
_IN_JSON = ("references", "team_context")
"""What a cell of a CSV file holds as JSON."""


def as_task_row(values: Mapping[str, Any], grader: GraderName) -> Mapping[str, Any]:
    """`values`; for stories with the sprint's name as `id` and its goal as `prompt` where those are
    missing.

    Lists and mappings in the cells of a CSV file are read.
    """
    if grader != "story":
        return values
    filled = {
        ours: values.get(theirs)
        for ours, theirs in _STANDS_FOR.items()
        if _is_missing(values.get(ours))
    }
    read = {name: _unpacked(values[name]) for name in _IN_JSON if isinstance(values.get(name), str)}
    return {
        **values,
        **{name: value for name, value in filled.items() if not _is_missing(value)},
        **read,
    }


def sprint_columns(grader: GraderName) -> tuple[str, ...]:
    """The columns of sprint data sets that this grader's rows may have."""
    return SPRINT_COLUMNS if grader == "story" else ()


def _unpacked(cell: str) -> Any:
    if cell.lstrip()[:1] in ("[", "{"):
        try:
            return json.loads(cell, parse_constant=_refuse)
        except (ValueError, RecursionError):
            return cell
    return cell or None


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a finite number")


def _is_missing(value: Any) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())
