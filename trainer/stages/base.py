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
from gradus.whole_file import write_text
from trainer.config.device import Device, apply_device_defaults, choose_device, select_weights_dtype
from trainer.config.packages import refuse_absent_packages
from trainer.config.run import RunConfig
from trainer.models.adapters import build_lora_config, prepare_adapters, validate_lora_targets
from trainer.models.fresh import prepare_start_model
from trainer.models.loading import load_model, load_tokenizer
from trainer.runs.checkpoints import StopAtStepEnd, is_done, save_final
from trainer.runs.context import C, D, RunContext
from trainer.runs.distributed import (
    is_any_rank_true,
    is_leader,
    run_on_all_ranks,
    wait_for_all,
)
from trainer.runs.folder import Log, RunFolder, find_resume_checkpoint, read_step
from trainer.runs.oom_recovery import UpdateWatch, detect_oom, retry_with_smaller_batches
from trainer.runs.progress import MetricsFile, ProgressBar
from trainer.runs.provenance import (
    find_changes,
    is_length_changed,
    record_changes,
    resolve_settings,
    write_settings,
)
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
        """Return the data, as far as it can be read without a model. Raises Misuse naming file and
        line."""

    @abstractmethod
    def describe_data(self, data: D) -> str:
        """Return the data in words, for training.log."""

    def check_data(self) -> str:
        """Return the data in words, for a dry run. Raises Misuse naming file and line."""
        return self.describe_data(self.read())

    def check_lengths(self, tokenizer: Any, window: int | None) -> list[str]:
        """Lengths of the data in tokens, in words, for a dry run.

        `window`: tokens that the model takes at once; None where its configuration names no bound.
        Raises Misuse where the data does not fit.
        """
        return []

    @abstractmethod
    def iter_texts(self, data: D) -> Iterable[str]:
        """Return what a fresh model's tokenizer is trained on."""

    def prepare_data(self, run: RunContext[C, D], start: str) -> D:
        """Return the data, with what only the model in `start` can make of it."""
        return run.data

    def build_records(self, folder: RunFolder, data: D) -> dict[Path, str]:
        """Return the files that say which data was used for what, with their contents."""
        return {folder.data: json.dumps(self.build_data_record(data), indent=1) + "\n"}

    def build_data_record(self, data: D) -> dict[str, Any]:
        """Return lines of data.json."""
        return {"description": self.describe_data(data)}

    # ------------------------------------------------------------------------------------- options

    def has_eval_data(self) -> bool:
        """Return whether there is something to measure the loss on."""
        data: Any = self.config.data  # type: ignore[attr-defined]
        return bool(data.eval_dataset) or data.held_out > 0

    def options(self, device: Device, log: Log) -> dict[str, Any]:
        """Return options for TRL, defaults and the device's needs included."""
        measuring = MEASURING if self.has_eval_data() else {}
        settings = {**self.DEFAULTS, **measuring, **self.config.options}
        return apply_device_defaults(settings, device, log)

    def build_arguments(self, options: Mapping[str, Any], output_dir: Path, **extra: Any) -> Any:
        """Return the object of TRL's or transformers'. Raises Misuse for combinations that it
        refuses."""
        ours = {
            "output_dir": str(output_dir),
            "seed": self.config.seed,
            "disable_tqdm": True,
            **extra,
        }
        try:
            return self.OPTIONS_CLASS(**options, **ours)
        except (ValueError, TypeError, ImportError, NotImplementedError) as error:
            raise Misuse(f"{self.config.options_name}: {error}") from None

    def check(self, data: D, options: Mapping[str, Any], device: Device) -> str:
        """Return what an update sees, in words. Raises Misuse for options that TRL refuses; the run
        folder may not exist."""
        args = self.build_arguments(options, Path("."))
        return f"{args.train_batch_size * args.gradient_accumulation_steps} samples for each update"

    # ------------------------------------------------------------------------------------- trainer

    def prepare_start(self, run: RunContext[C, D], start: str) -> str:
        """Return what comes before the training: where the weights lie that it starts from."""
        return start

    @abstractmethod
    def make_trainer(self, run: RunContext[C, D], start: str, tokenizer: Any) -> Any:
        """Return TRL's or transformers' trainer of the model in `start`, by `build_trainer`."""

    def build_trainer(
        self,
        run: RunContext[C, D],
        build: Callable[..., Any],
        start: str,
        callbacks: Iterable[TrainerCallback] = (),
        metrics: TrainerCallback | None = None,
        **parts: Any,
    ) -> Any:
        """Return the trainer: `build` called with the model, adapters, callbacks and `parts`.

        Raises Misuse for what TRL refuses only when it sees model and options together.
        """
        config = run.config
        dtype = select_weights_dtype(run.device, config.model.dtype, frozen=config.lora is not None)
        set_seed(config.seed)  # a new head and new adapters are drawn
        model = load_model(start, config.model, dtype, self.SCORES)
        if config.lora:
            peft = {"peft_config": build_lora_config(config.lora, model, self.SCORES)}
        else:
            peft = {}
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
            prepare_adapters(trainer.model, config.lora)
        return trainer

    def run_before_steps(self, run: RunContext[C, D], trainer: Any) -> None:
        """What is said or measured before the first step."""

    def run_after_steps(self, run: RunContext[C, D], trainer: Any) -> None:
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
        self.run_before_steps(run, trainer)
        done = run.checkpoint if is_done(trainer, run.checkpoint, run.log) else None
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
        self.run_after_steps(run, trainer)
        save_final(trainer, run.folder.final, done)

    def train_with_retries(self, run: RunContext[C, D], start: str) -> None:
        """Train from the model in `start`, with smaller batches where memory runs out."""
        tokenizer = load_tokenizer(start, run.config.model)
        retry_with_smaller_batches(run, lambda again: self.train_once(again, start, tokenizer))


