"""A model that scores answers, with TRL's RewardTrainer; its head is trained and saved, with adapters too."""

from __future__ import annotations

from trl import RewardConfig, RewardTrainer

from trainer.model import Head
from trainer.progress import pair_summary
from trainer.resuming import Resumable
from trainer.stages.base import RowsStage
from trainer.stages.settings import RewardStage


class OurRewardTrainer(Resumable, RewardTrainer):  # type: ignore[misc]
    """TRL's trainer, which can be stopped between steps."""


class Reward(RowsStage[RewardStage]):
    OPTIONS_CLASS = RewardConfig
    TRAINER = OurRewardTrainer
    SUMMARY = staticmethod(pair_summary)
    HEAD = Head.SCORE


STAGE = Reward
