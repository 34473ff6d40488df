"""One run of `tests.bench.overlap`: the demo's training at a learning rate of 0, graded or with a constant reward."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any

from tests.bench.overlap import config
from trainer import grpo
from trainer.rewards import Asked, Rewarder
from trainer.train import main

FIXED = ["--learning_rate", "0", "--warm_start", "null", "--evaluation.samples", "0", "--evaluation.greedy", "false"]


class Constant(Rewarder):
    """Grades nothing, at once."""

    async def gradus(self, prompts: Sequence[Any], completions: Sequence[Any], **columns: Any) -> list[float | None]:
        return [1.0] * len(completions)

    def send_ahead(self, asked: Iterable[Asked]) -> None: ...


if __name__ == "__main__":
    kind, *overrides = sys.argv[1:]
    if kind == "constant":
        grpo.Rewarder = Constant  # type: ignore[misc]
    sys.exit(main(config(), [*FIXED, *overrides]))
