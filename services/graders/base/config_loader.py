"""How `configs/graders/*.yaml` is read, and what every grader's configuration has: rubrics, limits
of boxes."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from gradus.contract import RubricName
from gradus.errors import Misuse
from gradus.resources import configs
from gradus.tasks.base import RunLimits
from gradus.validation import explain
from gradus.yaml_reader import read_mapping
from services.sandbox import Limits

Positive = Annotated[int, Field(gt=0, le=100_000)]


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class RubricSettings(Section):
    """A rubric that the configuration defines: weights, or a function."""

    weights: dict[str, Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]] | None = None
    """Weight of each of the grader's components, which are in [0, 1]; they add up to 1 at most."""
    shaping: bool = True
    """With `weights`: what the form of a completion costs under the shipped rubrics, it costs under
    this one too."""
    function: Annotated[str, Field(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$")] | None = None
    """`package.module:function`, from facts to components that add up to 0 to 1."""

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        if (self.weights is None) == (self.function is None):
            raise ValueError("give either `weights` or `function`")
        if sum((self.weights or {}).values()) > 1 + 1e-9:
            raise ValueError("`weights` add up to more than 1")
        return self


class GraderConfig(Section):
    rubric: RubricName
    """The default."""
    rubrics: dict[RubricName, RubricSettings] = {}
    """Rubrics beside those that ship with the grader."""


class BoxLimits(Section):
    cpu_s: Annotated[float, Field(gt=0, le=600, allow_inf_nan=False)]
    wall_s: float | None = None
    """None: four times the CPU limit and ten seconds, so that a busy machine is no verdict."""
    memory_mb: Positive
    processes: Positive = 16
    scratch_mb: Annotated[int, Field(ge=0, le=100_000)] = 64

    def limits(
        self, task: RunLimits | None = None, *, max_cpu_s: int = 0, max_memory_mb: int = 0
    ) -> Limits:
        """Return these limits; what a task asks for in their place, up to the maxima."""
        cpu_s, memory_mb = self.cpu_s, self.memory_mb
        if task and task.cpu_s is not None:
            cpu_s = min(task.cpu_s, max_cpu_s)
        if task and task.memory_mb is not None:
            memory_mb = min(task.memory_mb, max_memory_mb)
        wall_s = self.wall_s or 4.0 * cpu_s + 10.0
        return Limits(
            cpu_s=math.ceil(cpu_s),
            wall_s=wall_s,
            memory_mb=memory_mb,
            processes=self.processes,
            scratch_mb=self.scratch_mb,
        )

    @property
    def cpu_ms(self) -> int:
        return max(1, round(self.cpu_s * 1e3))


Settings = TypeVar("Settings", bound=Section)


def resolve_settings_path(grader: str, path: Path | None) -> Path:
    """`path`, or the grader's shipped file."""
    return path or configs() / "graders" / f"{grader}.yaml"


def read_settings(model: type[Settings], grader: str, path: Path | None = None) -> Settings:
    """Read `path`, or the grader's shipped file. Raises Misuse naming the file and the key."""
    path = resolve_settings_path(grader, path)
    try:
        return model.model_validate(read_mapping(path))
    except ValidationError as error:
        raise Misuse(f"{path}: {explain(error)}") from None
