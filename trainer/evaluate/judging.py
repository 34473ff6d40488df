"""Judges of completions for evaluations: a service over HTTP, or a grader on this machine."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from pydantic import ValidationError

from gradus.client import RewardClient
from gradus.console import log_line
from gradus.contract import Faulted, Graded, submission_class
from gradus.descriptions import GraderDescription, GraderInfo, description_of, grader_named
from gradus.errors import QueueFault
from gradus.local import LocalGrader, open_local
from gradus.validation import misuse_from_validation_error

DEADLINE_S = 600.0
"""For one handful of completions; a service that is away that long makes them faults."""
READY_TIMEOUT_S = 15.0


class Judge(Protocol):
    """Grades for one grader."""

    async def known(self, grader: str) -> str:
        """`grader`. Raises UnknownGrader for a name that no grader has."""
        ...

    async def info(self) -> GraderInfo:
        """Who judges. Raises a fault when nobody is there."""
        ...

    async def description(self) -> GraderDescription:
        """The stages, rates and components of its verdicts. Raises nothing when nobody is there."""
        ...

    async def grade(self, submissions: Sequence[Mapping[str, Any]], rubric: str | None) -> Sequence[Graded | Faulted]:
        """One result per submission, in order. Raises Misuse for what the contract refuses."""
        ...


class ServiceJudge:
    """A running service."""

    def __init__(self, client: RewardClient, grader: str, ready_timeout_s: float = READY_TIMEOUT_S) -> None:
        self._client = client
        self._grader = grader
        self._ready_timeout_s = ready_timeout_s

    async def known(self, grader: str) -> str:
        return await self._client.known(grader)

    async def info(self) -> GraderInfo:
        return await self._client.wait_ready(self._grader, self._ready_timeout_s)

    async def description(self) -> GraderDescription:
        return await announced(self._client, self._grader)

    async def grade(self, submissions: Sequence[Mapping[str, Any]], rubric: str | None) -> Sequence[Graded | Faulted]:
        return await self._client.grade(self._grader, submissions, rubric=rubric, deadline_s=DEADLINE_S)


class LocalJudge:
    """A grader on this machine, started at first use."""

    def __init__(self, grader: str, config: Path | None = None, slots: int | None = None) -> None:
        self._name, self._config, self._slots = grader, config, slots
        self._grader: LocalGrader | None = None
        self._lock = threading.Lock()
        """Held while grading: calls of one slot must not overlap."""

    async def known(self, grader: str) -> str:
        return grader_named(grader)

    async def info(self) -> GraderInfo:
        return self._started().info()

    async def description(self) -> GraderDescription:
        return self._started().description()

    async def grade(self, submissions: Sequence[Mapping[str, Any]], rubric: str | None) -> list[Graded | Faulted]:
        def graded() -> list[Graded | Faulted]:
            grader = self._started()
            try:
                asked = [submission_class(grader.info().name).model_validate(dict(one)) for one in submissions]
            except ValidationError as error:
                raise misuse_from_validation_error(error) from None
            with self._lock:
                return list(grader.grade(asked, rubric))

        return await asyncio.to_thread(graded)

    def _started(self) -> LocalGrader:
        if self._grader is None:
            log_line(f"gradus: proving that the {self._name} grader judges rightly here")
            grader = open_local(self._name, self._config, self._slots)
            grader.self_test()
            self._grader = grader
        return self._grader


async def announced(client: RewardClient, grader: str) -> GraderDescription:
    """The description that a service announces; where it is older or away, the one that this version knows."""
    try:
        return await client.description(grader) or description_of(grader)
    except QueueFault:
        return description_of(grader)
