"""Writes held-out completions in the processes of a launch. Each prints all of them, and how many
it wrote itself.

Usage: torchrun --nproc_per_node N held_out_in_processes.py MODEL
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trainer.config.run import PromptConfig
from trainer.evaluate.held_out import SharedModel
from trainer.evaluate.local import LocalModel
from trainer.evaluate.plan import (
    CompletionRequest,
    CompletionSource,
    EvalPlan,
    Outcome,
    Problem,
    build_requests,
    make_plan,
)

BATCH = 3
PROBLEMS = [Problem(f"t{n}", f"let f{n} x =", None) for n in range(7)]


def held_out_plan() -> EvalPlan:
    fields: dict[str, Any] = {
        "model": "m",
        "served": False,
        "samples": 2,
        "temperature": 1.0,
        "greedy": True,
    }
    return make_plan(PROBLEMS, PromptConfig(), tasks="t", max_new_tokens=6, **fields)


class CountingModel(LocalModel):
    """Counts the completions that it writes."""

    count = 0

    def write_batch(
        self, batch: Sequence[CompletionRequest]
    ) -> list[tuple[CompletionRequest, Outcome]]:
        self.count += len(batch)
        return super().write_batch(batch)


def loaded(model: Path) -> CountingModel:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    found = AutoModelForCausalLM.from_pretrained(model), AutoTokenizer.from_pretrained(model)
    return CountingModel(lambda: found, held_out_plan(), BATCH)


async def texts_of(source: CompletionSource) -> list[list[Any]]:
    """Key and text of each completion, in the order of the plan."""
    asks = build_requests(PROBLEMS, held_out_plan())
    keys = {ask.key for ask in asks}
    found = {ask.key: made async for ask, made in source.write(asks, keys)}
    return [[*ask.key, getattr(found[ask.key], "text", None)] for ask in asks]


if __name__ == "__main__":
    import torch

    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo")
    model = loaded(Path(sys.argv[1]))
    source = SharedModel(model, build_requests(PROBLEMS, held_out_plan()), BATCH)
    print(json.dumps([model.count, asyncio.run(texts_of(source))]) + "\n", end="", flush=True)
    torch.distributed.destroy_process_group()
