"""A chain: what one sample of several turns is made of. Tokens, masks and verdicts; generates and
grades nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from gradus.contract import Faulted, Graded
from trainer.data.prompts import Prompt


class StopReason(StrEnum):
    """Why a chain has no further turn."""

    PASSED = "passed"
    FAULTED = "faulted"
    CUT = "cut"
    """The answer reached `max_completion_length`."""
    WINDOW = "window"
    """A further turn might not fit."""
    TURNS = "turns"
    """It had `turns.max` answers."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One answer, the user's message before it, and its verdict."""

    said: str | None
    """None before the first answer."""
    text: str
    result: Graded | Faulted
    start: int
    end: int
    """The answer is `ids_T[start:end]` of its chain."""

    @property
    def reward(self) -> float | None:
        return self.result.reward if isinstance(self.result, Graded) else None

    @property
    def passed(self) -> bool:
        return isinstance(self.result, Graded) and self.result.passed


@dataclass(slots=True)
class Chain:
    """One sample: answers of the model and messages of the user in turns, behind a prompt."""

    task: str
    """The prompt's id."""
    prompt: Prompt
    prompt_ids: list[int]
    ids_T: list[int] = field(default_factory=list)
    """Tokens behind the prompt."""
    mask_T: list[int] = field(default_factory=list)
    """1 for tokens of the model, which are trained; 0 for the user's."""
    logprobs_T: list[float | None] = field(default_factory=list)
    """As they were sampled; 0 for tokens of the user, and where the backend reports none."""
    turns: list[Turn] = field(default_factory=list)
    stopped: StopReason | None = None
    """None while there may be a further turn."""

    def add_user(self, ids: Sequence[int]) -> None:
        self.ids_T += ids
        self.mask_T += [0] * len(ids)
        self.logprobs_T += [0.0] * len(ids)

    def add_model(
        self, ids: Sequence[int], logprobs: Sequence[float | None] | None
    ) -> tuple[int, int]:
        """Where the answer stands in `ids_T`: its beginning and its end."""
        start = len(self.ids_T)
        self.ids_T += ids
        self.mask_T += [1] * len(ids)
        self.logprobs_T += logprobs if logprobs is not None else [0.0] * len(ids)
        return start, len(self.ids_T)

    def reward(self, discount: float) -> float | None:
        """The last answer's reward, times `discount` for each turn before it; None for a fault."""
        return discounted(self.turns[-1].reward, len(self.turns) - 1, discount)

    @property
    def passed(self) -> bool:
        return self.turns[-1].passed


def discounted(reward: float | None, turns_before: int, discount: float) -> float | None:
    return None if reward is None else reward * discount**turns_before
