"""Tasks in files of the service, which clients of adapters name by id, or by split and index."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from gradus.errors import Misuse
from gradus.integrations.core import extract_task
from gradus.row_reader import read_non_empty_rows


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
        self._files = tuple(files)
        self.splits: dict[str, dict[str, list[StoredTask]]] = {}
        self._by_id: dict[str, dict[str, dict[str, Any]]] = {}
        for grader, file in files:
            tasks = self._by_id.setdefault(grader, {})
            split = self.splits.setdefault(grader, {}).setdefault(file.stem, [])
            for row in read_non_empty_rows(file):
                prompt = row.values.get("prompt")
                stored_task = StoredTask(
                    row.text("id"), str(prompt or ""), extract_task(row.values, grader)
                )
                if stored_task.id in tasks:
                    raise Misuse(f"{row.where}: the id {stored_task.id!r} occurred before")
                tasks[stored_task.id] = stored_task.task
                split.append(stored_task)

    def __reduce__(self) -> tuple[Any, ...]:
        """The process that reads large bodies reads the files once."""
        return _read_task_files, (self._files,)

    def get_tasks(self, grader: str) -> Mapping[str, Mapping[str, Any]]:
        return self._by_id.get(grader, {})


@cache
def _read_task_files(files: tuple[tuple[str, Path], ...]) -> TaskFiles:
    return TaskFiles(files)
