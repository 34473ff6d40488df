"""What a grader saw of one submission. No opinion: `services.rubric` makes rewards of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gradus.contract import Diagnostic, Stage, TestCount


@dataclass(frozen=True, slots=True)
class Facts:
    stage: Stage
    """The furthest stage that was reached."""
    typed_share: float = 0.0
    """Share of the answer's top-level items and of the declared names that type, in [0, 1]; 0 for a syntax error."""
    compiled: bool = False
    """The answer compiles, against what the task declares, and the tests fit it."""
    tests: TestCount | None = None
    """None when the tests did not run."""
    flags: tuple[str, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()
    blocks: int = 1
    """Code blocks in the completion; 0 when the whole completion was taken for code."""
    trailing_chars: int = 0
    """Characters of prose behind the last code block."""

    lints: Mapping[str, int] = field(default_factory=dict)
    """Warnings of compiler and linter about the answer, by name; only of graders that have a linter."""
    unsafe_count: int = 0
    """How often the answer says `unsafe`."""
    lines_changed: int | None = None
    """Against the files that the task gave; None when it gave none that the answer replaces."""

    @property
    def warnings(self) -> int:
        return sum(self.lints.values())

    @property
    def passed(self) -> bool:
        """Every test passed, and there was one."""
        return self.tests is not None and 0 < self.tests.total == self.tests.passed

    @property
    def tests_share(self) -> float:
        return self.tests.passed / self.tests.total if self.tests and self.tests.total else 0.0

    @property
    def degenerate(self) -> bool:
        return any(flag.startswith("degenerate:") for flag in self.flags)
