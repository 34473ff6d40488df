"""The graders that ship with Gradus, for tests that go through all of them, and the description of
one made up."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from gradus.contract import Stage
from gradus.descriptions import GraderDescription, GraderInfo
from gradus.tasks import TASKS, get_task_class
from services.graders.base.grader import BaseGrader

GRADERS = tuple(TASKS)


def class_of(name: str) -> type[BaseGrader[Any, Any]]:
    module = import_module(f"services.graders.{name}.grader")
    found: type[BaseGrader[Any, Any]] = getattr(module, f"{name.title()}Grader")
    return found


WAITING_SLOTS = {
    name: class_of(name).waiting_slots
    for name in GRADERS
    if class_of(name).waiting_slots is not None
}


def described(info: GraderInfo) -> GraderDescription:
    """What a worker with a trivial grader announces beside `info`."""
    task = get_task_class(info.name)
    return GraderDescription(
        name=info.name,
        task_schema=task.build_announced_schema(),
        example=dict(task.EXAMPLE),
        stages=tuple(Stage),
        rates={"tests": "passed"},
        components=("tests",),
        reads_prompt=task.READS_PROMPT,
    )
