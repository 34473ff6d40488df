"""GRPO on the graders' rewards with TRL's GRPOTrainer: set up, resumed, stopped in order. The loop itself is TRL's.

Generation is in this process or on a vLLM server, as `generation` says (`trainer.generation`).
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import gather_object
from transformers import PrinterCallback
from trl import GRPOConfig, GRPOTrainer

from gradus.errors import GradusError, Misuse
from trainer.adapters import lora_config, settle
from trainer.completions_file import CompletionsFile, WithAdvantages
from trainer.config import TrainConfig
from trainer.data import Example
from trainer.device import Device, settled, weights_dtype
from trainer.early_grading import sent_as_they_end
from trainer.generation.answers import Sampled
from trainer.generation.backend import generating, vllm_options
from trainer.generation.client import Served
from trainer.held_out import AFTER, BEFORE, HeldOut
from trainer.model import load_model, load_tokenizer
from trainer.progress import MetricsFile, ProgressBar, StepClock, grpo_summary
from trainer.prompts import render, token_ids
from trainer.ranks import is_leader
from trainer.rewards import Rewarder
from trainer.run import Run
from trainer.run_folder import epochs_of, step_of, why_incomplete
from trainer.stopping import StopAtStepEnd

DEFAULTS = {"logging_steps": 1, "save_steps": 50, "report_to": "none"}
"""Where TRL's own defaults suit a GRPO run badly: steps are slow, so each is logged and saving comes often."""


class GradusTrainer(WithAdvantages, GRPOTrainer):  # type: ignore[misc]
    """TRL's trainer, which sends completions to be graded early and goes on from a checkpoint as if never stopped.

    Upstream forgets two things (TRL 1.16): how many passes over the data the shuffling has seen, so that a resumed
    pass repeats the first one's order; and where it stood within a batch of generations.
    """

    passes_done = 0
    rewarder: Rewarder | None = None
    """Where completions go as they end; None: all are graded together."""
    served: Served | None = None
    """The vLLM server that writes them; None: this process does, or TRL talks to vLLM by itself."""

    def go_on_from(self, checkpoint: Path) -> None:
        self.passes_done = epochs_of(checkpoint)
        self._step = step_of(checkpoint) * self.args.gradient_accumulation_steps

    def _get_train_sampler(self, dataset: Any = None) -> Any:
        sampler = super()._get_train_sampler(dataset)
        if sampler.shuffle:
            for _ in range(self.passes_done):
                torch.randperm(sampler.num_samples, generator=sampler.generator)
        return sampler

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        prompt_ids = [row["prompt_id"] for row in inputs]
        if self.served is not None:
            self.served.on_group = self._sender(gather_object(prompt_ids))
            output = super()._generate_and_score_completions(inputs)
            for name, value in self.served.metrics.items():
                self._metrics["train"][f"generation/{name}"].append(value)
            self.served.metrics.clear()
            return output
        model = self.accelerator.unwrap_model(self.model_wrapped)
        with sent_as_they_end(model, self.processing_class, self.eos_token_ids, prompt_ids, self._send_ahead):
            return super()._generate_and_score_completions(inputs)

    def _sender(self, prompt_ids_B: Sequence[str]) -> Callable[[int, list[Sampled]], None]:
        """Sends each group of completions to the graders as the server is done with it."""

        def send(group: int, sampled: list[Sampled]) -> None:
            texts = self.processing_class.batch_decode([one.ids_T for one in sampled], skip_special_tokens=True)
            prompt_id = prompt_ids_B[group * len(sampled)]
            self._send_ahead([(prompt_id, text) for text in texts])

        return send

    def _send_ahead(self, ended: list[tuple[str, str]]) -> None:
        if self.rewarder is not None:
            self.async_loop.call_soon_threadsafe(self.rewarder.send_ahead, ended)

    def steps_in_all(self) -> int:
        return int(self.set_initial_training_values(self.args, self.get_train_dataloader())[-1])

    def load(self, checkpoint: Path) -> None:
        """The weights of a checkpoint, to be saved or measured and not to be trained."""
        self._load_from_checkpoint(str(checkpoint))

    def save_now(self) -> None:
        """Write a checkpoint of the last whole step, if there was one and it is not saved."""
        checkpoint = Path(self.args.output_dir) / f"checkpoint-{self.state.global_step}"
        if self.state.global_step > 0 and why_incomplete(checkpoint) is not None:
            self._save_checkpoint(self.model, trial=None)


def grpo_options(config: TrainConfig, device: Device, say: Callable[[str], None]) -> dict[str, Any]:
    """What TRL is told, defaults and the device's needs included."""
    return settled({**DEFAULTS, **config.grpo, **vllm_options(config.generation, config.grpo)}, device, say)


def grpo_config(options: dict[str, Any], *, output_dir: Path, seed: int, tasks: int) -> Any:
    """TRL's own object. Raises Misuse for combinations that TRL refuses, or that leave it without a whole batch."""
    try:
        made = GRPOConfig(**options, output_dir=str(output_dir), seed=seed, disable_tqdm=True)
    except (ValueError, TypeError, ImportError) as error:
        raise Misuse(f"grpo: {error}") from None
    wanted = made.generation_batch_size // made.num_generations
    if tasks < wanted:
        raise Misuse(
            f"grpo: one round of generation takes {wanted} different tasks (generation_batch_size "
            f"{made.generation_batch_size} / num_generations {made.num_generations}), and there are only {tasks}; "
            "lower per_device_train_batch_size or generation_batch_size"
        )
    return made


