"""A chain: what one sample of several turns is made of, the advantages of its turns, and its lines
in completions.jsonl and turns.jsonl. Generates and grades nothing.

An answer's advantage compares it with the answers of the same turn in its group.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import torch
from trl.trainer.utils import nanstd

from gradus.contract import Faulted, Graded
from trainer.data.prompts import Prompt
from trainer.rewards.judge import Record, build_outcome


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
        """Return where the answer stands in `ids_T`: its beginning and its end."""
        start = len(self.ids_T)
        self.ids_T += ids
        self.mask_T += [1] * len(ids)
        self.logprobs_T += logprobs if logprobs is not None else [0.0] * len(ids)
        return start, len(self.ids_T)

    @property
    def passed(self) -> bool:
        return self.turns[-1].passed


# ------------------------------------------------------------------------------------- advantages


def collect_turn_rewards(chains: Sequence[Chain], turns: int, weight: float) -> Any:
    """Return rewards of shape (chains, turns), float32; NaN where a chain has no such turn, and in
    chains with a fault."""
    rewards_BK = torch.full((len(chains), turns), torch.nan)
    for row, chain in enumerate(chains):
        rewards = [turn.reward for turn in chain.turns]
        if None not in rewards:
            rewards_BK[row, : len(rewards)] = torch.tensor(rewards)
    return rewards_BK * weight


def compute_turn_advantages(rewards_BK: Any, group: int, scale: str) -> Any:
    """Return advantages of the same shape, 0 where there is no reward.

    `scale` is TRL's `scale_rewards`: `group`, `batch` or `none`. A turn that one chain of a group
    has reached alone has the advantage 0.
    """
    advantages_BK = torch.zeros_like(rewards_BK)
    for turn in range(rewards_BK.shape[1]):
        rewards = rewards_BK[:, turn]
        # In the operations and the order of TRL's GRPOTrainer, so that a single turn is bit for bit
        # the same.
        means = torch.nanmean(rewards.view(-1, group), dim=1).repeat_interleave(group, dim=0)
        advantages = rewards - means
        if scale == "group":
            advantages = advantages / (
                nanstd(rewards.view(-1, group), dim=1).repeat_interleave(group, dim=0) + 1e-4
            )
        elif scale == "batch":
            advantages = advantages / (nanstd(rewards).expand_as(rewards) + 1e-4)
        advantages_BK[:, turn] = torch.nan_to_num(advantages, nan=0.0)
    return advantages_BK


def compute_token_advantages(chains: Sequence[Chain], advantages_BK: Any, width: int) -> Any:
    """Return advantages of shape (chains, `width`): each token of an answer has its turn's, all
    others have 0."""
    advantages_BT = torch.zeros(len(chains), width, device=advantages_BK.device)
    for row, chain in enumerate(chains):
        for turn, answer in enumerate(chain.turns):
            advantages_BT[row, answer.start : answer.end] = advantages_BK[row, turn]
    return advantages_BT


# ------------------------------------------------------------------------------------------ lines


def build_turn_records(
    step: int, chains: Sequence[Chain], advantages_BK: Sequence[Sequence[float]]
) -> list[Record]:
    """Return a line per answer, in the order of the chains; `sample` counts within the group of one
    task.

    `said` is the user's message before the answer, null for the first. `stopped` stands in the last
    line of a chain.
    """
    records = []
    for position, chain, advantages in _iter_chains(step, chains, advantages_BK):
        for number, turn in enumerate(chain.turns, start=1):
            records.append(
                {
                    **position,
                    "turn": number,
                    "said": turn.said,
                    "completion": turn.text,
                    "tokens": turn.end - turn.start,
                    **build_outcome(turn.result),
                    "advantage": advantages[number - 1],
                    "stopped": chain.stopped if number == len(chain.turns) else None,
                }
            )
    return records


def build_chain_records(
    step: int, chains: Sequence[Chain], advantages_BK: Sequence[Sequence[float]]
) -> list[Record]:
    """Return a line per chain with its last answer, in the form of a run of single turns, and the
    number of its turns."""
    records = []
    for position, chain, advantages in _iter_chains(step, chains, advantages_BK):
        records.append(
            {
                **position,
                "prompt": chain.prompt,
                "completion": chain.turns[-1].text,
                **build_outcome(chain.turns[-1].result),
                "turns": len(chain.turns),
                "stopped": chain.stopped,
                "advantage": advantages[len(chain.turns) - 1],
            }
        )
    return records


def _iter_chains(
    step: int, chains: Sequence[Chain], advantages_BK: Sequence[Sequence[float]]
) -> Iterator[tuple[Record, Chain, Sequence[float]]]:
    counts: Counter[str] = Counter()
    for chain, advantages in zip(chains, advantages_BK, strict=True):
        yield (
            {"step": step, "prompt_id": chain.task, "sample": counts[chain.task]},
            chain,
            advantages,
        )
        counts[chain.task] += 1
