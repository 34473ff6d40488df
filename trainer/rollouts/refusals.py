"""Settings that would train several turns wrongly, and why."""

from __future__ import annotations

from typing import Any

from gradus.errors import Misuse
from trainer.config.run import TrainConfig


def refuse_wrong_combinations(config: TrainConfig, options: Any) -> None:
    """Raises Misuse for settings that exclude `turns`. `options` is TRL's GRPOConfig."""
    turns = config.turns
    if turns is None:
        return
    by_turn = turns.credit == "turn"
    tokens = options.max_completion_length
    wrong = (
        (config.stage != "grpo", "stage", "TRL's RLOOTrainer takes no rollout function; use stage: grpo"),
        (config.reward.grader is None, "reward.grader", "a chain goes on by the verdict of a grader"),
        (config.reward.grader == "preference", "reward.grader", "a score does not say what to repair"),
        (
            bool(config.reward.services or config.reward.models),
            "reward.services and reward.models",
            "they would judge all turns as one text",
        ),
        (config.prompt.style != "chat", "prompt.style", "a plain text has no turns; use style: chat"),
        (
            options.loss_type == "dr_grpo",
            "loss_type: dr_grpo",
            "it divides by max_completion_length, which bounds one answer and not a chain; use dapo",
        ),
        (
            by_turn and options.loss_type in ("luspo", "vespo"),
            f"loss_type: {options.loss_type}",
            "it weighs whole samples, and turns have advantages of their own; use dapo, or credit: chain",
        ),
        (
            by_turn and options.importance_sampling_level == "sequence",
            "importance_sampling_level: sequence",
            "one ratio for all turns would meet an advantage per turn; use token, or credit: chain",
        ),
        (
            by_turn and options.off_policy_mask_threshold is not None,
            "off_policy_mask_threshold",
            "it masks whole samples by one advantage; use credit: chain",
        ),
        (
            by_turn and options.multi_objective_aggregation != "sum_then_normalize",
            f"multi_objective_aggregation: {options.multi_objective_aggregation}",
            "turns have one reward; leave it out",
        ),
        (
            turns.window is not None and turns.window <= tokens,
            f"turns.window: {turns.window}",
            f"no prompt fits beside an answer of max_completion_length {tokens}",
        ),
    )
    for holds, name, why in wrong:
        if holds:
            raise Misuse(f"turns cannot be used with {name}: {why}")