def train_grpo(run: Run, start: str) -> None:
    """Train from the model in `start`, or go on from the run's checkpoint, and save the final model.

    Raises GradingStopped past the fault budget and StopRequested after a signal, both with a checkpoint saved.
    """
    tokenizer = load_tokenizer(start, run.config.model)
    if run.config.prompt.style == "chat" and not tokenizer.chat_template:
        raise Misuse(f"prompt.style: the tokenizer of {start} has no chat template; use style: plain")
    with generating(run.config.generation, run.folder, run.say) as served:
        trainer = _trainer(run, start, tokenizer)
        trainer.served = served
        _train_between_measurements(trainer, run, HeldOut(run, tokenizer, trainer.max_completion_length))
        _save_final(trainer, run.folder.final)


def _train_between_measurements(trainer: GradusTrainer, run: Run, held_out: HeldOut) -> None:
    trainer.add_callback(held_out)
    if run.checkpoint is None:
        held_out.measure(trainer.model, BEFORE)
        run.wish.raise_if_made()
    else:
        trainer.go_on_from(run.checkpoint)
    _train(trainer, run)
    run.wish.raise_if_made()
    held_out.measure(trainer.model, AFTER)


def _trainer(run: Run, start: str, tokenizer: Any) -> GradusTrainer:
    config, clock = run.config, StepClock()
    completions_file = CompletionsFile(run.folder.completions) if config.logging.completions else None
    examples = fitting(config, run.tasks.train, tokenizer, run.say)
    rewarder = Rewarder(
        config.reward,
        examples,
        run.client,
        opening=config.prompt.opening,
        record=completions_file.take if completions_file else lambda records: None,
        grading=clock.grading,
    )
    dtype = weights_dtype(run.device, config.model.dtype, frozen=config.lora is not None)
    logging.getLogger("trl.trainer.grpo_trainer").addFilter(_is_no_fault_report)
    model = load_model(start, config.model, dtype)
    trainer = GradusTrainer(
        model,
        rewarder.gradus,
        args=grpo_config(run.options, output_dir=run.folder.path, seed=config.seed, tasks=len(examples)),
        train_dataset=_dataset(config, examples),
        processing_class=tokenizer,
        peft_config=lora_config(config.lora, model) if config.lora else None,
        callbacks=[
            clock,
            MetricsFile(run.folder.metrics, grpo_summary, clock),
            ProgressBar("grpo", grpo_summary),
            StopAtStepEnd(run.wish),
        ],
    )
    if config.lora is not None:
        settle(trainer.model, config.lora, run.say)
    trainer.remove_callback(PrinterCallback)
    trainer.rewarder = rewarder if config.reward.early else None
    trainer.completions_file = completions_file
    return trainer


def _is_no_fault_report(record: logging.LogRecord) -> bool:
    """TRL prints a whole row for every fault; we count faults and record them."""
    return "All reward functions returned None" not in record.getMessage()


def _dataset(config: TrainConfig, examples: Iterable[Example]) -> Any:
    """Only prompts and ids: tests stay out of TRL's tables and warnings."""
    from datasets import Dataset

    return Dataset.from_list([{"prompt": render(config.prompt, one), "prompt_id": one.id} for one in examples])


def fitting(
    config: TrainConfig, examples: Sequence[Example], tokenizer: Any, say: Callable[[str], None]
) -> Sequence[Example]:
    """The tasks whose prompts are short enough. Raises Misuse if none is."""
    limit = config.data.max_prompt_tokens
    if limit is None:
        return examples
    kept = [one for one in examples if len(token_ids(tokenizer, render(config.prompt, one))) <= limit]
    if not kept:
        raise Misuse(f"data.max_prompt_tokens: every one of {len(examples)} prompts is longer than {limit} tokens")
    if len(kept) < len(examples):
        ids = {one.id for one in kept}
        left_out = [one.id for one in examples if one.id not in ids]
        more = f" and {len(left_out) - 5} more" if len(left_out) > 5 else ""
        say(f"{len(left_out)} tasks left out, longer than {limit} tokens: {', '.join(left_out[:5])}{more}")
    return kept


def _train(trainer: GradusTrainer, run: Run) -> None:
    if run.checkpoint is not None and step_of(run.checkpoint) >= trainer.steps_in_all():
        # transformers would do one step more. What is left to do is to have the final model.
        run.say(f"all {trainer.steps_in_all()} steps are done already")
        trainer.load(run.checkpoint)
        return
    try:
        trainer.train(resume_from_checkpoint=str(run.checkpoint) if run.checkpoint else None)
    except GradusError:
        # Raised while a step's samples were with the graders, so the weights are still those of the last whole step.
        trainer.save_now()
        raise


def _save_final(trainer: GradusTrainer, target: Path) -> None:
    half_saved = target.with_name(target.name + ".partial")
    if is_leader():
        for old in (half_saved, target):
            shutil.rmtree(old, ignore_errors=True)
    trainer.save_model(str(half_saved))
    if is_leader():
        half_saved.rename(target)
