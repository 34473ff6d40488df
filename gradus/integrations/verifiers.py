"""verifiers 0.4 (`verifiers.v1`), and prime-rl over it: a task set of a file of tasks, whose faults
are errors.

verifiers finds a task set by the name of a module. Put one beside the configuration,
`gradus_tasks.py`:

    from gradus.integrations.verifiers import GradusTaskset
    __all__ = ["GradusTaskset"]

and run `eval gradus_tasks --env.taskset.file tasks.jsonl --env.taskset.grader ocaml`. A row has
`id`, `prompt` and the fields of its task (docs/data.md). An exception of a reward is an error of
the trace, never a number: verifiers retries it by `RetryConfig`, and prime-rl trains on traces
without errors only.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import verifiers.v1 as vf

from gradus.contract import Graded
from gradus.integrations.core import Completion, extract_task, grade, require_reward, settings
from gradus.row_reader import read_non_empty_rows

__all__ = ["GradusTaskset"]


class GradusData(vf.TaskData):  # type: ignore[misc]
    grader: str
    graded: dict[str, Any]
    """The task as the grader takes it."""


class GradusTask(vf.Task[GradusData]):  # type: ignore[misc]
    @vf.reward(weight=1.0)  # type: ignore[untyped-decorator]
    async def gradus(self, trace: vf.Trace) -> float:
        """The reward of the model's last text. Raises Fault."""
        completion = Completion(self.data.graded, trace.last_reply, self.data.prompt)
        [result] = await grade([completion], settings(self.data.grader))
        if isinstance(result, Graded):
            trace.info["gradus"] = {
                "stage": result.stage.value,
                "passed": result.passed,
                "flags": list(result.flags),
            }
        return require_reward(result)


class GradusConfig(vf.TasksetConfig):  # type: ignore[misc]
    file: Path = Path("tasks.jsonl")
    grader: str = "ocaml"


class GradusTaskset(vf.Taskset[GradusTask, GradusConfig]):  # type: ignore[misc]
    def load(self) -> Iterator[GradusTask]:
        yield from iter_tasks(self.config.file, self.config.grader, self.config.task)


def iter_tasks(file: Path, grader: str, config: Any) -> Iterator[GradusTask]:
    """Yield the tasks of a file, each with verifiers' own configuration of tasks."""
    for row in read_non_empty_rows(file):
        task = extract_task(row.values, grader)
        data = GradusData(id=row.text("id"), prompt=row.text("prompt"), grader=grader, graded=task)
        yield GradusTask(data, config)
