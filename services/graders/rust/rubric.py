"""What the Rust grader sees of a submission, and the rubrics that make a reward of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from gradus.contract import Stage
from services.graders.base.code import QUIET, SHAPING, TESTS, CodeFacts, shaped, strict
from services.graders.base.rubric import Components, Rubrics, weighted


@dataclass(frozen=True, slots=True)
class RustFacts(CodeFacts):
    lints: Mapping[str, int] = field(default_factory=dict)
    """Warnings of compiler and linter about the answer, by name."""

    @property
    def warnings(self) -> int:
        return sum(self.lints.values())


def _score_tiers(facts: RustFacts) -> Components:
    """Tiers from -1 to 1, as (tier + 1) / 2.

    No code or a forged report -1, does not compile -0.3, tests fail 0.1, tests pass 0.7, and
    without a warning 1. The tiers are those that trainers of Rust know; shifting all of them by one
    line keeps every advantage in GRPO.
    """
    if facts.passed:
        tier = 0.7 if facts.lints else 1.0
    elif facts.compiled:
        tier = 0.1
    else:
        if facts.stage is Stage.EXTRACT or "forged:report" in facts.flags:
            tier = -1.0
        else:
            tier = -0.3
    return {"tier": (tier + 1) / 2}


MEASURES: Mapping[str, Callable[[RustFacts], float]] = {
    "check": lambda facts: facts.typed_share,
    "clippy": lambda facts: 1 / (1 + facts.warnings) if facts.compiled else 0.0,
    **TESTS,
}
RUBRICS: Rubrics[RustFacts] = Rubrics(
    {
        "rust/graduated@1": weighted(
            MEASURES, {"check": 0.25, "clippy": 0.10, "tests": 0.65}, shaped
        ),
        "rust/tiered@1": _score_tiers,
        "rust/strict@1": strict,
    },
    components=(*MEASURES, *SHAPING, "tier"),
    measures=MEASURES,
    shape=shaped,
    quiet=QUIET,
)
