"""TRL's two trainers that learn from rewards, GRPO and RLOO, with what ours do besides. The loops
are TRL's.

They send completions to be graded early, resume from a checkpoint as if never stopped, and learn
nothing from a completion that one judge could not judge, whatever the others say of it: loss and
gradients are those of a batch without it.

Graded early: completions go to the graders as they end, while others of the batch are still being
written. With generation in this process a batch takes as long as its longest completion. A verdict
is asked for by task and text, so an early answer can only ever be the answer for exactly that
completion; what was not asked early, or came back as a fault, is asked in the usual way.
"""

from __future__ import annotations

import functools
import logging
import math
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import gather_object
from transformers import StoppingCriteria, StoppingCriteriaList, Trainer
from trl import RLOOTrainer

from gradus.errors import GradusError
from trainer.generation.client import GenerationState
from trainer.generation.responses import Sampled
from trainer.rewards.judge import CompletionsFile, Judge
from trainer.runs.checkpoints import Resumable
from trainer.runs.distributed import describe_failure, raise_on_all_ranks, run_on_all_ranks
from trainer.runs.folder import read_epochs, read_step
from trainer.stages.ahead import Lookahead, Rows

log = logging.getLogger("gradus.train")

FEW_EFFECTIVE = 0.5
"""Effective share of a round's tokens below which training.log has a warning."""
BY_TOKENS = ("dapo", "cispo", "vespo", "bnpo")
"""Losses that are divided by a number of tokens, and not of completions."""


