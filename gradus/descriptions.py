"""What workers announce of their graders, and what others need to know to use a grader without
naming it."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import Field

from gradus.contract import GRADER_NAME, GraderName, Stage
from gradus.errors import UnknownGrader
from gradus.tasks import TASKS, get_task_class
from gradus.tasks.base import Task, Wire
from gradus.wings import find_entry_points


class GraderInfo(Wire):
    """One live grader as its workers announce it; `GET /v1/graders` lists them."""

    name: GraderName
    revision: str
    toolchain: str
    rubrics: tuple[str, ...]
    """The default first."""
    sandbox: str
    workers: int = 1
    slots: int = 1

    @property
    def grader(self) -> str:
        return f"{self.name}@{self.revision}"


class GraderList(Wire):
    graders: tuple[GraderInfo, ...]


class GraderDescription(Wire):
    """What others need to know to use a grader without naming it; `GET /v1/graders/{name}` returns
    it."""

    name: GraderName
    task_schema: dict[str, Any]
    """JSON Schema (2020-12) of `task`."""
    example: dict[str, Any]
    """A submission `{id, prompt, completion, task}`."""
    stages: tuple[Stage, ...]
    """In the order in which an answer passes them; the first is `extract`."""
    rates: dict[str, Annotated[str, Field(pattern=r"^((past|clean):[a-z]+|passed)$")]]
    """Rates of an evaluation, in order: name -> rule over verdicts. `past:STAGE`: the verdict's
    stage is a later one. `clean:STAGE`: past the stage before, and no diagnostic of that stage.
    `passed`."""
    components: tuple[str, ...]
    """Names of the components of rewards under the grader's rubrics."""
    fences: tuple[str, ...] = ()
    """Info strings of code fences around answers, the usual one first; empty where answers are
    prose."""
    reads_prompt: bool = False
    """The prompt is part of what is judged, and of the job's id."""


def describe(name: str, task: type[Task], components: tuple[str, ...] = ()) -> GraderDescription:
    """Return the description of the grader `name` by its task class and the components of its
    rewards."""
    return GraderDescription(
        name=name,
        task_schema=task.build_announced_schema(),
        example=dict(task.EXAMPLE),
        stages=tuple(map(Stage, task.STAGES)),
        rates=dict(task.RATES),
        components=components,
        fences=task.FENCES,
        reads_prompt=task.READS_PROMPT,
    )


def describe_offline(name: str) -> GraderDescription:
    """Return the description of a grader that is not running, without components: for evaluations
    that store none.

    Without a task class in the SDK: no stages, and `tests` as the only rate. Run folders may name
    anything: what is no name of a grader is `unknown`.
    """
    return describe(name if re.fullmatch(GRADER_NAME, name) else "unknown", get_task_class(name))


def check_name(grader: str) -> GraderName:
    """`grader`. Raises UnknownGrader for what cannot be the name of a grader."""
    if not re.fullmatch(GRADER_NAME, grader):
        raise UnknownGrader(
            f"{grader!r} cannot be the name of a grader; there are: {', '.join(TASKS)}"
        )
    return grader


def grader_named(name: str) -> str:
    """`name`. Raises UnknownGrader, naming those there are, for a grader that neither ships nor is
    installed here."""
    names = [
        *TASKS,
        *(point.name for point in find_entry_points("gradus.graders") if point.name not in TASKS),
    ]
    if name not in names:
        raise UnknownGrader(f"there is no grader {name!r}; there are: {', '.join(names)}")
    return name
