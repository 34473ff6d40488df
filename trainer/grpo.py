"""GRPO or RLOO on the graders' rewards: TRL's trainers set up, resumed, stopped in order. The loops are TRL's.

Generation is in this process or on a vLLM server, as `generation` says (`trainer.generation`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from transformers import PrinterCallback
from trl import GRPOConfig, RLOOConfig

from gradus.errors import GradusError, Misuse
from trainer.adapters import lora_config, settle
from trainer.asked_early import client_of
from trainer.completions_file import CompletionsFile
from trainer.config import RewardConfig, TrainConfig
from trainer.data import Example
from trainer.device import Device, settled, weights_dtype
from trainer.further_graders import FurtherGrader
from trainer.generation.backend import generating, refuse_without_vllm, vllm_options
from trainer.held_out import AFTER, BEFORE, HeldOut
from trainer.memory import UpdateWatch, noticing, until_it_fits
from trainer.model import load_model, load_tokenizer
from trainer.on_rewards import TRAINERS, GradusTrainer
from trainer.progress import MetricsFile, ProgressBar, StepClock, grpo_summary
from trainer.prompts import render, token_ids
from trainer.resuming import is_done, save_final
from trainer.reward_models import load_reward_model
from trainer.rewards import Rewarder
from trainer.run import Run
from trainer.stopping import StopAtStepEnd

DEFAULTS = {"logging_steps": 1, "save_steps": 50, "report_to": "none"}
"""Where TRL's own defaults suit such a run badly: steps are slow, so each is logged and saving comes often."""
CLASSES = {"grpo": GRPOConfig, "rloo": RLOOConfig}


def grpo_options(config: TrainConfig, device: Device, say: Callable[[str], None]) -> dict[str, Any]:
    """What TRL is told, defaults and the device's needs included."""
    asked = config.options
    return settled({**DEFAULTS, **asked, **vllm_options(config.generation, asked, config.stage)}, device, say)


def grpo_config(
    options: dict[str, Any],
    *,
    output_dir: Path,
    seed: int,
    tasks: int,
    stage: str = "grpo",
    reward_weights: Sequence[float] = (1.0,),
) -> Any:
    """TRL's own object. Raises Misuse for combinations that TRL refuses, or that leave it without a whole batch."""
    ours = {"output_dir": str(output_dir), "seed": seed, "disable_tqdm": True, "reward_weights": list(reward_weights)}
    try:
        made = CLASSES[stage](**options, **ours)
    except (ValueError, TypeError, ImportError) as error:
        raise Misuse(f"{stage}: {error}") from None
    wanted = made.generation_batch_size // made.num_generations
    if tasks < wanted:
        raise Misuse(
            f"{stage}: one round of generation takes {wanted} different tasks (generation_batch_size "
            f"{made.generation_batch_size} / num_generations {made.num_generations}), and there are only {tasks}; "
            "lower per_device_train_batch_size or generation_batch_size"
        )
    return made


def train_grpo(run: Run, start: str) -> None:
    """Train from the model in `start`, or go on from the run's checkpoint, and save the final model.

    Raises GradingStopped past the fault budget and StopRequested after a signal, both with a checkpoint saved.
    """
    refuse_without_vllm(run.config.generation, run.options, run.device)
    tokenizer = load_tokenizer(start, run.config.model)
    if run.config.prompt.style == "chat" and not tokenizer.chat_template:
        raise Misuse(f"prompt.style: the tokenizer of {start} has no chat template; use style: plain")
    until_it_fits(run, partial(_train_once, start=start, tokenizer=tokenizer))


def _train_once(run: Run, start: str, tokenizer: Any) -> None:
    with generating(run.config.generation, run.folder, run.say) as served:
        trainer, watch = _trainer(run, start, tokenizer), UpdateWatch()
        trainer.served = served
        trainer.add_callback(watch)
        measured = HeldOut(run, tokenizer, trainer)
        _train_between_measurements(trainer, run, measured, watch)
        save_final(trainer, run.folder.final)


