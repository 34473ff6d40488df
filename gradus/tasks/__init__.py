"""Typed task classes of the graders that ship with Gradus, one module each. Graders of other
packages need none."""

from __future__ import annotations

from collections.abc import Mapping

from gradus.tasks.base import AnyTask, Task
from gradus.tasks.ocaml import OcamlTask
from gradus.tasks.preference import PreferenceTask
from gradus.tasks.program import ProgramTask
from gradus.tasks.rust import RustTask
from gradus.tasks.story import StoryTask

TASKS: Mapping[str, type[Task]] = {
    "ocaml": OcamlTask,
    "rust": RustTask,
    "story": StoryTask,
    "program": ProgramTask,
    "preference": PreferenceTask,
}


def get_task_class(grader: str) -> type[Task]:
    """Return the grader's task class; `AnyTask` for a grader that this SDK has none for."""
    return TASKS.get(grader, AnyTask)
