"""What agents may do with tasks: read one, check answers, submit answers, each within limits.

`check` and `submit` grade the whole task. `check` replies with the stage, the compiler's remarks
and the public tests that fail, and with nothing of the hidden tests. `submit` also replies with how
many tests pass. Both have a limit per task, which faults do not count against.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gradus.contract import Graded, Stage
from gradus.errors import Fault, Misuse
from gradus.feedback import reply
from gradus.integrations.core import Completion, Settings, grade
from gradus.row_reader import read_rows

MAX_ANSWER_CHARS = 200_000
"""A longer answer is refused, and not graded."""
SHOWN = ("id", "prompt", "stub", "signature")
"""Columns of a row that `read_task` replies with."""
_HIDING = frozenset({Stage.TESTS, Stage.SCORE})
_PUBLIC = ("this public test fails:", "public case ")


def select_shown(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns of a row that an agent may see."""
    return {name: row[name] for name in SHOWN if row.get(name)}


class ToolRefused(Exception):
    """A call that is not graded, with what the agent may do."""


def read_agent_rows(file: str) -> dict[str, Mapping[str, Any]]:
    """Return the rows of a file of tasks by their ids. Raises Misuse for rows without an id of
    their own."""
    rows: dict[str, Mapping[str, Any]] = {}
    for row in read_rows(file):
        name = row.require_valid().text("id")
        if name in rows:
            raise Misuse(f"{row.where}: the id {name!r} occurred before")
        rows[name] = row.values
    if not rows:
        raise Misuse(f"{file}: holds no tasks")
    return rows


class AgentTasks:
    """Tasks, and the calls that an agent has left for each."""

    def __init__(
        self,
        rows: Mapping[str, Mapping[str, Any]],
        chosen: Settings,
        *,
        max_checks: int,
        max_submissions: int,
        results: Path | None = None,
    ) -> None:
        self._rows = rows
        self._chosen = chosen
        self._limits = {"check": max_checks, "submit": max_submissions}
        self._calls: Counter[tuple[str, str]] = Counter()
        self._results = results

    def read_task(self, task: str) -> str:
        """Return the prompt of a task and what else an agent may see, as JSON."""
        return json.dumps(select_shown(self._get_row(task)), ensure_ascii=False)

    async def check(self, task: str, answer: str) -> str:
        result, remaining = await self._grade("check", task, answer)
        shown = []
        for diagnostic in result.diagnostics:
            if diagnostic.stage not in _HIDING or diagnostic.message.startswith(_PUBLIC):
                shown.append(diagnostic)
        hidden = result.model_copy(update={"tests": None, "passed": False, "diagnostics": shown})
        remarks = reply(hidden).partition("\n")[2]
        lines = [f"came as far as: {result.stage.value}", remarks, f"{remaining} checks left"]
        return "\n".join(line for line in lines if line)

    async def submit(self, task: str, answer: str) -> str:
        result = await self.grade_submission(task, answer)
        remaining = self._limits["submit"] - self._calls["submit", task]
        return f"{reply(result)}\n{remaining} submissions left"

    async def grade_submission(self, task: str, answer: str) -> Graded:
        """Return the verdict on a submission, which counts. Raises ToolRefused for a fault, too."""
        result, _ = await self._grade("submit", task, answer)
        if self._results is not None:
            record = {"task": task, "result": result.model_dump(mode="json")}
            with self._results.open("a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")
        return result

    def _get_row(self, task: str) -> Mapping[str, Any]:
        if task not in self._rows:
            names = ", ".join(list(self._rows)[:20])
            raise ToolRefused(f"there is no task {task[:80]!r}; there are: {names}")
        return self._rows[task]

    async def _grade(self, tool: str, task: str, answer: str) -> tuple[Graded, int]:
        """Return the verdict and the calls of the tool that are left. Raises ToolRefused."""
        self._get_row(task)
        key = (tool, task)
        if len(answer) > MAX_ANSWER_CHARS:
            raise ToolRefused(f"the answer has more than {MAX_ANSWER_CHARS} characters")
        if self._calls[key] >= self._limits[tool]:
            raise ToolRefused(f"no {tool} is left for {task}")
        self._calls[key] += 1
        problem = "the grader is not available: call again later"
        try:
            [result] = await grade([Completion(task, answer)], self._chosen)
        except (Fault, Misuse) as error:
            problem = str(error)
            result = None
        if not isinstance(result, Graded):
            self._calls[key] -= 1
            raise ToolRefused(problem)
        return result, self._limits[tool] - self._calls[key]
