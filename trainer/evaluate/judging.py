"""Who judges completions: a service over HTTP, or whatever else grades as one does. Judges nothing itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from gradus.client import RewardClient
from gradus.contract import Faulted, Graded, GraderDescription, GraderInfo
from gradus.descriptions import description_of
from gradus.errors import QueueFault

DEADLINE_S = 600.0
"""For one handful of completions; a service that is away that long makes them faults."""
READY_TIMEOUT_S = 15.0


class Judge(Protocol):
    """Grades for one grader."""

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

    async def info(self) -> GraderInfo:
        return await self._client.wait_ready(self._grader, self._ready_timeout_s)

    async def description(self) -> GraderDescription:
        return await announced(self._client, self._grader)

    async def grade(self, submissions: Sequence[Mapping[str, Any]], rubric: str | None) -> Sequence[Graded | Faulted]:
        return await self._client.grade(self._grader, submissions, rubric=rubric, deadline_s=DEADLINE_S)


async def announced(client: RewardClient, grader: str) -> GraderDescription:
    """The description that a service announces; where it is older or away, the one that this version knows."""
    try:
        return await client.description(grader) or description_of(grader)
    except QueueFault:
        return description_of(grader)
