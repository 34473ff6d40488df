"""A grader's own cases: small submissions with the verdict that they must get, kept as data beside
the grader.

A worker grades them before it serves, and so do the tests and the image build.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict

from gradus.contract import Graded, Stage, TaskSubmission
from gradus.errors import InternalFault
from gradus.tasks.base import Task
from services.graders.base import Grader

BASIC = ("pass", "fail", "compile_error", "timeout", "crash")
"""Every grader has a case of each of these names."""


class Expected(BaseModel):
    model_config = ConfigDict(extra="forbid")
    passed: bool
    stage: Stage
    reward: tuple[float, float]
    """Lowest and highest, under the grader's default rubric."""
    flags: tuple[str, ...] = ()
    """Flags that must be there; others may."""


class Case(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: str
    completion: str
    task: dict[str, Any]
    expect: Expected


def load_cases(path: Path) -> list[Case]:
    return [Case.model_validate(entry) for entry in yaml.safe_load(path.read_text())]


def describe_mismatch(case: Case, result: Graded) -> str | None:
    """Return what of `result` is not as the case wants it; None when all is."""
    low, high = case.expect.reward
    wrong = []
    if result.passed is not case.expect.passed:
        wrong.append(f"passed {result.passed}")
    if result.stage is not case.expect.stage:
        wrong.append(f"stage {result.stage}")
    if not low <= result.reward <= high:
        wrong.append(f"reward {result.reward}")
    if missing := set(case.expect.flags) - set(result.flags):
        wrong.append(f"no flag {', '.join(sorted(missing))}")
    if wrong:
        return f"case {case.name!r} got {'; '.join(wrong)} ({result.diagnostics})"
    return None


def run_self_test_cases(grader: Grader, task: type[Task], path: Path) -> None:
    """Raise InternalFault naming every case whose verdict is not the expected one."""
    rubric = grader.info().rubrics[0]
    problems = []
    for case in load_cases(path):
        submission = TaskSubmission[Any](
            id=case.name, completion=case.completion, task=task.model_validate(case.task)
        )
        if problem := describe_mismatch(case, grader.grade(submission, rubric, 0)):
            problems.append(problem)
    if problems:
        raise InternalFault(
            "this grader fails its own cases: " + "; ".join(problems), retryable=False
        )