def _train_between_measurements(trainer: GradusTrainer, run: Run, held_out: HeldOut, watch: UpdateWatch) -> None:
    trainer.add_callback(held_out)
    if run.checkpoint is None:
        held_out.measure(trainer.model, BEFORE)
        run.wish.raise_if_made()
    else:
        trainer.go_on_from(run.checkpoint)
    if not is_done(trainer, run.checkpoint, run.say):
        with noticing(trainer, watch, run.config):
            _train(trainer, run)
    run.wish.raise_if_made()
    held_out.measure(trainer.model, AFTER)


def _trainer(run: Run, start: str, tokenizer: Any) -> GradusTrainer:
    config, clock = run.config, StepClock()
    completions_file = CompletionsFile(run.folder.completions) if config.logging.completions else None
    examples = fitting(config, run.tasks.train, tokenizer, run.say)
    rewarder = _rewarder(run, examples, clock, completions_file)
    further = _further(run, examples, clock, completions_file)
    models = [load_reward_model(asked, run.device) for asked in config.reward.models]
    dtype = weights_dtype(run.device, config.model.dtype, frozen=config.lora is not None)
    logging.getLogger(f"trl.trainer.{config.stage}_trainer").addFilter(_is_no_fault_report)
    model = load_model(start, config.model, dtype)
    trainer: GradusTrainer = TRAINERS[config.stage](
        model,
        [*([rewarder.gradus] if rewarder else []), *(one.function for one in further), *models],
        args=_arguments(run, len(examples)),
        train_dataset=_dataset(config, examples),
        processing_class=tokenizer,
        peft_config=lora_config(config.lora, model) if config.lora else None,
        callbacks=[
            clock,
            MetricsFile(run.folder.metrics, grpo_summary, clock),
            ProgressBar(config.stage, grpo_summary),
            StopAtStepEnd(run.wish),
        ],
    )
    if config.lora is not None:
        settle(trainer.model, config.lora, run.say)
    trainer.remove_callback(PrinterCallback)
    graders: list[Rewarder | FurtherGrader] = [*([rewarder] if rewarder else []), *further]
    trainer.asked_early = graders if config.reward.early else ()
    trainer.graders = len(graders)
    trainer.completions_file = completions_file
    return trainer


def _rewarder(
    run: Run, examples: Iterable[Example], clock: StepClock, completions_file: CompletionsFile | None
) -> Rewarder | None:
    """What asks the grader of the tasks; None where there is none."""
    if run.config.reward.grader is None:
        return None
    return Rewarder(
        run.config.reward,
        examples,
        run.client,
        opening=run.config.prompt.opening,
        record=completions_file.take if completions_file else lambda records: None,
        grading=clock.grading,
    )


def _further(
    run: Run, examples: Sequence[Example], clock: StepClock, completions_file: CompletionsFile | None
) -> list[FurtherGrader]:
    """What asks the graders beside it, in their order."""
    return [
        FurtherGrader(
            run.config.reward,
            service,
            examples,
            client_of(run.config.reward.as_asked_of(service)),
            prompt_of=partial(render, run.config.prompt),
            opening=run.config.prompt.opening,
            tell=completions_file.take_further if completions_file else lambda name, records: None,
            grading=clock.grading,
        )
        for service in run.config.reward.services
    ]


def _arguments(run: Run, tasks: int) -> Any:
    config = run.config
    return grpo_config(
        run.options,
        output_dir=run.folder.path,
        seed=config.seed,
        tasks=tasks,
        stage=config.stage,
        reward_weights=weights_of(config.reward),
    )


def weights_of(reward: RewardConfig) -> list[float]:
    """One for each source of reward: the grader, further ones, reward models."""
    own = [reward.weight] if reward.grader is not None else []
    return [*own, *(one.weight for one in reward.services), *(one.weight for one in reward.models)]


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
    try:
        trainer.train(resume_from_checkpoint=str(run.checkpoint) if run.checkpoint else None)
    except GradusError:
        # Raised while a step's samples were with the graders, so the weights are still those of the last whole step.
        trainer.save_now()
        raise
