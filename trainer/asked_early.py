"""What one grader is asked in a step: completions as they end, and the rest at the end of the step, in one deadline.

Makes submissions and hands them to `RewardClient`; makes neither rewards nor records of what comes back.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterable, Sequence

from gradus.client import RewardClient
from gradus.contract import Faulted, Graded, Submission
from trainer.config import RewardConfig

Result = Graded | Faulted
Asked = tuple[str, str]
"""A prompt's id and a completion for it."""
MakeSubmission = Callable[[str, str, str], Submission]
"""(prompt's id, completion, submission's id) -> what to send."""

MIN_DEADLINE_S = 1.0
"""What a second call gets at least when early ones have used up the time."""


def client_of(config: RewardConfig) -> RewardClient:
    return RewardClient(config.urls, api_key=os.environ.get(config.api_key_env), batch_size=config.batch_size)


class Grading:
    """One grader of a run. Belongs to the loop that calls `grade`."""

    def __init__(self, config: RewardConfig, client: RewardClient, submission: MakeSubmission) -> None:
        self._config = config
        self._client = client
        self._submission = submission
        self._early: dict[Asked, asyncio.Task[Result]] = {}
        """What was sent ahead, by task and completion."""

    def send_ahead(self, asked: Iterable[Asked]) -> None:
        """Begin to grade what the next call of `grade` will ask for. Call it on the loop that will run `grade`."""
        new = [one for one in dict.fromkeys(asked) if one not in self._early]
        if new:
            sent = asyncio.create_task(self._ask(new, f"early.{len(self._early)}.", self._config.deadline_s))
            self._early |= {one: asyncio.create_task(_item_of(sent, index)) for index, one in enumerate(new)}

    def share_sent(self, asked: Sequence[Asked]) -> float:
        """How much of this was sent ahead."""
        return sum(one in self._early for one in asked) / max(len(asked), 1)

    async def grade(self, asked: Sequence[Asked], id_prefix: str) -> list[Result]:
        """Results in order: early verdicts, and for all else a call of its own, within one deadline for both."""
        give_up_at = time.monotonic() + self._config.deadline_s
        early, self._early = {one: self._early[one] for one in asked if one in self._early}, {}
        if early:
            await asyncio.wait(early.values(), timeout=self._config.deadline_s)
        found = {one: task.result() for one, task in early.items() if task.done() and not task.exception()}
        results = [found.get(one) for one in asked]
        missing = [index for index, result in enumerate(results) if not isinstance(result, Graded)]
        left_s = max(give_up_at - time.monotonic(), MIN_DEADLINE_S)
        again = await self._ask([asked[index] for index in missing], id_prefix, left_s) if missing else []
        for index, result in zip(missing, again, strict=True):
            results[index] = result
        return [result for result in results if result is not None]

    async def _ask(self, asked: Sequence[Asked], id_prefix: str, deadline_s: float) -> list[Result]:
        submissions = [
            self._submission(prompt_id, text, f"{id_prefix}{index}") for index, (prompt_id, text) in enumerate(asked)
        ]
        grader, rubric = self._config.judge, self._config.rubric
        return await self._client.grade(grader, submissions, rubric=rubric, deadline_s=deadline_s)


async def _item_of(sent: asyncio.Task[list[Result]], index: int) -> Result:
    return (await asyncio.shield(sent))[index]
