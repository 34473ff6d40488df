"""One run of a stage without a grader, from its rows or tokens to its final model, linear on purpose."""

from __future__ import annotations

import hashlib
import importlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from trainer.adapters import rehearse, settle
from trainer.device import Device, choose_device
from trainer.memory import UpdateWatch, noticing, until_it_fits
from trainer.model import load_tokenizer, starting_point
from trainer.provenance import write_settings
from trainer.ranks import is_leader, wait_for_all
from trainer.resuming import is_done, save_final
from trainer.run_folder import RunFolder, checkpoint_to_resume, step_of
from trainer.signals import StopWish
from trainer.stages.making import StageRun, head_of, stage_options
from trainer.stages.rows import Sample, Split, load_rows, repeated
from trainer.stages.settings import PretrainStage, RowStage, StageConfig
from trainer.stages.tokens import Tokens, load_tokens, texts_of

Say = Callable[[str], None]


def train_stage(config: StageConfig, folder: RunFolder, resume: str, wish: StopWish, say: Say) -> None:
    """Train as the config says, or go on from the run's checkpoint, and save the final model.

    Raises Misuse naming file and line, and StopRequested after a signal, with a checkpoint saved.
    """
    rows = load_rows(config) if isinstance(config, RowStage) else None
    checkpoint = checkpoint_to_resume(folder.path, resume, say)
    device = choose_device(config.model)
    options = stage_options(config, device, say, measures=measures(config))
    if is_leader():
        folder.forget_after(step_of(checkpoint) if checkpoint else 0)
    start = starting_point(config.model, folder.fresh_model, _texts(config, rows), config.seed)
    if config.lora is not None:
        rehearse(config.lora, start, config.model, head_of(config))
    tokenizer = load_tokenizer(start, config.model)
    data = rows if rows is not None else _tokens(config, folder, tokenizer, start)
    if is_leader():
        _write_down(config, options, folder, device, data)
    wait_for_all()
    say(f"{_described(data)}, on {device.kind}, in {folder.path}")
    if isinstance(data, Split) and data.skipped:
        say(f"{len(data.skipped)} rows cannot be used and are left out, the first: {data.skipped[0]}")
    if checkpoint is not None:
        say(f"going on from {checkpoint}, step {step_of(checkpoint)}")
    wish.raise_if_made()
    run = StageRun(config, options, device, folder, wish, say, checkpoint)
    until_it_fits(run, partial(_train_once, data=data, start=start, tokenizer=tokenizer))
    say(f"done: the model is in {folder.final}")


def module_of(config: StageConfig) -> Any:
    """The module that makes the stage's trainer."""
    return importlib.import_module(f"trainer.stages.{config.stage}")  # type: ignore[attr-defined]


def measures(config: StageConfig) -> bool:
    """Whether there is something to measure the loss on."""
    data: Any = config.data  # type: ignore[attr-defined]
    return bool(data.eval_dataset) or data.held_out > 0


def _train_once(run: StageRun, data: Split | Tokens, start: str, tokenizer: Any) -> None:
    watch = UpdateWatch()
    trainer = module_of(run.config).make_trainer(_without_second_start(run), data, start, tokenizer)
    trainer.add_callback(watch)
    if run.config.lora is not None:
        settle(trainer.model, run.config.lora, run.say)
    _say_what_was_left_out(trainer, data, run.say)
    if not is_done(trainer, run.checkpoint, run.say):
        with noticing(trainer, watch, run.config):
            trainer.train(resume_from_checkpoint=str(run.checkpoint) if run.checkpoint else None)
    run.wish.raise_if_made()
    if trainer.eval_dataset is not None and not _is_measured(trainer):
        trainer.evaluate()
    save_final(trainer, run.folder.final)


def _without_second_start(run: StageRun) -> StageRun:
    """A run that goes on has measured its start already."""
    if run.checkpoint is None:
        return run
    return replace(run, options={name: value for name, value in run.options.items() if name != "eval_on_start"})


def _is_measured(trainer: Any) -> bool:
    """Whether the last step's model was measured."""
    return any(
        line.get("step") == trainer.state.global_step and "eval_loss" in line for line in trainer.state.log_history
    )


def _say_what_was_left_out(trainer: Any, data: Split | Tokens, say: Say) -> None:
    """TRL leaves out rows that are too long without a word; with packing, several rows are one."""
    if not isinstance(data, Split) or getattr(trainer.args, "packing", False):
        return
    lost = len(data.train) - len(trainer.train_dataset)
    if lost > 0:
        say(f"{lost} of {len(data.train)} rows are left out: longer than max_length ({trainer.args.max_length} tokens)")


# -------------------------------------------------------------------------------------------------------------- data


def _texts(config: StageConfig, rows: Split | None) -> Iterable[str]:
    """What a fresh model's tokenizer is trained on."""
    if not config.model.is_fresh:
        return ()
    if rows is not None:
        return (text for sample in rows.train for text in _strings(sample.values))
    assert isinstance(config, PretrainStage)
    return texts_of(config.data, config.data.dataset)


def _strings(value: Any) -> Sequence[str]:
    if isinstance(value, str):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for item in inner for text in _strings(item)]


def _tokens(config: StageConfig, folder: RunFolder, tokenizer: Any, start: str) -> Tokens:
    from transformers import AutoConfig

    assert isinstance(config, PretrainStage)
    trust = config.model.trust_remote_code
    known = AutoConfig.from_pretrained(start, trust_remote_code=trust).get_text_config().vocab_size
    if is_leader():
        load_tokens(config.data, folder, tokenizer, known)
    wait_for_all()
    return load_tokens(config.data, folder, tokenizer, known)


def _described(data: Split | Tokens) -> str:
    if isinstance(data, Tokens):
        return f"{data.held_out_from:,} tokens to train on, {len(data.held_out):,} held out"
    said = f"{len(data.train)} rows to train on, {len(data.held_out)} held out"
    again = repeated(data.train)
    return f"{said} ({again} say the same as an earlier one)" if again else said


def _write_down(
    config: StageConfig, options: dict[str, Any], folder: RunFolder, device: Device, data: Split | Tokens
) -> None:
    """What was asked, with what, and what was used for what."""
    write_settings(config, options, folder, device)
    told: dict[str, Any] = {"description": _described(data)}
    if isinstance(data, Split):
        told |= {"train_sha256": _sha256(data.train), "held_out_sha256": _sha256(data.held_out)}
        told["held_out"] = [sample.where for sample in data.held_out]
    folder.data.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")


def _sha256(samples: Iterable[Sample]) -> str:
    return hashlib.sha256("".join(sample.whole_key for sample in samples).encode()).hexdigest()
