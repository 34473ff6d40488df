"""GRPO over several turns: chains are written by `trainer.rollouts` and trained by TRL's loop."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from trl import GRPOTrainer

from gradus.errors import Misuse
from trainer.config.run import TrainConfig
from trainer.rollouts.chain import (
    build_chain_records,
    build_turn_records,
    collect_turn_rewards,
    compute_token_advantages,
    compute_turn_advantages,
)
from trainer.rollouts.rollout import Rollout
from trainer.runs.distributed import run_on_all_ranks
from trainer.runs.folder import append_lines
from trainer.stages.grpo import GradusTrainer

# TRL warns that `rollout_func` is experimental. `trainer.rollouts` holds all that depends on it.
os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")


class TurnsTrainer(GradusTrainer):
    """GRPO on chains. Its `rollout_func` is a `Rollout`."""

    rollout_func: Rollout
    weight = 1.0
    """Weight of the grader's reward."""
    files: tuple[Path, Path]
    """completions.jsonl and turns.jsonl."""

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        rollout = self.rollout_func
        rollout.tasks = [row["prompt_id"] for row in inputs]
        rollout.watch = self._watch_generation
        # Not GradusTrainer's: it watches one call of `generate` and writes one completion per
        # sample.
        output = GRPOTrainer._generate_and_score_completions(self, inputs)
        output = self._mask_faulted(output)
        advantages_BK = self._compute_advantages(output["advantages"])
        if rollout.config.credit == "turn":
            width = output["completion_ids"].shape[1]
            output["advantages"] = compute_token_advantages(rollout.chains, advantages_BK, width)
        step = self.state.global_step + 1
        advantages = advantages_BK.tolist()
        run_on_all_ranks(lambda: self._write_chains(step, advantages))
        self._log_generation()
        return output

    def _write_chains(self, step: int, advantages: list[list[float]]) -> None:
        chains = self.rollout_func.chains
        append_lines(self.files[0], build_chain_records(step, chains, advantages))
        append_lines(self.files[1], build_turn_records(step, chains, advantages))

    def _compute_advantages(self, advantages_B: Any) -> Any:
        """Return advantages of this process's chains by turn, of shape (B, turns); `advantages_B`
        are TRL's, per chain."""
        rollout = self.rollout_func
        if rollout.config.credit == "chain":
            return advantages_B.unsqueeze(1).expand(-1, rollout.config.max)
        rewards_BK = collect_turn_rewards(rollout.chains, rollout.config.max, self.weight)
        everyone_BK = self.accelerator.gather(rewards_BK.to(self.accelerator.device))
        advantages_BK = compute_turn_advantages(
            everyone_BK, self.num_generations, self.scale_rewards
        )
        offset = self.accelerator.process_index * len(rollout.chains)
        return advantages_BK[offset : offset + len(rollout.chains)]


def refuse_wrong_turns(config: TrainConfig, options: Any) -> None:
    """Raise Misuse for settings that exclude `turns`. `options` is TRL's GRPOConfig."""
    turns = config.turns
    if turns is None:
        return
    by_turn = turns.credit == "turn"
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
            bool(config.reward.models or config.reward.functions),
            "reward.models and reward.functions",
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
            turns.window is not None and turns.window <= tokens,
            f"turns.window: {turns.window}",
            f"no prompt fits beside an answer of max_completion_length {tokens}",
        ),
    )
    for holds, name, why in wrong:
        if holds:
            raise Misuse(f"turns cannot be used with {name}: {why}")
