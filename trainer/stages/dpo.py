"""Direct preference optimisation with TRL's DPOTrainer: sigmoid, IPO and TRL's other losses, by their names there.

The reference is the model itself with its adapters off, or a second copy where all weights are trained; it may follow
(`sync_ref_model`) or be asked once at the beginning (`precompute_ref_log_probs`).
"""

from __future__ import annotations

from trl import DPOConfig, DPOTrainer

from trainer.config.stages import DpoStage
from trainer.runs.checkpoints import Resumable
from trainer.runs.progress import pair_summary
from trainer.stages.base import RowsStage


class OurDpoTrainer(Resumable, DPOTrainer):  # type: ignore[misc]
    """TRL's trainer, which can be stopped between steps."""


class Dpo(RowsStage[DpoStage]):
    OPTIONS_CLASS = DPOConfig
    TRAINER = OurDpoTrainer
    SUMMARY = staticmethod(pair_summary)


STAGE = Dpo
