"""Advantage estimators that leave out samples without a reward.

A fault is NaN in the rewards. The trainer's own estimator is called on the other samples, so that
their advantages are what they are without the faulted ones.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any


def leave_out_faults(estimator: Callable[..., tuple[Any, Any]]) -> Callable[..., tuple[Any, Any]]:
    """Return the estimator for batches that may hold faults.

    A faulted sample gets advantages and returns of 0, and its row of `response_mask` is set to 0 in
    place: trainers whose loss reads the same tensor then leave out its KL and entropy terms too.
    """

    @functools.wraps(estimator)
    def estimate(
        token_level_rewards: Any, response_mask: Any, index: Any, **options: Any
    ) -> tuple[Any, Any]:
        import numpy as np
        import torch

        faulted = token_level_rewards.isnan().any(dim=-1)
        response_mask[faulted] = 0
        advantages = torch.zeros_like(token_level_rewards)
        returns = torch.zeros_like(token_level_rewards)
        kept = ~faulted
        if not kept.any():
            return advantages, returns
        for name, value in options.items():
            if isinstance(value, torch.Tensor) and value.shape[:1] == kept.shape:
                options[name] = value[kept]
        advantages[kept], returns[kept] = estimator(
            token_level_rewards=token_level_rewards[kept],
            response_mask=response_mask[kept],
            index=np.asarray(index)[kept.cpu().numpy()],
            **options,
        )
        return advantages, returns

    return estimate
