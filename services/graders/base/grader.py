"""`BaseGrader`: what the graders of this package share, from announcement to verdict."""

from __future__ import annotations

import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar, cast

from pydantic import ValidationError

from gradus.contract import (
    MAX_RESULT_BYTES,
    Diagnostic,
    Graded,
    Stage,
    Submission,
    TaskSubmission,
)
from gradus.descriptions import GraderDescription, GraderInfo, describe
from gradus.errors import InternalFault
from gradus.tasks.base import AnyTask, Task
from gradus.validation import explain
from services.graders.base import Facts
from services.graders.base.config_loader import GraderConfig, resolve_settings_path
from services.graders.base.revision import compute_revision
from services.graders.base.rubric import Rubrics
from services.graders.base.self_test_cases import run_self_test_cases
from services.graders.base.user_rubrics import build_rubrics

TaskT = TypeVar("TaskT", bound=Task)
FactsT = TypeVar("FactsT", bound=Facts)

MAX_SHOWN = 3
"""Failing public tests to quote. Those behind them are not run."""
MAX_DIAGNOSTICS_BYTES = MAX_RESULT_BYTES - 56_000
"""What the diagnostics of an answer take at most of a result. The remainder is for public tests, of
which three have up to 2,000 characters, and for flags."""
FAILS = "this public test fails:"
GIVES = "the answer gives"


def clip_diagnostics(diagnostics: tuple[Diagnostic, ...]) -> tuple[Diagnostic, ...]:
    """Return the first diagnostics that fit into a result, and how many more there are."""
    used = 0
    for number, diagnostic in enumerate(diagnostics):
        used += len(diagnostic.model_dump_json().encode())
        if used > MAX_DIAGNOSTICS_BYTES:
            more = f"and {len(diagnostics) - number} more"
            return (*diagnostics[:number], Diagnostic(stage=diagnostic.stage, message=more))
    return diagnostics


class BaseGrader(ABC, Generic[TaskT, FactsT]):
    """Judges one kind of task. A subclass sets the class variables, calls `identify` and implements
    `facts`."""

    name: ClassVar[str]
    task: ClassVar[type[Task]]
    shipped: ClassVar[Rubrics[Any]]
    """The rubrics of this grader; the configuration may add others."""
    waiting_slots: ClassVar[int | None] = None
    value_text: ClassVar[Any] = staticmethod(lambda task, word: None)
    """(task, the harness's word for a value of the answer) -> the value as the language writes it;
    None: unknown."""
    without_effect: ClassVar[frozenset[str]] = frozenset()
    """Keys of the configuration that change no verdict, or are in the revision in another way."""

    def identify(
        self,
        config: GraderConfig,
        file: Path | None,
        *,
        toolchain: str,
        sandbox: str = "none",
        versions: Iterable[str] = (),
    ) -> None:
        """Settle revision and rubrics. `versions`: what else can change a verdict, a compiler's or
        a model's.

        Raises Misuse naming the file and the key of a rubric that cannot be used.
        """
        self.rubrics, sources = build_rubrics(
            self.shipped, config, resolve_settings_path(self.name, file)
        )
        settings = config.model_dump_json(exclude=set(self.without_effect))
        self._info = GraderInfo(
            name=self.name,
            revision=compute_revision(self._get_module(), settings, sandbox, *versions, *sources),
            toolchain=toolchain,
            rubrics=tuple(self.rubrics.rubrics),
            sandbox=sandbox,
        )

    def info(self) -> GraderInfo:
        return self._info

    def description(self) -> GraderDescription:
        return describe(self.name, self.task, self.rubrics.components)

    def self_test(self) -> None:
        """Grade the cases beside the grader. Raises Fault, naming what is wrong, unless all
        verdicts are as expected.

        Graders that run what a model wrote attack their own sandbox first.
        """
        module = sys.modules[self._get_module()]
        run_self_test_cases(self, self.task, Path(str(module.__file__)).parent / "cases.yaml")

    def grade(self, submission: Submission, rubric: str, slot: int) -> Graded:
        started = time.monotonic()
        typed = self._validate_task(submission)
        facts, cpu_s = self.facts(typed, slot, rubric)
        diagnostics = clip_diagnostics(facts.diagnostics)
        if (
            facts.stage is Stage.TESTS
            and not facts.passed
            and getattr(typed.task, "public_tests", None)
        ):
            shown, used_s = self._run_public_tests(typed, slot, rubric)
            diagnostics = (*diagnostics, *shown)
            cpu_s += used_s
        score = self.rubrics.score(facts, rubric)
        return Graded(
            id=submission.id,
            reward=score.reward,
            passed=facts.passed,
            stage=facts.stage,
            components=score.components,
            tests=facts.tests,
            flags=facts.flags,
            diagnostics=diagnostics,
            rubric=rubric,
            grader=self._info.grader,
            toolchain=self._info.toolchain,
            cpu_ms=round(cpu_s * 1e3, 3),
            wall_ms=round((time.monotonic() - started) * 1e3, 3),
        )

    @abstractmethod
    def facts(
        self, submission: TaskSubmission[TaskT], slot: int = 0, rubric: str = ""
    ) -> tuple[FactsT, float]:
        """Return what was seen of the submission, and the CPU seconds that it used in boxes or in a
        model."""

    def _run_public_tests(
        self, submission: TaskSubmission[TaskT], slot: int, rubric: str
    ) -> tuple[list[Diagnostic], float]:
        """Return diagnostics that quote the first public tests that the answer fails, and the CPU
        seconds used.

        Call it for answers whose hidden tests ran. Each public test is a run; one that meets a
        limit is the last.
        """
        shown: list[Diagnostic] = []
        cpu_s = 0.0
        for test in cast(Any, submission.task).public_tests:
            # Its tests are its public tests: graders may show the values that these fail with.
            task = submission.task.model_copy(update={"tests": test, "public_tests": (test,)})
            facts, used_s = self.facts(submission.model_copy(update={"task": task}), slot, rubric)
            cpu_s += used_s
            limits = [flag for flag in facts.flags if flag.startswith("limit:")]
            if not facts.passed:
                why = f" ({', '.join(limits)})" if limits else ""
                lines = [f"{FAILS}{why}", test.strip()]
                got = cast(Any, facts).got
                value = self.value_text(task, got[0]) if got else None
                if value is not None:
                    lines.append(f"{GIVES} {value}")
                shown.append(Diagnostic(stage=Stage.TESTS, message="\n".join(lines)))
            if limits or len(shown) == MAX_SHOWN:
                break
        return shown, cpu_s

    def _validate_task(self, submission: Submission) -> TaskSubmission[TaskT]:
        if isinstance(submission.task, AnyTask):
            raw_task = submission.task.model_dump()
        else:
            raw_task = submission.task
        if isinstance(submission, TaskSubmission) and isinstance(raw_task, Task):
            if not isinstance(raw_task, self.task):
                raise InternalFault(
                    f"the {self.name} grader was given a {type(submission).__name__}",
                    retryable=False,
                )
            return submission
        try:
            task = self.task.model_validate(raw_task)
            task.refuse_prompt(submission.prompt)
        except ValueError as error:
            why = explain(error) if isinstance(error, ValidationError) else f"input: {error}"
            raise InternalFault(f"this task cannot be judged: {why}", retryable=False) from None
        return cast("TaskSubmission[TaskT]", submission.model_copy(update={"task": task}))

    @classmethod
    def _get_module(cls) -> str:
        """Return the module of the class that defines the grader, not of one that a test derives
        from it."""
        return next(base.__module__ for base in cls.__mro__ if "name" in vars(base))
