"""The OCaml grader's configuration, `configs/graders/ocaml.yaml`. Part of the grader's revision."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gradus.contract import RubricName, RunLimits, explain
from gradus.errors import Misuse
from gradus.resources import configs
from services.sandbox import Limits

_Positive = Annotated[int, Field(gt=0, le=100_000)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class BoxLimits(_Section):
    cpu_s: Annotated[float, Field(gt=0, le=600, allow_inf_nan=False)]
    wall_s: float | None = None
    """None: four times the CPU limit and ten seconds, so that a busy machine is no verdict."""
    memory_mb: _Positive
    processes: _Positive = 16
    scratch_mb: _Positive = 64

    def limits(self, task: RunLimits | None = None, *, max_cpu_s: int = 0, max_memory_mb: int = 0) -> Limits:
        """These limits; what a task asks for in their place, up to the maxima."""
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


class OcamlConfig(_Section):
    rubric: RubricName
    compile: BoxLimits
    """Of the compile server's children."""
    cold_compile: BoxLimits
    """Of the stock compiler, with its own start, packages and rewriters."""
    run: BoxLimits
    max_cpu_s: _Positive = 300
    max_memory_mb: _Positive = 4096

    def run_limits(self, task: RunLimits) -> Limits:
        return self.run.limits(task, max_cpu_s=self.max_cpu_s, max_memory_mb=self.max_memory_mb)

    def run_cpu_ms(self, task: RunLimits) -> int:
        return self.run.cpu_ms if task.cpu_s is None else max(1, round(min(task.cpu_s, self.max_cpu_s) * 1e3))


def load_config(path: Path | None = None) -> OcamlConfig:
    """Read `path`, or the shipped file. Raises Misuse naming the file and the key."""
    path = path or configs() / "graders" / "ocaml.yaml"
    try:
        return OcamlConfig.model_validate(yaml.safe_load(path.read_text()))
    except OSError as error:
        raise Misuse(f"{path}: {error.strerror}") from None
    except yaml.YAMLError as error:
        raise Misuse(f"{path}: not YAML: {error}") from None
    except ValidationError as error:
        raise Misuse(f"{path}: {explain(error)}") from None