class OnRewards(Resumable, Trainer):  # type: ignore[misc]
    """Goes before one of TRL's online trainers in the list of bases.

    Upstream forgets two things (TRL 1.16): how many passes over the data the shuffling has seen, so
    that a resumed pass repeats the first one's order; and where it stood within a batch of
    generations.
    """

    beta: Any
    _faulted_B: Any
    """Mask over all processes' completions of a round: those that a judge could not judge."""

    passes_done = 0
    completions_file: CompletionsFile | None = None
    asked_early: Sequence[Judge] = ()
    """Where completions go as they end; empty: all are graded together."""
    errors: Sequence[GradusError] = ()
    """What judges raised in this process, see `make_reward_function`."""
    served: GenerationState | None = None
    """The vLLM server that writes completions; None: this process does, or TRL talks to vLLM by
    itself."""
    lookahead: Lookahead | None = None
    """With `generation.ahead`."""

    def count_round_steps(self) -> int:
        """Return how many optimizer steps one batch of completions serves; 1 where each step has a
        batch of its own."""
        micro_steps = self.args.steps_per_generation * self.args.num_iterations
        accumulated = int(self.args.gradient_accumulation_steps)
        return math.lcm(micro_steps, accumulated) // accumulated

    def resume_from(self, checkpoint: Path) -> None:
        self.passes_done = read_epochs(checkpoint)
        self._step = read_step(checkpoint) * self.args.gradient_accumulation_steps

    def _get_train_sampler(self, dataset: Any = None) -> Any:
        sampler = super()._get_train_sampler(dataset)
        if sampler.shuffle:
            for _ in range(self.passes_done):
                torch.randperm(sampler.num_samples, generator=sampler.generator)
        return sampler

    def get_batch_samples(self, epoch_iterator: Any, num_batches: int, device: Any) -> Any:
        if self.lookahead is not None:
            epoch_iterator = iter(self.lookahead.take(epoch_iterator, num_batches))
        return super().get_batch_samples(epoch_iterator, num_batches, device)

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        try:
            with self._watch_generation([row["prompt_id"] for row in inputs]):
                output = super()._generate_and_score_completions(inputs)
        except BaseException:
            self._write_round(())
            raise
        advantages = output["advantages"].tolist()
        run_on_all_ranks(lambda: self._write_round(advantages))
        self._log_generation()
        self._log_sample_size(output)
        return self._mask_faulted(output)

    def _write_round(self, advantages: Sequence[float]) -> None:
        """Write the round's completions; `advantages` is empty where the round ended before it had
        them."""
        if self.completions_file is not None:
            self.completions_file.write_round(advantages)

    def _generate_single_turn(self, *arguments: Any, **options: Any) -> Any:
        """Return TRL's completions of one turn; what breaks in one process is raised in all.

        A server or sharded weights make generation itself a collective operation.
        """
        sharded = self.is_deepspeed_enabled or self.is_fsdp_enabled
        if self.use_vllm or sharded:
            completions = super()._generate_single_turn(*arguments, **options)
            if self.lookahead is not None and self.model.training:
                self._start_next_round(self.lookahead.get_next_round())
            return completions
        generate = super()._generate_single_turn
        return run_on_all_ranks(lambda: generate(*arguments, **options))

    def _start_next_round(self, rows: Rows | None) -> None:
        """Have the server write the next round's completions, if there is one."""
        if (
            rows is None
            or self.state.global_step + self.count_round_steps() >= self.state.max_steps
        ):
            return
        if self.asked_early:
            self._send_groups_of([row["prompt_id"] for row in rows])
        prompt_ids = self._tokenize_prompts([row["prompt"] for row in rows])[0]
        self.vllm_generation.start_ahead(prompt_ids, self.num_generations)

    @contextmanager
    def _watch_generation(self, tasks: Sequence[str]) -> Iterator[None]:
        """Inside the block, completions for these tasks go to the judges as they end; those of a
        task without a name go nowhere."""
        if not self.asked_early or (self.use_vllm and self.served is None):
            yield
        elif self.served is not None:
            self._send_groups_of(tasks)
            yield
        else:
            model = self.accelerator.unwrap_model(self.model_wrapped)
            with send_on_end(
                model, self.processing_class, self.eos_token_ids, tasks, self._send_ahead
            ):
                yield

    def _send_groups_of(self, tasks: Sequence[str]) -> None:
        """Have the groups that the server is asked for next sent to the judges as they are done."""
        assert self.served is not None
        all_tasks = gather_object(list(tasks))

        def send_group(group: int, sampled: list[Sampled]) -> None:
            texts = self.processing_class.batch_decode(
                [completion.ids_T for completion in sampled], skip_special_tokens=True
            )
            self._send_ahead([(all_tasks[group * len(sampled)], text) for text in texts])

        self.served.on_group = send_group

    def _send_ahead(self, ended: list[tuple[str, str]]) -> None:
        named = [pair for pair in ended if pair[0]]
        for judge in self.asked_early:
            self.async_loop.call_soon_threadsafe(judge.send_ahead, named)

    def _log_generation(self) -> None:
        if self.served is not None:
            for name, value in self.served.metrics.items():
                self._metrics["train"][f"generation/{name}"].append(value)
            self.served.metrics.clear()

    def _log_sample_size(self, output: Mapping[str, Any]) -> None:
        """Log how many tokens the weighted ones of a round by vLLM are worth, as a share of all."""
        weights = output.get("importance_sampling_ratio")
        if weights is None:
            return
        mask_BT = output["completion_mask"] * output.get("tool_mask", 1)
        sums = self.accelerator.gather(sum_weights(weights, mask_BT)[None]).sum(dim=0)
        share = compute_effective_share(sums)
        self._metrics["train"]["sampling/effective_sample_share"].append(share)
        if share < FEW_EFFECTIVE and self.accelerator.is_main_process:
            log.warning(
                "sampling/effective_sample_share=%.2f: trainer and vLLM give the same tokens other"
                " probabilities, so most of the round is not learned from; compare dtypes and"
                " sampling options, and set grpo.vllm_importance_sampling_mode: token_truncate",
                share,
            )

    def _calculate_rewards(
        self, inputs: Any, prompts: Any, completions: Any, completion_ids: Any
    ) -> Any:
        """Return rewards by completion and judge. Beside other judges a fault would become a
        partial score.

        Judges read what was written, as it was sent early: a tokenizer's `response_template` would
        leave thoughts out. Raises in all processes what a judge raised in one, after the last thing
        that they do together.
        """
        texts = self.processing_class.batch_decode(completion_ids, skip_special_tokens=True)
        rewards_BF = super()._calculate_rewards(inputs, prompts, texts, completion_ids)
        raise_on_all_ranks(next(iter(self.errors), None))
        self._faulted_B = torch.isnan(rewards_BF).any(dim=1)
        rewards_BF[self._faulted_B] = torch.nan
        return rewards_BF

    def _mask_faulted(self, output: dict[str, Any]) -> dict[str, Any]:
        """Return the round with the tokens of faulted completions masked, and counts of what is
        left of it.

        TRL 1.16 gives them no advantage and keeps their tokens in the KL term and in what it
        divides by.
        """
        if not self._faulted_B.any():
            return output
        rows = len(output["completion_mask"])
        here_B = self._faulted_B[self.accelerator.process_index * rows :][:rows]
        if "old_logps" in output:  # RLOO: one ratio for each completion, of sums over its tokens
            output["completion_mask"][here_B] = 0
            output["old_logps"][here_B] = 0
        # `completion_mask` is also what is attended to: ratios to the old log-probabilities could
        # overflow
        else:
            counted_BT = output.setdefault("tool_mask", torch.ones_like(output["completion_mask"]))
            counted_BT[here_B] = 0
            tokens = (output["completion_mask"] * counted_BT).sum()
            output["num_items_in_batch"] = self.accelerator.gather(tokens).sum()
        graded = (~self._faulted_B).sum().clamp(min=1)
        output["completions_per_graded"] = len(self._faulted_B) / graded
        return output

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> Any:
        """Return TRL's loss; where it divides by the number of completions, of those that were
        graded."""
        weight = inputs.get("completions_per_graded")
        if weight is None or getattr(self.args, "loss_type", None) in BY_TOKENS:
            return super()._compute_loss(model, inputs)
        beta, self.beta = self.beta, self.beta * weight
        try:
            weighted = {**inputs, "advantages": inputs["advantages"] * weight}
            return super()._compute_loss(model, weighted)
        finally:
            self.beta = beta


