"""GRPO over several turns: chains are written by `trainer.rollouts` and trained by TRL's loop."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from accelerate.utils import gather_object
from trl import GRPOTrainer

from trainer.generation.responses import Sampled
from trainer.rollouts.check_tool import last_answer
from trainer.rollouts.credit import advantages_of_tokens, advantages_of_turns, rewards_of_turns
from trainer.rollouts.files import records_of_chains, records_of_turns
from trainer.rollouts.rollout import Rollout
from trainer.runs.folder import append_lines
from trainer.stages.online import GradusTrainer, sent_as_they_end

for interface in ("rollout_func", "environment_factory"):
    # TRL warns that they are experimental. `trainer.rollouts` holds all that depends on them.
    warnings.filterwarnings("ignore", message=f"You are using '{interface}'")


class ToolTrainer(GradusTrainer):
    """GRPO of a model that calls `check(code)`. TRL runs the tool; the reward is that of the last
    message."""

    calls: Counter[str]
    """Calls of this process since the last step, by outcome."""

    def _texts(self, completions: Any, completion_ids: Any) -> list[str]:
        return [last_answer(one) for one in completions]

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        output = super()._generate_and_score_completions(inputs)
        counts = sum((Counter(one) for one in gather_object([dict(self.calls)])), Counter[str]())
        for outcome in ("passed", "failed", "faulted"):
            self._metrics["train"][f"turns/checks/{outcome}"].append(float(counts[outcome]))
        self.calls.clear()
        return output


class TurnsTrainer(GradusTrainer):
    """GRPO on chains. Its `rollout_func` is a `Rollout`."""

    rollout_func: Rollout
    weight = 1.0
    """Weight of the grader's reward."""
    files: tuple[Path, Path] | None = None
    """completions.jsonl and turns.jsonl, if they are written."""

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        rollout = self.rollout_func
        rollout.tasks = [row["prompt_id"] for row in inputs]
        rollout.watch = (
            self._watched if self.asked_early and (self.served or not self.use_vllm) else None
        )
        # Not GradusTrainer's: it watches one call of `generate` and writes one completion per
        # sample.
        output = GRPOTrainer._generate_and_score_completions(self, inputs)
        output = self._without_faulted(output)
        advantages_BK = self._advantages_of_turns(output["advantages"])
        if rollout.config.credit == "turn":
            width = output["completion_ids"].shape[1]
            output["advantages"] = advantages_of_tokens(rollout.chains, advantages_BK, width)
        if self.files is not None:
            step, told = self.state.global_step + 1, advantages_BK.tolist()
            append_lines(self.files[0], records_of_chains(step, rollout.chains, told))
            append_lines(self.files[1], records_of_turns(step, rollout.chains, told))
        if self.served is not None:
            for name, value in self.served.metrics.items():
                self._metrics["train"][f"generation/{name}"].append(value)
            self.served.metrics.clear()
        return output

    def _advantages_of_turns(self, advantages_B: Any) -> Any:
        """Advantages of this process's chains by turn, of shape (B, turns); `advantages_B` are
        TRL's, per chain."""
        rollout = self.rollout_func
        config, chains = rollout.config, rollout.chains
        if config.credit == "chain":
            return advantages_B.unsqueeze(1).expand(-1, config.max)
        rewards_BK = rewards_of_turns(chains, config.max, config.discount, self.weight)
        everyone_BK = self.accelerator.gather(rewards_BK.to(self.accelerator.device))
        advantages_BK = advantages_of_turns(everyone_BK, self.num_generations, self.scale_rewards)
        own = self.accelerator.process_index * len(chains)
        return advantages_BK[own : own + len(chains)]

    @contextmanager
    def _watched(self, tasks: Sequence[str]) -> Iterator[None]:
        """Inside the block, completions of these tasks go to the judges as they end."""

        def send(ended: list[tuple[str, str]]) -> None:
            self._send_ahead([one for one in ended if one[0]])

        if self.served is None:
            model = self.accelerator.unwrap_model(self.model_wrapped)
            with sent_as_they_end(model, self.processing_class, self.eos_token_ids, tasks, send):
                yield
            return
        all_tasks = gather_object(list(tasks))

        def send_group(group: int, sampled: list[Sampled]) -> None:
            texts = self.processing_class.batch_decode(
                [one.ids_T for one in sampled], skip_special_tokens=True
            )
            send([(all_tasks[group * len(sampled)], text) for text in texts])

        self.served.on_group = send_group
        yield
