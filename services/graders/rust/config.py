"""The Rust grader's configuration, `configs/graders/rust.yaml`. Part of the grader's revision."""

from __future__ import annotations

from gradus.tasks.base import RunLimits
from services.graders.base.config_loader import BoxLimits, GraderConfig, Positive
from services.graders.rust.crates import Crates
from services.sandbox import Limits


class RustConfig(GraderConfig):
    compile: BoxLimits
    """Limits of each compiling box: of the answer with its lints, and of the tests."""
    run: BoxLimits
    """Limits of all tests together, or of one case of standard input and output."""
    max_cpu_s: Positive = 300
    max_memory_mb: Positive = 4096
    crates: Crates = Crates()
    """What tasks may name as `dependencies`."""

    def run_limits(self, task: RunLimits) -> Limits:
        return self.run.limits(task, max_cpu_s=self.max_cpu_s, max_memory_mb=self.max_memory_mb)
