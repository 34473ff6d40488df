"""One kind of stage: its data, its options, its trainer and what it measures; and the run of any
stage.

`Stage` is the shape that `pretrain`, `sft`, `dpo`, `reward` and `rl` fill in. `train_stage` runs
one from its config to its final model, linear on purpose.
"""

from __future__ import annotations

import importlib
import json
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Generic

from transformers import PrinterCallback, TrainerCallback, set_seed

from gradus.errors import GradusError, Misuse
from trainer.config.device import Device, choose_device, weights_dtype, with_device_defaults
from trainer.config.packages import refuse_absent_packages
from trainer.config.run import RunConfig
from trainer.models.adapters import lora_config, settle, validate_lora_targets
from trainer.models.fresh import starting_point
from trainer.models.loading import load_model, load_tokenizer
from trainer.runs.checkpoints import StopAtStepEnd, is_done, save_final
from trainer.runs.context import C, D, RunContext
from trainer.runs.distributed import is_leader, wait_for_all
from trainer.runs.folder import RunFolder, Say, checkpoint_to_resume, step_of
from trainer.runs.oom_recovery import UpdateWatch, detect_oom, retry_with_smaller_batches
from trainer.runs.progress import MetricsFile, ProgressBar
from trainer.runs.provenance import write_settings
from trainer.runs.signals import StopWish

MEASURING: dict[str, Any] = {"eval_strategy": "epoch", "eval_on_start": True}
"""Defaults that apply when there is something to measure the loss on."""


class Stage(ABC, Generic[C, D]):
    """One stage of training, for one config."""

    OPTIONS_CLASS: ClassVar[Any]
    """The configuration class of TRL or transformers."""
    DEFAULTS: ClassVar[Mapping[str, Any]] = {
        "logging_steps": 10,
        "save_steps": 100,
        "report_to": "none",
    }
    SUMMARY: ClassVar[Any]
    """A function: a logged line in words, for training.log."""
    SCORES: ClassVar[bool] = False
    """The model ends in one number for the whole text, not in logits of the next token."""
    DATA: ClassVar[str] = "data"
    """What a dry run calls the data."""

    def __init__(self, config: C) -> None:
        self.config = config

    # ---------------------------------------------------------------------------------------- data

    @abstractmethod
    def read(self) -> D:
        """The data, as far as it can be read without a model. Raises Misuse naming file and
        line."""

    @abstractmethod
    def described(self, data: D) -> str:
        """The data in words, for training.log."""

    def data_found(self) -> str:
        """The data in words, for a dry run. Raises Misuse naming file and line."""
        return self.described(self.read())

    def lengths_found(self, tokenizer: Any, window: int | None) -> list[str]:
        """Lengths of the data in tokens, in words, for a dry run.

        `window`: tokens that the model takes at once; None where its configuration names no bound.
        Raises Misuse where the data does not fit.
        """
        return []

    @abstractmethod
    def texts(self, data: D) -> Iterable[str]:
        """What a fresh model's tokenizer is trained on."""

    def completed(self, run: RunContext[C, D], start: str) -> D:
        """The data, with what only the model in `start` can make of it."""
        return run.data

    def record(self, run: RunContext[C, D]) -> None:
        """Write into the run folder what was used for what."""
        run.folder.data.write_text(
            json.dumps(self.told(run.data), indent=1) + "\n", encoding="utf-8"
        )

    def told(self, data: D) -> dict[str, Any]:
        """Lines of data.json."""
        return {"description": self.described(data)}

    # ------------------------------------------------------------------------------------- options

    def measures(self) -> bool:
        """Whether there is something to measure the loss on."""
        data: Any = self.config.data  # type: ignore[attr-defined]
        return bool(data.eval_dataset) or data.held_out > 0

    def options(self, device: Device, say: Say) -> dict[str, Any]:
        """Options for TRL, defaults and the device's needs included."""
        measuring = MEASURING if self.measures() else {}
        asked = {**self.DEFAULTS, **measuring, **self.config.options}
        return with_device_defaults(asked, device, say)

    def arguments(self, options: Mapping[str, Any], output_dir: Path, **more: Any) -> Any:
        """The object of TRL's or transformers'. Raises Misuse for combinations that it refuses."""
        ours = {
            "output_dir": str(output_dir),
            "seed": self.config.seed,
            "disable_tqdm": True,
            **more,
        }
        try:
            return self.OPTIONS_CLASS(**options, **ours)
        except (ValueError, TypeError, ImportError, NotImplementedError) as error:
            raise Misuse(f"{self.config.options_name}: {error}") from None

    def check(self, data: D, options: Mapping[str, Any], device: Device) -> str:
        """What an update sees, in words. Raises Misuse for options that TRL refuses; the run folder
        may not exist."""
        made = self.arguments(options, Path("."))
        return f"{made.train_batch_size * made.gradient_accumulation_steps} samples for each update"

    # ------------------------------------------------------------------------------------- trainer

    def begin(self, run: RunContext[C, D], start: str) -> str:
        """What comes before the training: where the weights lie that it starts from."""
        return start

    @abstractmethod
    def make_trainer(self, run: RunContext[C, D], start: str, tokenizer: Any) -> Any:
        """TRL's or transformers' trainer of the model in `start`, by `made`."""

    def made(
        self,
        run: RunContext[C, D],
        build: Callable[..., Any],
        start: str,
        callbacks: Iterable[TrainerCallback] = (),
        metrics: TrainerCallback | None = None,
        **parts: Any,
    ) -> Any:
        """The trainer: `build` called with the model, adapters, callbacks and `parts`.

        Raises Misuse for what TRL refuses only when it sees model and options together.
        """
        config = run.config
        dtype = weights_dtype(run.device, config.model.dtype, frozen=config.lora is not None)
        set_seed(config.seed)  # a new head and new adapters are drawn
        model = load_model(start, config.model, dtype, self.SCORES)
        peft = {"peft_config": lora_config(config.lora, model, self.SCORES)} if config.lora else {}
        ours = [
            *callbacks,
            metrics or MetricsFile(run.folder.metrics, self.SUMMARY),
            StopAtStepEnd(run.wish),
        ]
        if sys.stderr.isatty():
            ours.append(ProgressBar())
        try:
            trainer = build(model=model, callbacks=ours, **peft, **parts)
        except (ValueError, NotImplementedError, ImportError) as error:
            raise Misuse(f"{config.options_name}: {error}") from None
        trainer.remove_callback(PrinterCallback)
        if config.lora is not None:
            settle(trainer.model, config.lora)
        return trainer

    def before_steps(self, run: RunContext[C, D], trainer: Any) -> None:
        """What is said or measured before the first step."""

    def after_steps(self, run: RunContext[C, D], trainer: Any) -> None:
        """Measures the loss of the last step's model unless that was done."""
        log = trainer.state.log_history
        if trainer.eval_dataset is not None and not any(
            line.get("step") == trainer.state.global_step and "eval_loss" in line for line in log
        ):
            trainer.evaluate()

    def train_once(self, run: RunContext[C, D], start: str, tokenizer: Any) -> None:
        """Train, or resume, until the last step, and save the model.

        Raises OutOfMemory, and StopRequested after a signal, with a checkpoint saved.
        """
        if run.checkpoint is not None:  # the start was measured before
            options = {**run.options}
            options.pop("eval_on_start", None)
            run = replace(run, options=options)
        trainer = self.make_trainer(run, start, tokenizer)
        watch = UpdateWatch()
        trainer.add_callback(watch)
        self.before_steps(run, trainer)
        done = run.checkpoint if is_done(trainer, run.checkpoint, run.say) else None
        if done is None:
            with detect_oom(trainer, watch, run.config):
                try:
                    trainer.train(resume_from_checkpoint=run.checkpoint and str(run.checkpoint))
                except GradusError:
                    # Raised while a step's samples were with the graders: the weights are those of
                    # the last whole step.
                    trainer.save_now()
                    raise
        run.wish.raise_if_made()
        self.after_steps(run, trainer)
        save_final(trainer, run.folder.final, done)

    def fit(self, run: RunContext[C, D], start: str) -> None:
        """Train from the model in `start`, with smaller batches where memory runs out."""
        tokenizer = load_tokenizer(start, run.config.model)
        retry_with_smaller_batches(run, lambda again: self.train_once(again, start, tokenizer))


