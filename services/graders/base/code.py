"""What graders of code share: the facts of an answer that is compiled and tested, and what its form
costs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from gradus.contract import Diagnostic, Stage, TestCount
from gradus.extract import Answer
from services.degenerate import find_degenerate_flags
from services.graders.base import Facts
from services.graders.base.harness_report import HarnessReport
from services.graders.base.rubric import Components
from services.sandbox import ExitReason, Outcome

DEGENERATE_FACTOR = 0.3
MAX_STYLE, STYLE_PER_BLOCK, STYLE_TRAILING = 0.10, 0.02, 0.03
TRAILING_CHARS = 30
REPORT_TOO_LONG = "the tests that the answer led to report more than may be reported"


@dataclass(frozen=True, slots=True)
class CodeFacts(Facts):
    typed_share: float = 0.0
    """Share of the answer's top-level items and of the declared names that type, in [0, 1]; 0 for a
    syntax error."""
    compiled: bool = False
    """The answer compiles, against what the task declares, and the tests fit it."""
    blocks: int = 1
    """Code blocks in the completion; 0 when the whole completion was taken for code."""
    trailing_chars: int = 0
    """Characters of prose behind the last code block."""
    got: tuple[str, ...] = ()
    """Values that are not the expected ones, in the harness's words; of runs of public tests
    only."""

    @property
    def passed(self) -> bool:
        """Every test passed, and there was one."""
        return self.tests is not None and 0 < self.tests.total == self.tests.passed

    @property
    def tests_share(self) -> float:
        if self.tests and self.tests.total:
            return self.tests.passed / self.tests.total
        return 0.0

    @property
    def degenerate(self) -> bool:
        return any(flag.startswith("degenerate:") for flag in self.flags)


FactsT = TypeVar("FactsT", bound=CodeFacts)


def with_form(facts: FactsT, answer: Answer, uncommented: str) -> FactsT:
    """Return the facts with what the form of the completion adds. `uncommented`: the answer's text
    without comments."""
    tests_passed = facts.tests.passed if facts.tests else 0
    signs = find_degenerate_flags(
        answer, uncommented=uncommented, tests_passed=tests_passed, passed=facts.passed
    )
    flags = (*answer.flags, *signs, *facts.flags)
    return replace(facts, flags=flags, blocks=answer.blocks, trailing_chars=answer.trailing_chars)


def find_exceeded_limit(
    outcome: Outcome, cpu_s: float, output_kb: int
) -> tuple[str | None, tuple[str, ...]]:
    """Return the limit that ended a run, and a sentence about it; None and no sentence without
    one."""
    match outcome.exit_reason:
        case ExitReason.CPU_LIMIT:
            return "cpu", (f"the answer was stopped after {cpu_s:g} s of CPU time",)
        case ExitReason.MEMORY_LIMIT:
            return "memory", ("the answer was stopped: its processes used more memory than it may",)
        case ExitReason.WALL_IDLE:
            waited = f"it slept, or waited for what did not come, after {outcome.wall_s:.1f} s"
            return "wall", (f"the answer was stopped: {waited}",)
        case ExitReason.OUTPUT_LIMIT:
            return "output", (f"the answer was stopped: it wrote more than {2 * output_kb} kB",)
        case _:
            return None, ()


def add_test_run(
    facts: FactsT, proof: HarnessReport, limit: str | None, why: tuple[str, ...] = ()
) -> FactsT:
    """Return the tests ran: what was proven, and the limit that ended the run if one did, and
    why."""
    # A suite that came to nothing proves nothing: it counts as one test that did not pass.
    tests = proof.tests if proof.tests.total else TestCount(passed=0, total=1)
    if proof.forged:
        forged = Diagnostic(stage=Stage.TESTS, message="the report of the tests was forged")
        return type(facts)(
            Stage.TESTS,
            tests=TestCount(passed=0, total=tests.total),
            flags=(*facts.flags, "forged:report"),
            diagnostics=(forged,),
        )
    if proof.too_long and limit is None:
        limit = "report"
        why = (REPORT_TOO_LONG,)
        tests = TestCount(passed=0, total=tests.total)
    diagnostics = (Diagnostic(stage=Stage.TESTS, message=text) for text in (*why, *proof.reasons))
    return replace(
        facts,
        stage=Stage.TESTS,
        compiled=True,
        tests=tests,
        got=proof.got,
        flags=(*facts.flags, f"limit:{limit}") if limit else facts.flags,
        diagnostics=(*facts.diagnostics, *diagnostics),
    )


def shaped(parts: Components, facts: CodeFacts) -> Components:
    """`parts` and what the form of the completion takes from them.

    `style` is taken from answers that pass only, `MAX_STYLE` at most: it orders right answers and
    never hides one.
    """
    if facts.degenerate:
        parts["degenerate"] = -(1 - DEGENERATE_FACTOR) * sum(parts.values())
    elif facts.passed:
        extra_blocks = STYLE_PER_BLOCK * max(0, facts.blocks - 1)
        trailing = STYLE_TRAILING if facts.trailing_chars > TRAILING_CHARS else 0.0
        parts["style"] = -min(MAX_STYLE, extra_blocks + trailing)
    return parts


def strict(facts: CodeFacts) -> Components:
    return {"tests": 1.0 if facts.passed else 0.0}


TESTS: Mapping[str, Callable[[CodeFacts], float]] = {"tests": lambda facts: facts.tests_share}
SHAPING = ("degenerate", "style")
QUIET = frozenset({"style"})
