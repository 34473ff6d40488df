"""Which graders the services have: what `RewardClient` can ask before it sends a submission."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from typing import TypeVar

from pydantic import BaseModel

from gradus.descriptions import (
    GraderDescription,
    GraderInfo,
    GraderList,
    checked_name,
    grader_named,
)
from gradus.errors import QueueFault, UnknownGrader

AnswerT = TypeVar("AnswerT", bound=BaseModel)


class Discovery(ABC):
    """Questions about live graders, asked by `get`."""

    named: str
    """The services' URLs."""

    @abstractmethod
    async def get(self, path: str, answer: type[AnswerT]) -> AnswerT:
        """The answer of the first service that gives one.

        Raises QueueFault when none does, UnknownGrader for status 404, Misuse for another status
        that refuses.
        """

    async def graders(self) -> tuple[GraderInfo, ...]:
        """The live graders of the first service that answers. Raises QueueFault when none does,
        Misuse when refused."""
        return (await self.get("/v1/graders", GraderList)).graders

    async def description(self, grader: str) -> GraderDescription | None:
        """The description of a live grader; None from services of earlier versions, which have
        none, and where the grader is not running. Raises QueueFault when no service answers, Misuse
        when refused."""
        try:
            return await self.get(f"/v1/graders/{grader}", GraderDescription)
        except UnknownGrader:
            return None

    async def known(self, grader: str) -> str:
        """`grader`, if it ships, is installed here, or is announced by a worker of the service.

        Raises UnknownGrader for other names, QueueFault when no service answers.
        """
        try:
            return grader_named(grader)
        except UnknownGrader:
            if await self.description(checked_name(grader)) is None:
                raise
            return grader

    async def wait_ready(self, grader: str, timeout_s: float = 60.0) -> GraderInfo:
        """The grader's announcement, as soon as a worker for it is alive. Raises QueueFault after
        `timeout_s`."""
        name = checked_name(grader)
        give_up_at = time.monotonic() + timeout_s
        while True:
            try:
                for info in await self.graders():
                    if info.name == name:
                        return info
                why = (
                    f"no {name} grader is running at {self.named}: start one with `gradus worker"
                    f" {name}`"
                )
            except QueueFault as fault:
                why = fault.message
            if time.monotonic() >= give_up_at:
                raise QueueFault(f"not ready after {timeout_s:g} s: {why}")
            await asyncio.sleep(min(0.25, timeout_s))