# ----------------------------------------------------------------------------------------- one run


def stage_for(config: RunConfig) -> Stage[Any, Any]:
    """The stage that a config is for, from a module that loads its part of TRL."""
    stage: str = config.stage  # type: ignore[attr-defined]
    module = {"grpo": "rl", "rloo": "rl", "pretrain": "pretrain"}.get(stage, "rows")
    stages = importlib.import_module(f"trainer.stages.{module}").STAGES
    made: Stage[Any, Any] = stages[stage](config)
    return made


def train_stage(
    config: RunConfig, folder: RunFolder, resume: str, wish: StopWish, say: Say
) -> None:
    """Train as the config says, or resume from the run's checkpoint, and save the final model.

    Raises Misuse naming file and line, GradingStopped and GenerationStopped where the run cannot go
    on, and StopRequested after a signal; each with a checkpoint saved.
    """
    stage = stage_for(config)
    wish.raise_if_made()
    refuse_absent_packages(config.model, config.options.get("report_to"))
    data = stage.read()
    checkpoint = checkpoint_to_resume(folder.path, resume, say)
    device = choose_device(config.model)
    options = stage.options(device, say)
    stage.check(data, options, device)
    done = step_of(checkpoint)
    if is_leader():
        if (aside := folder.forget_after(done)) is not None:
            say(
                "no checkpoint to resume from: the run begins anew, and logs of the earlier one"
                f" lie in {aside}"
            )
        write_settings(config, options, folder, device)
    texts = stage.texts(data) if config.model.is_fresh else ()
    start = starting_point(config.model, folder.fresh_model, texts, config.seed)
    if config.lora is not None:
        validate_lora_targets(config.lora, start, config.model, stage.SCORES)
    run = RunContext(config, options, data, device, folder, wish, say, checkpoint)
    run = replace(run, data=stage.completed(run, start))
    if is_leader():
        stage.record(run)
    wait_for_all()
    say(f"{stage.described(run.data)}, on {device.kind}, in {folder.path}")
    if checkpoint is not None:
        say(f"resuming from {checkpoint}, step {done}")
    start = stage.begin(run, start)
    wish.raise_if_made()
    stage.fit(run, start)
    say(f"done: the model is in {folder.final}")
