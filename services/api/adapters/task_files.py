"""Tasks in files of the service, which clients of adapters name by id, or by split and index."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from gradus.errors import Misuse
from gradus.integrations.core import task_in_row
from gradus.row_reader import non_empty_rows


class StoredTask(NamedTuple):
    id: str
    prompt: str
    task: dict[str, Any]


class TaskFiles:
    """The tasks of each grader, in splits. A split is a file and has its name without the
    suffix."""

    def __init__(self, files: Sequence[tuple[str, Path]]) -> None:
        """`files`: pairs of a grader's name and a file. Raises Misuse for a row that cannot be read
        and an id twice."""
        self.splits: dict[str, dict[str, list[StoredTask]]] = {}
        self._by_id: dict[str, dict[str, dict[str, Any]]] = {}
        for grader, file in files:
            by_id = self._by_id.setdefault(grader, {})
            split = self.splits.setdefault(grader, {}).setdefault(file.stem, [])
            for row in non_empty_rows(file):
                prompt = row.values.get("prompt")
                found = StoredTask(
                    row.text("id"), str(prompt or ""), task_in_row(row.values, grader)
                )
                if found.id in by_id:
                    raise Misuse(f"{row.where}: the id {found.id!r} occurred before")
                by_id[found.id] = found.task
                split.append(found)

    def by_id(self, grader: str) -> Mapping[str, Mapping[str, Any]]:
        return self._by_id.get(grader, {})
