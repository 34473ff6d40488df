"""A model that scores answers, with TRL's RewardTrainer; its head is trained and saved, with
adapters too."""

from __future__ import annotations

from trl import RewardConfig, RewardTrainer

from trainer.config.stages import RewardStage
from trainer.runs.checkpoints import Resumable
from trainer.runs.progress import pair_summary
from trainer.stages.base import RowsStage


class OurRewardTrainer(Resumable, RewardTrainer):  # type: ignore[misc]
    """TRL's trainer, which can be stopped between steps."""


class Reward(RowsStage[RewardStage]):
    OPTIONS_CLASS = RewardConfig
    TRAINER = OurRewardTrainer
    SUMMARY = staticmethod(pair_summary)
    SCORES = True


STAGE = Reward
