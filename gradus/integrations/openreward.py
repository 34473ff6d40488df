"""An environment of the Open Reward Standard, served by the package `openreward`.

    from gradus.integrations.openreward import build_environment
    from openreward.environments import Server

    Server([build_environment("tasks.jsonl", grader="ocaml", url="http://127.0.0.1:8000")]).run()

A session is one task. The tool `check` replies as `gradus mcp`'s does. The agent's first message
without a call of a tool is its answer: it is graded, its reward is the episode's, and the episode
ends. A fault is an error of the session, which has no reward then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from openreward.environments import Environment, Split, TextBlock, ToolOutput, terminal, tool
from pydantic import BaseModel

from gradus.feedback import reply
from gradus.integrations.agent_tasks import (
    AgentTasks,
    ToolRefused,
    read_agent_rows,
    select_shown,
)
from gradus.integrations.core import settings


class Answer(BaseModel):
    answer: str


def build_environment(
    file: str, grader: str, *, url: str | None = None, max_checks: int = 20, **chosen: Any
) -> type[Environment]:
    """Return the class of environments of the tasks in a JSONL file, to be given to `Server`.

    `chosen`: as for `gradus.integrations.core.settings`. Hidden tests do not leave this process:
    a task of the environment is what an agent may see of a row. Raises Misuse for rows without an
    id of their own.
    """
    rows = read_agent_rows(file)
    way = settings(grader, url=url, tasks=file, **chosen)

    class Gradus(Environment):  # type: ignore[misc]
        """Tasks that Gradus grades."""

        def __init__(
            self, task_spec: Mapping[str, Any] | None = None, secrets: dict[str, str] | None = None
        ) -> None:
            super().__init__(task_spec or {}, secrets or {})
            self._name = str(self.task_spec.get("id", ""))
            # another submission follows only on one that was a fault
            self._tasks = AgentTasks(rows, way, max_checks=max_checks, max_submissions=1)

        @classmethod
        def list_splits(cls) -> Sequence[Split]:
            return [Split(name="train", type="train")]

        @classmethod
        def list_tasks(cls, split: str) -> Sequence[Mapping[str, Any]]:
            return [select_shown(row) for row in rows.values()]

        def get_prompt(self) -> list[TextBlock]:
            shown = select_shown(rows[self._name])
            texts = [str(text) for name, text in shown.items() if name != "id"]
            return [TextBlock(text="\n\n".join(texts))]

        @tool  # type: ignore[untyped-decorator]
        async def check(self, call: Answer) -> ToolOutput:
            """Return the compiler's remarks on an answer and the public tests that it fails. The
            answer is complete, such as the whole source file."""
            try:
                text = await self._tasks.check(self._name, call.answer)
            except ToolRefused as refused:
                text = str(refused)
            return ToolOutput(blocks=[TextBlock(text=text)])

        @terminal  # type: ignore[untyped-decorator]
        @tool  # type: ignore[untyped-decorator]
        async def submit(self, call: Answer) -> ToolOutput:
            """Grade the answer, which ends the episode."""
            result = await self._tasks.grade_submission(self._name, call.answer)
            return ToolOutput(
                blocks=[TextBlock(text=reply(result))],
                reward=result.reward,
                finished=True,
                metadata=result.model_dump(mode="json"),
            )

    return Gradus
