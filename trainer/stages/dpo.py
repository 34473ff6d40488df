"""Direct preference optimisation with TRL's DPOTrainer: sigmoid, IPO and TRL's other losses, by
their names there.

The reference is the model itself with its adapters off, or a second copy where all weights are
trained; it may follow (`sync_ref_model`) or be asked once at the beginning
(`precompute_ref_log_probs`).
"""

from __future__ import annotations

from statistics import fmean
from typing import Any

from trl import DPOConfig, DPOTrainer

from trainer.config.run import StopOnKl
from trainer.config.stages import DpoStage
from trainer.data.rows import Split
from trainer.runs.checkpoints import Resumable
from trainer.runs.collapse import CollapseWatch
from trainer.runs.context import RunContext
from trainer.runs.progress import pair_summary
from trainer.stages.base import RowsStage


class OurDpoTrainer(Resumable, DPOTrainer):  # type: ignore[misc]
    """TRL's trainer, which can be stopped between steps and logs `kl`, an estimate of the KL to the
    reference."""

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Adds `kl`, in nats per answer, 0 or more: how far mean log-probabilities are from the
        reference's.

        It is the mean of two distances, of the chosen and of the rejected answers. TRL's `rewards`
        are `beta` times the differences of log-probabilities.
        """
        metrics = self._metrics["train" if self.model.training else "eval"]
        if self.beta and "rewards/chosen" in metrics:
            metrics["kl"] = [
                fmean(
                    abs(fmean(metrics[f"rewards/{kind}"])) / self.beta
                    for kind in ("chosen", "rejected")
                )
            ]
        super().log(logs, start_time)


class Dpo(RowsStage[DpoStage]):
    OPTIONS_CLASS = DPOConfig
    TRAINER = OurDpoTrainer
    SUMMARY = staticmethod(pair_summary)

    def make_trainer(self, run: RunContext[DpoStage, Split], start: str, tokenizer: Any) -> Any:
        trainer = super().make_trainer(run, start, tokenizer)
        if run.config.stop_when != StopOnKl():
            trainer.add_callback(CollapseWatch(run.config.stop_when, run.say))
        return trainer


STAGE = Dpo
