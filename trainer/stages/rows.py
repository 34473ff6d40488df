"""Stages that learn from rows, by TRL's trainers: answers (`sft`), preferences (`dpo`) and reward
models, whose head is trained and saved, with adapters too.

The reference of preferences is the model itself with its adapters off, or a second copy where all
weights are trained; it may follow (`sync_ref_model`) or be asked once at the beginning
(`precompute_ref_log_probs`). Losses have TRL's names.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from statistics import fmean
from typing import Any, ClassVar, TypeVar

from datasets import Dataset
from trl import (
    DPOConfig,
    DPOTrainer,
    RewardConfig,
    RewardTrainer,
    SFTConfig,
    SFTTrainer,
)

from trainer.config.run import StopOnKl
from trainer.config.stages import DpoStage, RewardStage, RowStage, SftStage
from trainer.data.rows import Sample, Split, load_rows
from trainer.runs.checkpoints import Resumable
from trainer.runs.collapse import CollapseWatch
from trainer.runs.context import RunContext
from trainer.runs.progress import pair_summary, sft_summary
from trainer.stages.base import Stage

R = TypeVar("R", bound=RowStage)


class RowsStage(Stage[R, Split]):
    """A stage that learns from rows, by one of TRL's trainers."""

    TRAINER: ClassVar[Any]

    def read(self) -> Split:
        return load_rows(self.config)

    def describe_data(self, data: Split) -> str:
        summary = f"{len(data.train)} rows to train on, {len(data.held_out)} held out"
        if data.skipped:
            summary += (
                f"; {len(data.skipped)} rows cannot be used and are left out, the first:"
                f" {data.skipped[0]}"
            )
        return summary

    def iter_texts(self, data: Split) -> Iterable[str]:
        return (text for sample in data.train for text in _iter_strings(sample.values))

    def build_data_record(self, data: Split) -> dict[str, Any]:
        return {
            **super().build_data_record(data),
            "train_sha256": _compute_hash(data.train),
            "held_out_sha256": _compute_hash(data.held_out),
            "held_out": [sample.where for sample in data.held_out],
        }

    def make_trainer(self, run: RunContext[R, Split], start: str, tokenizer: Any) -> Any:
        held_out = run.data.held_out
        return self.build_trainer(
            run,
            self.TRAINER,
            start,
            args=self.build_arguments(run.options, run.folder.path),
            train_dataset=_build_dataset(run.data.train),
            eval_dataset=_build_dataset(held_out) if held_out else None,
            processing_class=tokenizer,
        )

    def run_before_steps(self, run: RunContext[R, Split], trainer: Any) -> None:
        """TRL leaves out rows that are too long without a message; with packing, several rows are
        one."""
        lost = len(run.data.train) - len(trainer.train_dataset)
        if lost > 0 and not getattr(trainer.args, "packing", False):
            limit = trainer.args.max_length
            run.log(
                f"{lost} of {len(run.data.train)} rows are left out: longer than max_length"
                f" ({limit} tokens)"
            )


class OurSftTrainer(Resumable, SFTTrainer):  # type: ignore[misc]
    """TRL's trainer, which can be stopped between steps."""


class Sft(RowsStage[SftStage]):
    OPTIONS_CLASS = SFTConfig
    TRAINER = OurSftTrainer
    SUMMARY = staticmethod(sft_summary)


class OurRewardTrainer(Resumable, RewardTrainer):  # type: ignore[misc]
    """TRL's trainer, which can be stopped between steps."""


class Reward(RowsStage[RewardStage]):
    OPTIONS_CLASS = RewardConfig
    TRAINER = OurRewardTrainer
    SUMMARY = staticmethod(pair_summary)
    SCORES = True


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
            trainer.add_callback(CollapseWatch(run.config.stop_when, run.log))
        return trainer


STAGES = {"sft": Sft, "dpo": Dpo, "reward": Reward}


def _iter_strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _iter_strings(item)
    elif isinstance(value, dict):
        yield from _iter_strings(list(value.values()))


def _compute_hash(samples: Iterable[Sample]) -> str:
    return hashlib.sha256("".join(sample.whole_key for sample in samples).encode()).hexdigest()


def _build_dataset(samples: Iterable[Sample]) -> Any:
    """Return rows of one form; tool calls of different shapes stay as they are instead of being
    padded to one."""
    return Dataset.from_list([sample.values for sample in samples], on_mixed_types="use_json")
