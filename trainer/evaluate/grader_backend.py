"""Judges of completions for evaluations: a service over HTTP, or a grader on this machine."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from pydantic import ValidationError

from gradus.client import RewardClient
from gradus.console import log_line
from gradus.contract import Faulted, Graded, get_submission_class
from gradus.descriptions import GraderDescription, GraderInfo, describe_offline, grader_named
from gradus.errors import QueueFault
from gradus.local import LocalGrader, open_local
from gradus.validation import convert_validation_error

DEADLINE_S = 600.0
"""Seconds for one call; a service that is away that long makes its completions faults."""
READY_TIMEOUT_S = 15.0


@dataclass(frozen=True, slots=True)
class ServiceJudge:
    """A running service. `info` raises a fault if it cannot be reached; `grade` raises Misuse for
    what it refuses."""

    client: RewardClient
    grader: str
    deadline_s: float = DEADLINE_S
    calls_at_once: ClassVar[int] = 8
    """Calls of `grade` that may overlap."""

    async def known(self, grader: str) -> str:
        return await self.client.known(grader)

    async def info(self) -> GraderInfo:
        return await self.client.wait_ready(self.grader, READY_TIMEOUT_S)

    async def description(self) -> GraderDescription:
        """Return the announced one; the one that this version knows where no worker or no service
        is there now."""
        try:
            return await self.client.description(self.grader) or describe_offline(self.grader)
        except QueueFault:
            return describe_offline(self.grader)

    async def grade(
        self, submissions: Sequence[Mapping[str, Any]], rubric: str | None
    ) -> Sequence[Graded | Faulted]:
        return await self.client.grade(
            self.grader, submissions, rubric=rubric, deadline_s=self.deadline_s
        )


class LocalJudge:
    """A grader on this machine, started at first use."""

    calls_at_once = 1
    """Calls of one slot must not overlap."""

    def __init__(self, grader: str, config: Path | None = None, slots: int | None = None) -> None:
        self.grader = grader
        self._config = config
        self._slots = slots
        self._local: LocalGrader | None = None

    async def known(self, grader: str) -> str:
        return grader_named(grader)

    async def info(self) -> GraderInfo:
        return self._start().info()

    async def description(self) -> GraderDescription:
        return self._start().description()

    async def grade(
        self, submissions: Sequence[Mapping[str, Any]], rubric: str | None
    ) -> list[Graded | Faulted]:
        def grade_batch() -> list[Graded | Faulted]:
            grader = self._start()
            try:
                batch = []
                for submission in submissions:
                    batch.append(
                        get_submission_class(grader.info().name).model_validate(dict(submission))
                    )
            except ValidationError as error:
                raise convert_validation_error(error) from None
            return list(grader.grade(batch, rubric))

        return await asyncio.to_thread(grade_batch)

    def _start(self) -> LocalGrader:
        if self._local is None:
            log_line(f"gradus: proving that the {self.grader} grader judges rightly here")
            grader = open_local(self.grader, self._config, self._slots)
            grader.self_test()
            self._local = grader
        return self._local


Judge = ServiceJudge | LocalJudge
