"""The models of the overlap benchmark say what the trained one says, however large they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.bench.overlap_grown import Size, grow, grown
from trainer.config import FreshModel, ModelConfig
from trainer.fresh import build_model, train_tokenizer
from trainer.model import load_tokenizer

SMALL = FreshModel(hidden_size=32, intermediate_size=48, layers=2, heads=4, kv_heads=2, head_dim=8, vocab_size=300)
TEXTS = ["let f x = x + 1", "(* add 1 *)"]


@pytest.fixture(scope="module")
def small() -> Any:
    """Weights of the size that training leaves, not of the one that a fresh model has."""
    model = build_model("qwen3", SMALL, train_tokenizer(TEXTS, SMALL), seed=1).double().eval()
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(2)
        for weight in model.parameters():
            weight += torch.randn_like(weight) / 4
    return model


@pytest.mark.parametrize(
    "size",
    [
        Size(hidden=32, neurons=48, heads=4, layers=5),
        Size(hidden=32, neurons=100, heads=8, layers=2),
        Size(hidden=128, neurons=64, heads=6, layers=3),
        Size(hidden=96, neurons=48, heads=4, layers=2),
    ],
)
def test_a_grown_model_has_the_same_logits(small: Any, size: Size) -> None:
    ids = torch.arange(40).reshape(2, 20) * 7 % small.config.vocab_size
    with torch.no_grad():
        before, after = small(ids).logits, grown(small, size)(ids).logits
    assert before.std() > 0.1, "else all would be alike"
    # Norms are taken in single precision, where only powers of two keep every bit.
    assert (after - before).abs().max() <= (0.0 if size.hidden != 96 else 1e-4)


def test_growing_costs_what_it_says(small: Any) -> None:
    model = grown(small, Size(hidden=128, neurons=64, heads=6, layers=3))
    assert model.config.num_key_value_heads == 3
    assert all(torch.isfinite(weight).all() for weight in model.parameters())
    assert sum(weight.numel() for weight in model.parameters()) > 3 * sum(
        weight.numel() for weight in small.parameters()
    )


@pytest.mark.parametrize("field", Size._fields)
def test_a_model_cannot_be_grown_to_a_smaller_one(small: Any, field: str) -> None:
    same = Size(hidden=32, neurons=48, heads=4, layers=2)
    with pytest.raises(ValueError, match="smaller than the model"):
        grown(small, same._replace(**{field: 1}))


def test_a_grown_model_is_written_with_its_tokenizer(tmp_path: Path) -> None:
    tokenizer = train_tokenizer(TEXTS, SMALL)
    build_model("qwen3", SMALL, tokenizer, seed=1).save_pretrained(tmp_path / "small")
    tokenizer.save_pretrained(tmp_path / "small")
    grow(tmp_path / "small", tmp_path / "large", Size(hidden=64, neurons=64, heads=4, layers=3))
    assert load_tokenizer(str(tmp_path / "large"), ModelConfig(name="large")).decode([5]) == tokenizer.decode([5])
    with pytest.raises(ValueError, match="smaller than the model"):
        grow(tmp_path / "large", tmp_path / "none", Size(hidden=32, neurons=64, heads=4, layers=3))
