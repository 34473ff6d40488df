"""Advantages of turns: each answer is compared with the answers of the same turn in its group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from trl.trainer.utils import nanstd

from trainer.rollouts.chain import Chain, discounted


def rewards_of_turns(chains: Sequence[Chain], turns: int, discount: float, weight: float) -> Any:
    """Rewards of shape (chains, turns), float32; NaN where a chain has no such turn, and in chains
    with a fault."""
    rewards_BK = torch.full((len(chains), turns), torch.nan)
    for row, chain in enumerate(chains):
        rewards = [discounted(one.reward, turn, discount) for turn, one in enumerate(chain.turns)]
        if None not in rewards:
            rewards_BK[row, : len(rewards)] = torch.tensor(rewards)
    return rewards_BK * weight


def advantages_of_turns(rewards_BK: Any, group: int, scale: str) -> Any:
    """Advantages of the same shape, 0 where there is no reward.

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


def advantages_of_tokens(chains: Sequence[Chain], advantages_BK: Any, width: int) -> Any:
    """Advantages of shape (chains, `width`): each token of an answer has its turn's, all others
    have 0."""
    advantages_BT = torch.zeros(len(chains), width, device=advantages_BK.device)
    for row, chain in enumerate(chains):
        for turn, one in enumerate(chain.turns):
            advantages_BT[row, one.start : one.end] = advantages_BK[row, turn]
    return advantages_BT