def sum_weights(weights: Any, mask_BT: Any) -> Any:
    """Return sum, sum of squares and number of the weights of the tokens that count. `weights` has
    one column where completions are weighed as a whole."""
    counted = weights.expand_as(mask_BT)[mask_BT.bool()].double()
    count = torch.full_like(counted.sum(), counted.numel())
    return torch.stack([counted.sum(), counted.square().sum(), count])


def compute_effective_share(sums: Any) -> float:
    """Return Kish's effective sample size as a share of all samples; 1 where there are none."""
    total, squares, count = sums.tolist()
    if count == 0:
        return 1.0
    return total**2 / (count * squares) if squares else 0.0


class GradusRlooTrainer(OnRewards, RLOOTrainer):  # type: ignore[misc]
    """REINFORCE with the mean of a group's other completions as the baseline."""


def make_reward_function(
    rewards: Callable[..., Awaitable[list[float | None]]], name: str, errors: list[GradusError]
) -> Callable[..., Any]:
    """Return the reward function for TRL, which names its metrics after it; what `rewards` raises
    goes into `errors`, and there are no rewards.

    Raised in one process, it would leave the others waiting for that one's rewards.
    """

    async def collect_rewards(*, completions: Sequence[Any], **columns: Any) -> list[float | None]:
        try:
            return await rewards(completions=completions, **columns)
        except GradusError as error:
            errors.append(error)
        except Exception as error:  # noqa: BLE001 - raised again once all processes know of it
            errors.append(describe_failure(f"the judge {name}", error))
        return [None] * len(completions)

    collect_rewards.__name__ = name
    return collect_rewards


Send = Callable[[list[tuple[str, str]]], None]
"""Takes (prompt id, completion) pairs that have just ended."""


@contextmanager
def send_on_end(
    model: Any, tokenizer: Any, eos_ids: Sequence[int], prompt_ids_B: Sequence[str], send: Send
) -> Iterator[None]:
    """Inside the block, `model.generate` on this batch hands over each completion at its
    end-of-sequence token."""
    watch = _EndWatch(tokenizer, eos_ids, prompt_ids_B, send)
    model.generate = functools.partial(
        model.generate, stopping_criteria=StoppingCriteriaList([watch])
    )
    try:
        yield
    finally:
        del model.generate  # the class's own is behind it


class _EndWatch(StoppingCriteria):  # type: ignore[misc]
    """Asked by `generate` after each token whether to stop: never says yes, but sees what has just
    ended."""

    def __init__(
        self, tokenizer: Any, eos_ids: Sequence[int], prompt_ids_B: Sequence[str], send: Send
    ) -> None:
        self._tokenizer = tokenizer
        self._eos_ids = eos_ids
        self._prompt_ids_B = prompt_ids_B
        self._send = send
        self._prompt_width: int | None = None
        self._ended_B: Any = None

    def __call__(self, input_ids: Any, scores: Any, **_: Any) -> Any:
        if self._prompt_width is None:
            self._prompt_width = input_ids.shape[1] - 1
            self._ended_B = torch.zeros(len(input_ids), dtype=torch.bool, device=input_ids.device)
            self._eos = torch.tensor(self._eos_ids, device=input_ids.device)
        ends_B = torch.isin(input_ids[:, -1], self._eos) & ~self._ended_B
        self._ended_B |= ends_B
        rows = ends_B.nonzero().flatten().tolist()
        if rows and len(rows) < len(input_ids):
            ids = input_ids[rows, self._prompt_width :].tolist()
            texts = self._tokenizer.batch_decode(ids, skip_special_tokens=True)
            self._send(
                [(self._prompt_ids_B[row], text) for row, text in zip(rows, texts, strict=True)]
            )
        return torch.zeros(len(input_ids), dtype=torch.bool, device=input_ids.device)
