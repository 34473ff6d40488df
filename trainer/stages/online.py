"""TRL's two trainers that learn from rewards, GRPO and RLOO, with what ours do besides. The loops are TRL's.

They send completions to be graded early, resume from a checkpoint as if never stopped, and give a completion that one
judge could not judge no reward at all, whatever the others say of it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import gather_object
from trl import GRPOTrainer, RLOOTrainer

from trainer.generation.client import GenerationState
from trainer.generation.responses import Sampled
from trainer.rewards.completion_log import AdvantageLoggingMixin
from trainer.rewards.early_grading import sent_as_they_end
from trainer.rewards.judge import Judge
from trainer.runs.checkpoints import Resumable
from trainer.runs.folder import epochs_of, step_of


class OnRewards(AdvantageLoggingMixin, Resumable):
    """Goes before one of TRL's online trainers in the list of bases.

    Upstream forgets two things (TRL 1.16): how many passes over the data the shuffling has seen, so that a resumed
    pass repeats the first one's order; and where it stood within a batch of generations.
    """

    args: Any
    accelerator: Any
    model_wrapped: Any
    processing_class: Any
    eos_token_ids: Any
    async_loop: Any
    _metrics: Any

    passes_done = 0
    asked_early: Sequence[Judge] = ()
    """Where completions go as they end; empty: all are graded together."""
    served: GenerationState | None = None
    """The vLLM server that writes completions; None: this process does, or TRL talks to vLLM by itself."""

    def steps_in_round(self) -> int:
        """How many optimizer steps one batch of completions serves; 1 where each step has a batch of its own."""
        micro_steps, accumulated = self.args.steps_per_generation, self.args.gradient_accumulation_steps
        return math.lcm(micro_steps * self.args.num_iterations, accumulated) // int(accumulated)

    def resume_from(self, checkpoint: Path) -> None:
        self.passes_done = epochs_of(checkpoint)
        self._step = step_of(checkpoint) * self.args.gradient_accumulation_steps

    def _get_train_sampler(self, dataset: Any = None) -> Any:
        sampler = super()._get_train_sampler(dataset)  # type: ignore[misc]
        if sampler.shuffle:
            for _ in range(self.passes_done):
                torch.randperm(sampler.num_samples, generator=sampler.generator)
        return sampler

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        prompt_ids = [row["prompt_id"] for row in inputs]
        if self.served is not None:
            all_ids = gather_object(prompt_ids)

            def send(group: int, sampled: list[Sampled]) -> None:
                texts = self.processing_class.batch_decode([one.ids_T for one in sampled], skip_special_tokens=True)
                self._send_ahead([(all_ids[group * len(sampled)], text) for text in texts])

            self.served.on_group = send
            output = super()._generate_and_score_completions(inputs)
            for name, value in self.served.metrics.items():
                self._metrics["train"][f"generation/{name}"].append(value)
            self.served.metrics.clear()
            return output
        model = self.accelerator.unwrap_model(self.model_wrapped)
        with sent_as_they_end(model, self.processing_class, self.eos_token_ids, prompt_ids, self._send_ahead):
            return super()._generate_and_score_completions(inputs)

    def _send_ahead(self, ended: list[tuple[str, str]]) -> None:
        for judge in self.asked_early:
            self.async_loop.call_soon_threadsafe(judge.send_ahead, ended)

    def _calculate_rewards(self, *args: Any, **named: Any) -> Any:
        """Rewards by completion and judge. Beside other judges a fault would become a partial score."""
        rewards_BF = super()._calculate_rewards(*args, **named)  # type: ignore[misc]
        rewards_BF[torch.isnan(rewards_BF).any(dim=1)] = torch.nan
        return rewards_BF


class GradusTrainer(OnRewards, GRPOTrainer):  # type: ignore[misc]
    """GRPO."""


class GradusRlooTrainer(OnRewards, RLOOTrainer):  # type: ignore[misc]
    """REINFORCE with the mean of a group's other completions as the baseline."""


TRAINERS: dict[str, Any] = {"grpo": GradusTrainer, "rloo": GradusRlooTrainer}
