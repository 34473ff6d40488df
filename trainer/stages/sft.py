"""Supervised training with TRL's SFTTrainer: the loss is on the answer, or on what the options say."""

from __future__ import annotations

from typing import Any

from trl import SFTConfig, SFTTrainer

from trainer.progress import sft_summary
from trainer.resuming import Resumable
from trainer.stages.making import StageRun, arguments, dataset_of, made
from trainer.stages.rows import Split

CONFIG_CLASS = SFTConfig


class OurSftTrainer(Resumable, SFTTrainer):  # type: ignore[misc]
    """TRL's, which can be stopped between steps."""


def make_trainer(run: StageRun, data: Split, start: str, tokenizer: Any) -> Any:
    return made(
        run,
        OurSftTrainer,
        start,
        sft_summary,
        args=arguments(SFTConfig, run.config, run.options, run.folder.path),
        train_dataset=dataset_of(data.train),
        eval_dataset=dataset_of(data.held_out) if data.held_out else None,
        processing_class=tokenizer,
    )