# ----------------------------------------------------------------------------------------- one run


def build_stage(config: RunConfig) -> Stage[Any, Any]:
    """Return the stage that a config is for, from a module that loads its part of TRL."""
    stage: str = config.stage  # type: ignore[attr-defined]
    module = {"grpo": "rl", "rloo": "rl", "pretrain": "pretrain"}.get(stage, "rows")
    stages = importlib.import_module(f"trainer.stages.{module}").STAGES
    instance: Stage[Any, Any] = stages[stage](config)
    return instance


def train_stage(
    config: RunConfig,
    folder: RunFolder,
    resume: str,
    wish: StopWish,
    log: Log,
    *,
    accept_changes: bool = False,
) -> None:
    """Train as the config says, or resume from the run's checkpoint, and save the final model.

    Raises Misuse naming file and line, or the settings that differ from the recorded ones unless
    `accept_changes`, GradingStopped and GenerationStopped where the run cannot go
    on, and StopRequested after a signal; each with a checkpoint saved.
    """
    stage = build_stage(config)
    wish.raise_if_made()
    refuse_absent_packages(config.model, config.options.get("report_to"))
    data = stage.read()
    checkpoint = find_resume_checkpoint(folder.path, resume, log)
    device = choose_device(config.model)
    options = stage.options(device, log)
    stage.check(data, options, device)
    done = read_step(checkpoint)
    resolved = resolve_settings(config, options)

    def settle_folder() -> bool:
        """Return whether the folder holds just this run, finished; if not, make it ready."""
        if not is_leader():
            return False
        changes = find_changes(resolved, folder)
        is_finished = resume == "auto" and folder.final.exists()
        if (is_finished or checkpoint is not None) and data is not None:
            changes.pop("data.dataset", None)  # a file may move; what is in it counts
            changes |= _find_changed_records(stage.build_records(folder, data))
        if is_finished and not changes and not is_length_changed(resolved, folder):
            return True
        if changes:
            _handle_changes(
                changes, folder, done, log, accepted=accept_changes, is_finished=is_finished
            )
        _set_earlier_aside(folder, done, log)
        write_settings(resolved, folder, device)
        return False

    if is_any_rank_true(run_on_all_ranks(settle_folder)):
        log(f"done before: the model is in {folder.final}; its steps are not done again")
        return
    texts = stage.iter_texts(data) if config.model.is_fresh else ()
    start = prepare_start_model(config.model, folder.fresh_model, texts, config.seed)
    if config.lora is not None:
        validate_lora_targets(config.lora, start, config.model, stage.SCORES)
    run = RunContext(config, options, data, device, folder, wish, log, checkpoint)
    run = replace(run, data=stage.prepare_data(run, start))
    if is_leader():
        for file, text in stage.build_records(folder, run.data).items():
            write_text(file, text)
    wait_for_all()
    log(f"{stage.describe_data(run.data)}, on {device.kind}, in {folder.path}")
    if checkpoint is not None:
        log(f"resuming from {checkpoint}, step {done}")
    start = stage.prepare_start(run, start)
    wish.raise_if_made()
    stage.train_with_retries(run, start)
    log(f"done: the model is in {folder.final}")


def _set_earlier_aside(folder: RunFolder, done: int, log: Log) -> None:
    """Move away what steps after `done`, or a run that now goes further, left."""
    aside = folder.drop_after(done)
    if aside is not None:
        log(
            "no checkpoint to resume from: the run begins anew, and logs of the earlier one"
            f" lie in {aside}"
        )
    aside = folder.set_final_aside()
    if aside is not None:
        log(f"Resuming a finished run; its model was moved to {aside}")


def _find_changed_records(records: Mapping[Path, str]) -> dict[str, str]:
    changes = {}
    for file, text in records.items():
        if file.exists() and _read_record(file) != _parse_record(file, text):
            changes[file.name] = "other data than at the start"
    return changes


def _read_record(file: Path) -> Any:
    return _parse_record(file, file.read_text(encoding="utf-8"))


def _parse_record(file: Path, text: str) -> Any:
    """Return what a record says of the data itself: not in which file each row stands."""
    if file.suffix == ".json":
        return {**json.loads(text), "held_out": None}
    return text.encode(errors="backslashreplace")


def _handle_changes(
    changes: Mapping[str, str],
    folder: RunFolder,
    done: int,
    log: Log,
    *,
    accepted: bool,
    is_finished: bool,
) -> None:
    """Refuse, or record, that settings differ from those of the steps that are done. With no step
    done, set aside the models that the earlier settings began with."""
    if done == 0 and is_finished:
        raise Misuse(
            f"{folder.path}: holds a finished run with other settings ({', '.join(changes)}):"
            " choose another output_dir, or start anew with --resume never"
        )
    if done == 0:
        aside = folder.set_start_aside()
        if aside is not None:
            log(f"the settings changed ({', '.join(changes)}): earlier models lie in {aside}")
        return
    lines = "\n".join(f"  {name}: {change}" for name, change in changes.items())
    if not accepted:
        raise Misuse(
            f"{folder.path}: {done} steps are done with other settings:\n{lines}\n"
            "Start anew with --resume never or another output_dir, or resume with --accept-changes"
        )
    record_changes(folder, done, changes)
    log(f"resuming with other settings than those of the first {done} steps:\n{lines}")
