"""`generation.ahead`: while a round is trained on, the vLLM server writes the next one
(docs/decisions/0060-one-round-ahead.md).

Rounds are read from the data loader one round early. Their completions come from the weights before
the last update; TRL's importance-sampling correction weighs their tokens for that.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Any

from gradus.errors import Misuse
from trainer.config.run import TrainConfig

Rows = list[dict[str, Any]]


class Lookahead:
    """Batches of an epoch, read one round before they are trained on. Each batch is a whole round's
    rows, and comes as often as the round has micro steps."""

    def __init__(self, round_batches: int) -> None:
        self._round_batches = round_batches
        self._epoch: Iterator[Rows] | None = None
        self._unused: deque[Rows] = deque()
        self._left_of_round = 0

    def take(self, epoch: Iterator[Rows], count: int) -> list[Rows]:
        """Return the next `count` batches, or as many as are left."""
        if epoch is not self._epoch:
            self._epoch = epoch
            self._unused.clear()
        missing = count + self._round_batches - len(self._unused)
        self._unused.extend(islice(epoch, missing))
        self._left_of_round = self._round_batches - count
        return [self._unused.popleft() for _ in range(min(count, len(self._unused)))]

    def get_next_round(self) -> Rows | None:
        """Return the rows of the round after the one that has just begun; None at the end of an
        epoch."""
        if len(self._unused) <= self._left_of_round:
            return None
        return self._unused[self._left_of_round]


def refuse_wrong_ahead(config: TrainConfig, options: Any) -> None:
    """Raise Misuse for settings that exclude `generation.ahead`. `options` is TRL's GRPOConfig or
    RLOOConfig."""
    if not config.generation.ahead:
        return
    micro_steps = options.steps_per_generation * options.num_iterations
    if config.generation.backend != "vllm" or config.generation.sync == "nccl":
        why = "needs generation.backend: vllm with sync file, lora or auto"
    elif config.stage != "grpo":
        why = "cannot be used with stage: rloo, which does not weigh tokens of older weights"
    elif not options.vllm_importance_sampling_correction:
        why = "needs grpo.vllm_importance_sampling_correction, which weighs tokens of older weights"
    elif config.turns is not None:
        why = "cannot be used with turns: a second turn needs the grade of the first"
    elif config.task_sampling.refill:
        why = "cannot be used with task_sampling.refill: which tasks follow depends on grades"
    elif micro_steps % options.gradient_accumulation_steps:
        why = (
            "needs whole optimizer steps in a round: steps_per_generation x num_iterations,"
            f" {micro_steps}, is no multiple of {options.gradient_accumulation_steps}"
            " (gradient_accumulation_steps)"
        )
    else:
        return
    raise Misuse(f"generation.ahead {why}")
