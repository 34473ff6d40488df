"""The OCaml grader's configuration, `configs/graders/ocaml.yaml`. Part of the grader's revision."""

from __future__ import annotations

from pathlib import Path

from gradus.contract import RubricName, RunLimits
from services.graders.settings import BoxLimits, Positive, Section, read_settings
from services.sandbox import Limits


class OcamlConfig(Section):
    rubric: RubricName
    compile: BoxLimits
    """Of the compile server's children."""
    cold_compile: BoxLimits
    """Of the stock compiler, with its own start, packages and rewriters."""
    run: BoxLimits
    max_cpu_s: Positive = 300
    max_memory_mb: Positive = 4096

    def run_limits(self, task: RunLimits) -> Limits:
        return self.run.limits(task, max_cpu_s=self.max_cpu_s, max_memory_mb=self.max_memory_mb)

    def run_cpu_ms(self, task: RunLimits) -> int:
        return self.run.cpu_ms if task.cpu_s is None else max(1, round(min(task.cpu_s, self.max_cpu_s) * 1e3))


def load_config(path: Path | None = None) -> OcamlConfig:
    """Read `path`, or the shipped file. Raises Misuse naming the file and the key."""
    return read_settings(OcamlConfig, "ocaml", path)
