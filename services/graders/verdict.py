"""Facts -> the verdict on the wire, and which rubric is a grader's default: the same for every grader."""

from __future__ import annotations

import time

from gradus.contract import Graded, GraderInfo, GraderName, Submission
from gradus.errors import InternalFault
from services.facts import Facts, PreferenceFacts, StoryFacts
from services.rubric import rubrics_of, score


def verdict(
    submission: Submission,
    facts: Facts | StoryFacts | PreferenceFacts,
    rubric: str,
    info: GraderInfo,
    cpu_s: float,
    started: float,
) -> Graded:
    """`cpu_s`: used in boxes, or by the model that reads. `started`: of `time.monotonic()`."""
    result = score(facts, rubric)
    return Graded(
        id=submission.id,
        reward=result.reward,
        passed=facts.passed,
        stage=facts.stage,
        components=result.components,
        tests=facts.tests,
        flags=facts.flags,
        diagnostics=facts.diagnostics,
        rubric=rubric,
        grader=info.grader,
        toolchain=info.toolchain,
        cpu_ms=round(cpu_s * 1e3, 3),
        wall_ms=round((time.monotonic() - started) * 1e3, 3),
    )


def offered_rubrics(name: GraderName, default: str) -> tuple[str, ...]:
    """The grader's rubrics, `default` first. Raises InternalFault when that is none of them."""
    known = rubrics_of(name)
    if default not in known:
        raise InternalFault(f"configs/graders/{name.value}.yaml: no rubric {default!r}", retryable=False)
    return (default, *(rubric for rubric in known if rubric != default))
