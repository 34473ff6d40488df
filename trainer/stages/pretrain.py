"""Training on plain text with transformers' Trainer: blocks of tokens, longer and longer as the
curriculum says.

One optimizer and one schedule run over all phases. A block has no padding and its loss is on every
token; texts follow each other in it with the end-of-text token between them. Nothing is read that
is not trained on at once.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset, SequentialSampler
from transformers import AutoConfig, Trainer, TrainingArguments, default_data_collator

from gradus.errors import Misuse
from trainer.config.stages import Phase, PretrainStage
from trainer.data.tokens import Ids, Tokens, describe, load_tokens, read_texts
from trainer.models.loading import load_tokenizer
from trainer.runs.checkpoints import Resumable
from trainer.runs.context import RunContext
from trainer.runs.distributed import is_leader, wait_for_all
from trainer.runs.progress import token_summary
from trainer.stages.base import Stage

MAX_LOSS = 700.0
"""Its exponential is still a number."""


class Curriculum(Dataset[dict[str, Any]]):
    """Samples in the order of training: `samples_per_step` of the first phase's length for each of
    its steps, and on.

    Each pass over the blocks of a phase has an order of its own, drawn from the seed.
    """

    def __init__(
        self, tokens: Tokens, phases: list[Phase], samples_per_step: int, seed: int
    ) -> None:
        self._tokens = tokens
        self._phases = phases
        self._ends = list(itertools.accumulate(phase.steps * samples_per_step for phase in phases))
        self._samples_per_step = samples_per_step
        self._seed = seed
        self._order: tuple[tuple[int, int], Any] | None = None

    def __len__(self) -> int:
        return self._ends[-1]

    def __getitem__(self, index: int) -> dict[str, Any]:
        number = bisect.bisect_right(self._ends, index)
        phase = self._phases[number]
        start = self._ends[number - 1] if number else 0
        epoch, place = divmod(index - start, self._tokens.count_blocks(phase.length))
        begin = int(self._get_order(number, epoch)[place]) * phase.length
        return make_sample(self._tokens.train.read(begin, begin + phase.length))

    def find_phase(self, step: int) -> Phase:
        """Phase of a completed step, counted from 1."""
        return self._phases[
            min(
                bisect.bisect_left(self._ends, step * self._samples_per_step), len(self._phases) - 1
            )
        ]

    def _get_order(self, number: int, epoch: int) -> Any:
        if self._order is None or self._order[0] != (number, epoch):
            blocks = self._tokens.count_blocks(self._phases[number].length)
            drawn = np.random.default_rng([self._seed, number, epoch]).permutation(blocks)
            self._order = ((number, epoch), drawn)
        return self._order[1]


def make_sample(ids: Ids) -> dict[str, Any]:
    ids_T = torch.from_numpy(np.asarray(ids, dtype=np.int64))
    return {"input_ids": ids_T, "labels": ids_T.clone()}


class OurPretrainer(Resumable, Trainer):  # type: ignore[misc]
    """transformers' trainer, which keeps the order of the curriculum and tells perplexity."""

    def _get_train_sampler(self, train_dataset: Any = None) -> Any:
        return SequentialSampler(train_dataset if train_dataset is not None else self.train_dataset)

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        if "eval_loss" in logs:
            logs["eval_perplexity"] = math.exp(min(logs["eval_loss"], MAX_LOSS))
        if "learning_rate" in logs:
            logs["length"] = self.train_dataset.find_phase(self.state.global_step).length
        super().log(logs, start_time)


class Pretrain(Stage[PretrainStage, Tokens | None]):
    OPTIONS_CLASS = TrainingArguments
    SUMMARY = staticmethod(token_summary)

    def read(self) -> None:
        """Texts become tokens by the model's tokenizer only."""
        describe(self.config.data)

    def check_data(self) -> str:
        phases = ", ".join(
            f"{phase.steps} steps of {phase.length}" for phase in self.config.data.curriculum
        )
        return f"{describe(self.config.data)}; {phases}"

    def check_lengths(self, tokenizer: Any, window: int | None) -> list[str]:
        longest = max(phase.length for phase in self.config.data.curriculum)
        if window is not None and longest > window:
            raise Misuse(
                f"data.curriculum: a block has {longest} tokens, and the model takes {window}"
            )
        return []

    def iter_texts(self, data: Tokens | None) -> Iterable[str]:
        return read_texts(self.config.data, self.config.data.dataset)

    def prepare_data(self, run: RunContext[PretrainStage, Tokens | None], start: str) -> Tokens:
        trust = self.config.model.trust_remote_code
        vocab_size = (
            AutoConfig.from_pretrained(start, trust_remote_code=trust).get_text_config().vocab_size
        )
        tokenizer = load_tokenizer(start, self.config.model)
        if is_leader():
            load_tokens(self.config.data, run.folder.path, tokenizer, vocab_size)
        wait_for_all()
        return load_tokens(self.config.data, run.folder.path, tokenizer, vocab_size)

    def describe_data(self, data: Tokens | None) -> str:
        assert data is not None
        return f"{data.held_out_from:,} tokens to train on, {len(data.held_out):,} held out"

    def build_arguments(self, options: Mapping[str, Any], output_dir: Path, **extra: Any) -> Any:
        return super().build_arguments(
            options, output_dir, max_steps=self.config.data.steps, **extra
        )

    def make_trainer(
        self, run: RunContext[PretrainStage, Tokens | None], start: str, tokenizer: Any
    ) -> Any:
        data = self.config.data
        assert run.data is not None
        args = self.build_arguments(run.options, run.folder.path)
        samples_per_step = (
            args.train_batch_size * args.gradient_accumulation_steps * args.world_size
        )
        curriculum = Curriculum(run.data, data.curriculum, samples_per_step, self.config.seed)
        blocks = min(data.eval_blocks, len(run.data.held_out) // data.longest)
        measured = run.data.held_out.read(0, blocks * data.longest).reshape(-1, data.longest)
        return self.build_trainer(
            run,
            _build_trainer,
            start,
            args=args,
            train_dataset=curriculum,
            eval_dataset=[make_sample(block) for block in measured] or None,
            processing_class=tokenizer,
            data_collator=default_data_collator,
        )


def _build_trainer(model: Any, peft_config: Any = None, **parts: Any) -> Any:
    if peft_config is not None:
        from peft import get_peft_model

        model = get_peft_model(model, peft_config)
        if parts["args"].gradient_checkpointing:
            model.enable_input_require_grads()
    return OurPretrainer(model=model, **parts)


STAGES = {"pretrain": Pretrain}
