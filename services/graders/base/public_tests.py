"""Public tests of a task: those that an answer fails, as diagnostics that quote them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gradus.contract import Diagnostic, Stage, TaskSubmission

if TYPE_CHECKING:
    from services.graders.base.grader import BaseGrader

MAX_SHOWN = 3
"""Failing tests to quote. Those behind them are not run."""
FAILS = "this public test fails:"
GIVES = "the answer gives"


def with_public_tests(
    grader: BaseGrader[Any, Any],
    submission: TaskSubmission[Any],
    slot: int,
    rubric: str,
    diagnostics: tuple[Diagnostic, ...],
    cpu_s: float,
) -> tuple[tuple[Diagnostic, ...], float]:
    """Diagnostics and CPU seconds so far, with those of the first public tests that the answer
    fails.

    Call it for answers whose hidden tests ran. Each public test is a run; one that meets a limit is
    the last.
    """
    shown: list[Diagnostic] = []
    for test in submission.task.public_tests:
        # Its tests are its public tests: graders may show the values that these fail with.
        task = submission.task.model_copy(update={"tests": test, "public_tests": (test,)})
        facts, used_s = grader.facts(submission.model_copy(update={"task": task}), slot, rubric)
        cpu_s += used_s
        limits = [flag for flag in facts.flags if flag.startswith("limit:")]
        if not facts.passed:
            why = f" ({', '.join(limits)})" if limits else ""
            lines = [f"{FAILS}{why}", test.strip()]
            value = grader.value_text(task, facts.got[0]) if facts.got else None
            if value is not None:
                lines.append(f"{GIVES} {value}")
            shown.append(Diagnostic(stage=Stage.TESTS, message="\n".join(lines)))
        if limits or len(shown) == MAX_SHOWN:
            break
    return (*diagnostics, *shown), cpu_s
