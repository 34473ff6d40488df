"""The OCaml grader's configuration, `configs/graders/ocaml.yaml`. Part of the grader's revision."""

from __future__ import annotations

from gradus.tasks.base import RunLimits
from gradus.tasks.ocaml import OcamlLimits
from services.graders.base.config_loader import BoxLimits, GraderConfig, Positive
from services.sandbox import Limits


class OcamlConfig(GraderConfig):
    compile: BoxLimits
    """Limits of the compile server's children."""
    cold_compile: BoxLimits
    """Limits of the stock compiler, with its own start, packages and rewriters."""
    run: BoxLimits
    brief_cpu_ms: Positive = 200
    """CPU time of each child in a brief attempt; what takes more is graded when its neighbours are
    done."""
    max_cpu_s: Positive = 300
    max_memory_mb: Positive = 4096

    def compute_run_limits(self, task: OcamlLimits) -> Limits:
        return self.run.limits(task, max_cpu_s=self.max_cpu_s, max_memory_mb=self.max_memory_mb)

    def compute_run_cpu_ms(self, task: OcamlLimits, *, brief: bool) -> int:
        return self._compute_cpu_ms(self.run, task.cpu_s, brief=brief)

    def compute_compile_cpu_ms(self, task: OcamlLimits, *, brief: bool) -> int:
        return self._compute_cpu_ms(self.compile, task.compile_cpu_s, brief=brief)

    def compute_cold_compile_limits(self, task: OcamlLimits) -> Limits:
        """What the task grants counts where it is more: starting the stock compiler is no work of
        the answer's."""
        cpu_s = max(self.cold_compile.cpu_s, task.compile_cpu_s or 0)
        granted = RunLimits(cpu_s=cpu_s)
        return self.cold_compile.limits(
            granted, max_cpu_s=self.max_cpu_s, max_memory_mb=self.max_memory_mb
        )

    def _compute_cpu_ms(self, limits: BoxLimits, asked_s: float | None, *, brief: bool) -> int:
        if asked_s is None:
            granted_ms = limits.cpu_ms
        else:
            granted_ms = max(1, round(min(asked_s, self.max_cpu_s) * 1e3))
        return min(granted_ms, self.brief_cpu_ms) if brief else granted_ms
