"""Direct preference optimisation with TRL's DPOTrainer: sigmoid, IPO and TRL's other losses, by their names there.

The reference is the model itself with its adapters off, or a second copy where all weights are trained; it may follow
(`sync_ref_model`) or be asked once at the beginning (`precompute_ref_log_probs`).
"""

from __future__ import annotations

from typing import Any

from trl import DPOConfig, DPOTrainer

from trainer.progress import pair_summary
from trainer.resuming import Resumable
from trainer.stages.making import StageRun, arguments, dataset_of, made
from trainer.stages.rows import Split

CONFIG_CLASS = DPOConfig


class OurDpoTrainer(Resumable, DPOTrainer):  # type: ignore[misc]
    """TRL's, which can be stopped between steps."""


def make_trainer(run: StageRun, data: Split, start: str, tokenizer: Any) -> Any:
    return made(
        run,
        OurDpoTrainer,
        start,
        pair_summary,
        args=arguments(DPOConfig, run.config, run.options, run.folder.path),
        train_dataset=dataset_of(data.train),
        eval_dataset=dataset_of(data.held_out) if data.held_out else None,
        processing_class=tokenizer,
    )
