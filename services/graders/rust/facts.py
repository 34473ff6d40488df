"""What the Rust grader sees of a submission."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from services.graders.base.code import CodeFacts


@dataclass(frozen=True, slots=True)
class RustFacts(CodeFacts):
    lints: Mapping[str, int] = field(default_factory=dict)
    """Warnings of compiler and linter about the answer, by name."""

    @property
    def warnings(self) -> int:
        return sum(self.lints.values())
