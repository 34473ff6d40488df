"""Reward functions of the user's own (`reward.functions`), beside the judges.

They have TRL's form: lists of prompts, completions, token ids and columns come in by name, and a
list of rewards goes out.
"""

from __future__ import annotations

import asyncio
import inspect
import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from gradus.errors import GradusError, Misuse
from trainer.config.run import RewardFunctionConfig
from trainer.data.tasks import Example

GIVEN = (
    "prompts",
    "completions",
    "completion_ids",
    "prompt_id",
    "kind",
    "solution",
    "task",
    "trainer_state",
    "log_metric",
    "log_extra",
)
"""Names of what every function is called with."""


class WrongReward(GradusError):
    """A reward function returned what is no list of rewards."""


def penalize_overlong(
    *, completion_ids: Sequence[Sequence[int]], max_length: int, buffer: int, **_: Any
) -> list[float]:
    """Return 0 for completions of at most `max_length - buffer` tokens, then falling in proportion
    down to -1 at `max_length` tokens and beyond.

    The soft overlong punishment of DAPO (arXiv:2503.14476, equation 13). `max_length` is the length
    at which completions are cut, `max_completion_length` of the options.
    """
    if not 0 < buffer <= max_length:
        raise Misuse(
            f"penalize_overlong: buffer is {buffer}; it must be above 0 and at most max_length,"
            f" {max_length}"
        )
    rewards = []
    for ids in completion_ids:
        excess = len(ids) - (max_length - buffer)
        rewards.append(-min(max(excess / buffer, 0.0), 1.0))
    return rewards


def load_function(config: RewardFunctionConfig) -> Callable[..., Any]:
    """Return the function at `package.module:function`; modules of the working directory can be
    named too.

    Raises Misuse where there is none.
    """
    module, _, name = config.path.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    try:
        function: Callable[..., Any] = getattr(import_module(module), name)
    except Exception as error:  # noqa: BLE001 - a module of the user's may raise anything
        raise Misuse(
            f"reward.functions: {config.path} cannot be loaded: {type(error).__name__}: {error}"
        ) from None
    try:
        inspect.signature(function).bind(**{**dict.fromkeys(GIVEN), **config.arguments})
    except TypeError as error:
        raise Misuse(
            f"reward.functions: {config.path} cannot be called: {error}; it is called with"
            f" {', '.join(GIVEN)} and the names in `arguments`"
        ) from None
    return function


@dataclass(slots=True)
class FunctionReward:
    """A reward function with its settings, and the tasks that it gets as columns."""

    config: RewardFunctionConfig
    function: Callable[..., Any]
    tasks: Mapping[str, Example]
    """By the ids of their prompts."""
    record: Callable[[str, list[dict[str, Any]]], None]
    """A function that takes the label and one row per completion."""

    @property
    def name(self) -> str:
        return self.config.label

    async def compute_rewards(
        self, *, completions: Sequence[str], prompt_id: Sequence[str], **columns: Any
    ) -> list[float | None]:
        """Return one reward per completion, None where the function has none for it.

        Raises WrongReward for another number of rewards, or what is no finite number.
        """
        examples = [self.tasks[key] for key in prompt_id]
        given = {
            **columns,
            "completions": completions,
            "prompt_id": prompt_id,
            "kind": [example.kind for example in examples],
            "solution": [example.solution for example in examples],
            "task": [_dump_task(example) for example in examples],
            **self.config.arguments,
        }
        if inspect.iscoroutinefunction(self.function):
            returned = await self.function(**given)
        else:
            # in a thread, so that the graders' answers are read meanwhile
            returned = await asyncio.to_thread(self.function, **given)
        rewards = _check_rewards(self.config.path, returned, len(completions))
        self.record(self.name, [{"reward": reward} for reward in rewards])
        return rewards


def _dump_task(example: Example) -> dict[str, Any] | None:
    return None if example.task is None else example.task.model_dump(exclude_defaults=True)


def _check_rewards(path: str, returned: Any, count: int) -> list[float | None]:
    """Return the rewards as numbers. Raises WrongReward."""
    try:
        rewards = [None if reward is None else float(reward) for reward in returned]
    except (TypeError, ValueError):
        raise WrongReward(
            f"reward.functions: {path} must return a list of numbers and None, not"
            f" {str(returned)[:200]}"
        ) from None
    if len(rewards) != count:
        raise WrongReward(
            f"reward.functions: {path} returned {len(rewards)} rewards for {count} completions"
        )
    for reward in rewards:
        if reward is not None and not math.isfinite(reward):
            raise WrongReward(
                f"reward.functions: {path} returned {reward}; return None for a completion that"
                " cannot be judged"
            )
    return rewards
