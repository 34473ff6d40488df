"""Descriptions of graders: what others need to know to use one without naming it."""

from __future__ import annotations

import re

from gradus.contract import GRADER_NAME, GraderDescription, Stage
from gradus.tasks import task_class
from gradus.tasks.base import Task


def describe(name: str, task: type[Task], components: tuple[str, ...] = ()) -> GraderDescription:
    """The description of the grader `name` by its task class and the components of its rewards."""
    return GraderDescription(
        name=name,
        task_schema=task.announced_schema(),
        example=dict(task.EXAMPLE),
        stages=tuple(map(Stage, task.STAGES)),
        rates=dict(task.RATES),
        components=components,
        fences=task.FENCES,
        reads_prompt=task.READS_PROMPT,
    )


def description_of(name: str) -> GraderDescription:
    """The description of a grader that is not running, without components: for evaluations that store none.

    Without a task class in the SDK: no stages, and `tests` as the only rate. Run folders may name anything: what is no
    name of a grader is `unknown`.
    """
    return describe(name if re.fullmatch(GRADER_NAME, name) else "unknown", task_class(name))
