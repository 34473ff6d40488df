"""Completions that could not be graded: the loss and its gradients are those of a batch without
them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from trl import GRPOTrainer, RLOOTrainer

from tests.tiny_models import make_model, trainer_of

pytestmark = pytest.mark.training

FAULTED = (1, 2, 6)
"""Places in a round of two groups of four."""
KL = {"beta": 0.5, "num_iterations": 2}
OPTIONS: dict[str, dict[str, Any]] = {
    "grpo": {**KL, "loss_type": "grpo"},
    "dr_grpo": {**KL, "loss_type": "dr_grpo"},
    "gspo": {**KL, "loss_type": "grpo", "importance_sampling_level": "sequence"},
    "entropy": {**KL, "loss_type": "grpo", "entropy_coef": 0.1},
    "dapo": {**KL, "loss_type": "dapo"},
    "vespo": {**KL, "loss_type": "vespo"},
    "rloo": {"beta": 0.5},
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model("qwen2", tmp_path_factory.mktemp("qwen2"))


async def some_faulted(completions: Sequence[str], **columns: Any) -> list[float | None]:
    await asyncio.sleep(0)
    return [None if place in FAULTED else place % 3 / 2 for place in range(len(completions))]


def one_round(trainer: Any) -> Any:
    """A round of two groups, with a policy that is neither the one that sampled it nor the
    reference any more."""
    trainer.model.train()
    rows = [{"prompt": f"(* add {row // 4} *)", "prompt_id": f"p{row // 4}"} for row in range(8)]
    batch = trainer._generate_and_score_completions(rows)
    with torch.no_grad():
        for parameter in trainer.model.parameters():
            parameter.mul_(1.3)
    return batch


def without(rows: Sequence[int], batch: Mapping[str, Any]) -> dict[str, Any]:
    """A round as TRL makes it, less some of its completions."""
    kept = [row for row in range(len(batch["prompt_ids"])) if row not in rows]
    ours = {"tool_mask", "completions_per_graded"}
    left = {
        name: value[kept] if value.dim() else value
        for name, value in batch.items()
        if name not in ours
    }
    if "num_items_in_batch" in batch:
        left["num_items_in_batch"] = left["completion_mask"].sum()
    return left


def loss_and_gradients(
    trainer: Any, compute: Any, batches: Sequence[Mapping[str, Any]]
) -> tuple[float, torch.Tensor]:
    trainer.model.zero_grad()
    total = 0.0
    for batch in batches:
        loss = compute(trainer, trainer.model, dict(batch))
        loss.backward()
        total += loss.item()
    return total, torch.cat(
        [one.grad.flatten() for one in trainer.model.parameters() if one.grad is not None]
    )


@pytest.mark.parametrize("name", OPTIONS)
def test_faulted_completions_leave_no_trace_in_loss_and_gradients(
    name: str, model: Path, tmp_path: Path
) -> None:
    stage, upstream = ("rloo", RLOOTrainer) if name == "rloo" else ("grpo", GRPOTrainer)
    trainer = trainer_of(model, tmp_path, reward_funcs=[some_faulted], stage=stage, **OPTIONS[name])
    batch = one_round(trainer)
    trainer.current_gradient_accumulation_steps = 1
    loss, gradients = loss_and_gradients(trainer, type(trainer)._compute_loss, [batch])
    expected, other = loss_and_gradients(trainer, upstream._compute_loss, [without(FAULTED, batch)])
    assert loss == pytest.approx(expected, rel=1e-5, abs=1e-6)
    torch.testing.assert_close(gradients, other, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", ["grpo", "dapo"])
def test_micro_batches_with_unlike_shares_of_faults_add_up_to_the_same_loss(
    name: str, model: Path, tmp_path: Path
) -> None:
    size = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 4}
    trainer = trainer_of(model, tmp_path, reward_funcs=[some_faulted], **OPTIONS[name], **size)
    batch = one_round(trainer)
    trainer.current_gradient_accumulation_steps = 4
    parts = []
    for at in (0, 2, 4, 6):
        part = {key: one[at : at + 2] if one.dim() else one for key, one in batch.items()}
        parts.append(part)
    loss, gradients = loss_and_gradients(trainer, type(trainer)._compute_loss, parts)
    trainer.current_gradient_accumulation_steps = trainer.args.steps_per_generation = 1
    expected, other = loss_and_gradients(
        trainer, GRPOTrainer._compute_loss, [without(FAULTED, batch)]
    )
    assert loss == pytest.approx(expected, rel=1e-5, abs=1e-6)
    torch.testing.assert_close(gradients, other, rtol=1e-4, atol=1e-6)
