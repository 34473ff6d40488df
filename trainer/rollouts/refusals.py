"""Settings that would train several turns wrongly, and why."""

from __future__ import annotations

from typing import Any

from gradus.errors import Misuse
from trainer.config.run import TrainConfig
from trainer.runs.distributed import count_processes


def refuse_wrong_combinations(config: TrainConfig, options: Any) -> None:
    """Raises Misuse for settings that exclude `turns`. `options` is TRL's GRPOConfig."""
    turns = config.turns
    if turns is None:
        return
    by_turn = turns.credit == "turn"
    as_tool = turns.as_tool
    tokens = options.max_completion_length
    wrong = (
        (
            config.stage != "grpo",
            "stage",
            "TRL's RLOOTrainer takes no rollout function; use stage: grpo",
        ),
        (
            config.reward.grader is None,
            "reward.grader",
            "repair turns need the verdict of a grader",
        ),
        (
            config.reward.grader == "preference",
            "reward.grader",
            "a score does not say what to repair",
        ),
        (
            bool(config.reward.services or config.reward.models),
            "reward.services and reward.models",
            "they would judge all turns as one text",
        ),
        (
            config.prompt.style != "chat",
            "prompt.style",
            "a plain text has no turns; use style: chat",
        ),
        (
            options.loss_type == "dr_grpo",
            "loss_type: dr_grpo",
            (
                "it divides by max_completion_length, which bounds one answer and not a chain; use"
                " dapo"
            ),
        ),
        (
            by_turn and options.loss_type in ("luspo", "vespo"),
            f"loss_type: {options.loss_type}",
            (
                "it weighs whole samples, and turns have advantages of their own; use dapo, or"
                " credit: chain"
            ),
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
            as_tool and by_turn,
            "as_tool and credit: turn",
            "the calls of a tool are not graded one by one; use credit: chain",
        ),
        (
            as_tool and (turns.discount != 1 or turns.window is not None),
            "as_tool and discount or window",
            "TRL runs the tool; max_completion_length bounds all that follows the prompt",
        ),
        (
            as_tool and config.generation.backend == "vllm" and count_processes() > 1,
            "as_tool and a vLLM server in several processes",
            (
                "TRL 1.16 gives completions to other processes where they differ in their number of"
                " calls"
            ),
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
