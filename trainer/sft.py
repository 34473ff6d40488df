"""Supervised training on worked answers with TRL's SFTTrainer, loss on the completion only: the warm start of a run.

It shows the model form and a start to improve on; what is right is learned from rewards later.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transformers import PrinterCallback
from trl import SFTConfig, SFTTrainer

from gradus.errors import Misuse
from trainer.adapters import lora_config, settle
from trainer.config import ModelConfig, TrainConfig, WarmStart
from trainer.data import read_worked_examples
from trainer.device import settled, weights_dtype
from trainer.model import load_model, load_tokenizer, load_trained
from trainer.progress import MetricsFile, ProgressBar, sft_summary
from trainer.prompts import render_text
from trainer.ranks import is_leader, wait_for_all
from trainer.run import Run
from trainer.run_folder import checkpoint_to_resume, keep_lines_until, step_of
from trainer.stopping import StopAtStepEnd


def warm_start(run: Run, start: str) -> str:
    """Where the warmed-up model lies; trained from `start` unless it is there already.

    Adapters come merged into their base model. Raises StopRequested when a signal ended it; the next run goes on from
    its last checkpoint if `save_strategy` made any, else from its beginning.
    """
    assert run.config.warm_start is not None
    folder = run.folder
    if not folder.warm_start.exists():
        trainer = _trainer(run, run.config.warm_start, start)
        checkpoint = checkpoint_to_resume(Path(trainer.args.output_dir), "auto", run.say)
        if is_leader():
            keep_lines_until(folder.sft_metrics, step_of(checkpoint) if checkpoint else 0)
        run.say(f"warm start: supervised training from {start}")
        trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
        run.wish.raise_if_made()
        if is_leader():
            _save_merged(trainer.model, trainer.processing_class, folder.warm_start, run.config.model)
            shutil.rmtree(trainer.args.output_dir, ignore_errors=True)
        wait_for_all()
    return str(folder.warm_start)


def _trainer(run: Run, asked: WarmStart, start: str) -> Any:
    config = run.config
    options = settled({**DEFAULTS, **asked.sft}, run.device, run.say)
    dtype = weights_dtype(run.device, config.model.dtype, frozen=config.lora is not None)
    model = load_model(start, config.model, dtype)
    trainer = SFTTrainer(
        model,
        args=sft_config(options, output_dir=run.folder.path / "warm_start.checkpoints", seed=config.seed),
        train_dataset=dataset_of(config, asked),
        processing_class=load_tokenizer(start, config.model),
        peft_config=lora_config(config.lora, model) if config.lora else None,
        callbacks=[
            MetricsFile(run.folder.sft_metrics, sft_summary),
            ProgressBar("warm start", sft_summary),
            StopAtStepEnd(run.wish),
        ],
    )
    if config.lora is not None:
        settle(trainer.model, config.lora, run.say)
    trainer.remove_callback(PrinterCallback)
    return trainer


DEFAULTS = {"completion_only_loss": True, "save_strategy": "no", "report_to": "none"}


def sft_config(options: dict[str, Any], *, output_dir: Path, seed: int) -> Any:
    """TRL's own object. Raises Misuse for combinations that TRL refuses."""
    try:
        return SFTConfig(**options, output_dir=str(output_dir), seed=seed, disable_tqdm=True)
    except (ValueError, TypeError, ImportError) as error:
        raise Misuse(f"warm_start.sft: {error}") from None


def dataset_of(config: TrainConfig, asked: WarmStart) -> Any:
    """Prompts rendered as GRPO will render them, so that the model meets them in the form it learned."""
    from datasets import Dataset

    rows = read_worked_examples(asked)
    return Dataset.from_list([_row(config, row) for row in rows])


def _row(config: TrainConfig, row: dict[str, str]) -> dict[str, Any]:
    prompt = render_text(config.prompt, row["prompt"])
    if isinstance(prompt, str):
        return {"prompt": prompt, "completion": row["completion"]}
    return {"prompt": prompt, "completion": [{"role": "assistant", "content": row["completion"]}]}


def texts_of(asked: WarmStart) -> Sequence[str]:
    """What a fresh model's tokenizer is trained on."""
    return [row["prompt"] + row["completion"] for row in read_worked_examples(asked)]


def _save_merged(model: Any, tokenizer: Any, target: Path, config: ModelConfig) -> None:
    half_saved = target.with_name(target.name + ".partial")
    shutil.rmtree(half_saved, ignore_errors=True)
    _merged(model, tokenizer, half_saved.with_suffix(".adapter"), config).save_pretrained(half_saved)
    tokenizer.save_pretrained(half_saved)
    half_saved.rename(target)


def _merged(model: Any, tokenizer: Any, adapter: Path, config: ModelConfig) -> Any:
    """One whole model. Adapters on quantized weights go into the weights before quantization: packed ones lose them."""
    if not config.is_quantized:
        return model.merge_and_unload() if hasattr(model, "merge_and_unload") else model
    model.save_pretrained(adapter)
    tokenizer.save_pretrained(adapter)
    whole = config.model_copy(update={"load_in_4bit": False, "load_in_8bit": False})
    merged, _ = load_trained(adapter, whole, "bfloat16" if str(model.dtype) == "torch.bfloat16" else "float32")
    shutil.rmtree(adapter)
    return merged
