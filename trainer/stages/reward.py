"""A model that scores answers, with TRL's RewardTrainer; its head is trained and saved, with adapters too.

What loads such a model to judge with is `trainer.reward_models`.
"""

from __future__ import annotations

from typing import Any

from trl import RewardConfig, RewardTrainer

from trainer.progress import pair_summary
from trainer.resuming import Resumable
from trainer.stages.making import StageRun, arguments, dataset_of, made
from trainer.stages.rows import Split

CONFIG_CLASS = RewardConfig


class OurRewardTrainer(Resumable, RewardTrainer):  # type: ignore[misc]
    """TRL's, which can be stopped between steps."""


def make_trainer(run: StageRun, data: Split, start: str, tokenizer: Any) -> Any:
    return made(
        run,
        OurRewardTrainer,
        start,
        pair_summary,
        args=arguments(RewardConfig, run.config, run.options, run.folder.path),
        train_dataset=dataset_of(data.train),
        eval_dataset=dataset_of(data.held_out) if data.held_out else None,
        processing_class=tokenizer,
    )
