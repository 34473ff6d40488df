"""Supervised training with TRL's SFTTrainer: the loss is on the answer, or on what the options
say."""

from __future__ import annotations

from trl import SFTConfig, SFTTrainer

from trainer.config.stages import SftStage
from trainer.runs.checkpoints import Resumable
from trainer.runs.progress import sft_summary
from trainer.stages.base import RowsStage


class OurSftTrainer(Resumable, SFTTrainer):  # type: ignore[misc]
    """TRL's trainer, which can be stopped between steps."""


class Sft(RowsStage[SftStage]):
    OPTIONS_CLASS = SFTConfig
    TRAINER = OurSftTrainer
    SUMMARY = staticmethod(sft_summary)


STAGE = Sft
