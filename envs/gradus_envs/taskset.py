"""The task set of verifiers 0.4."""

from __future__ import annotations

from collections.abc import Iterator

import verifiers.v1 as vf

from gradus.integrations.verifiers import GradusTask, iter_tasks
from gradus_envs import find_tasks


class ShippedConfig(vf.TasksetConfig):  # type: ignore[misc]
    grader: str = "ocaml"


class ShippedTaskset(vf.Taskset[GradusTask, ShippedConfig]):  # type: ignore[misc]
    def load(self) -> Iterator[GradusTask]:
        grader = self.config.grader
        yield from iter_tasks(find_tasks(grader), grader, self.config.task)
