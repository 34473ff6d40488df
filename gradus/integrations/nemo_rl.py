"""NeMo-RL: leave samples with a fault out of the baseline of their prompt.

    python -m gradus.integrations.nemo_rl examples/nemo_gym/run_grpo_nemo_gym.py --config ...

NeMo Gym's port of Gradus sets `mask_sample` for a fault. NeMo-RL leaves such a sample out of its
loss, but its estimators count the sample's reward of 0.0 in the baseline of its prompt, and they
have no registry. This runs a script of NeMo-RL with estimators that leave the sample out there too.
A script of your own calls `register()` before it trains.

`grpo_train` and `async_grpo_train` of NeMo-RL 0.6 mask samples. Its `grpo_sync`, `ppo` and single
controller do not read `mask_sample`: there a fault is a reward of 0.0 (docs/integrations.md).
"""

from __future__ import annotations

import functools
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ESTIMATORS = (
    "GRPOAdvantageEstimator",
    "GDPOAdvantageEstimator",
    "ReinforcePlusPlusAdvantageEstimator",
)


def register() -> None:
    """Replace `compute_advantage` of NeMo-RL's estimators in this process, which computes the
    advantages."""
    from nemo_rl.algorithms import advantage_estimator

    for name in ESTIMATORS:
        estimator = getattr(advantage_estimator, name)
        estimator.compute_advantage = leave_out_masked(estimator.compute_advantage)


def leave_out_masked(compute_advantage: Callable[..., Any]) -> Callable[..., Any]:
    """Return `compute_advantage` for batches that may hold masked samples, whose advantages are
    0."""

    @functools.wraps(compute_advantage)
    def compute(
        self: Any, prompt_ids: Any, rewards: Any, mask: Any, repeated_batch: Any, **options: Any
    ) -> Any:
        import torch

        no_masks = [False] * len(rewards)
        masked = torch.as_tensor(repeated_batch.get("mask_sample", no_masks), dtype=torch.bool)
        unmasked = ~masked.to(rewards.device)
        advantages = rewards.new_zeros(mask.shape)
        if not unmasked.any():
            return advantages
        components = {
            name: values[unmasked]
            for name, values in repeated_batch.items()
            if name.startswith("reward/")
        }
        for name, value in options.items():
            if isinstance(value, torch.Tensor):
                options[name] = value[unmasked]
        advantages[unmasked] = compute_advantage(
            self,
            prompt_ids[unmasked],
            rewards[unmasked],
            mask[unmasked],
            repeated_batch=components,
            **options,
        )
        return advantages

    return compute


if __name__ == "__main__":
    del sys.argv[0]
    sys.path[0] = str(Path(sys.argv[0]).parent)
    register()
    runpy.run_path(sys.argv[0], run_name="__main__")
