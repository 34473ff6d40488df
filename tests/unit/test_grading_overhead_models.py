"""The models of the overlap benchmark say what the trained one says, however large they are."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from trainer.config.run import FreshModel, ModelConfig
from trainer.models.fresh import build_model, train_tokenizer
from trainer.models.loading import load_tokenizer

SMALL = FreshModel(
    hidden_size=32, intermediate_size=48, layers=2, heads=4, kv_heads=2, head_dim=8, vocab_size=300
)
TEXTS = ["let f x = x + 1", "(* add 1 *)"]

pytestmark = pytest.mark.training


@pytest.fixture(scope="module")
def bench() -> Any:
    """The module under test. It loads torch, so it is imported when a test runs, not when pytest
    collects."""
    return import_module("tests.bench.grading_overhead_models")


@pytest.fixture(scope="module")
def small() -> Any:
    """Weights of the size that training leaves, not of the one that a fresh model has."""
    import torch

    model = build_model("qwen3", SMALL, train_tokenizer(TEXTS, SMALL), seed=1).double().eval()
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(2)
        for weight in model.parameters():
            weight += torch.randn_like(weight) / 4
    return model


@pytest.mark.parametrize(
    ("hidden", "neurons", "heads", "layers"),
    [(32, 48, 4, 5), (32, 100, 8, 2), (128, 64, 6, 3), (96, 48, 4, 2)],
)
def test_a_grown_model_has_the_same_logits(
    bench: Any, small: Any, hidden: int, neurons: int, heads: int, layers: int
) -> None:
    import torch

    size = bench.Size(hidden=hidden, neurons=neurons, heads=heads, layers=layers)
    ids = torch.arange(40).reshape(2, 20) * 7 % small.config.vocab_size
    with torch.no_grad():
        before, after = small(ids).logits, bench.grown(small, size)(ids).logits
    assert before.std() > 0.1, "else all would be alike"
    # Norms are taken in single precision, where only powers of two keep every bit.
    assert (after - before).abs().max() <= (0.0 if hidden != 96 else 1e-4)


def test_growing_costs_what_it_says(bench: Any, small: Any) -> None:
    import torch

    model = bench.grown(small, bench.Size(hidden=128, neurons=64, heads=6, layers=3))
    assert model.config.num_key_value_heads == 3
    assert all(torch.isfinite(weight).all() for weight in model.parameters())
    assert sum(weight.numel() for weight in model.parameters()) > 3 * sum(
        weight.numel() for weight in small.parameters()
    )


@pytest.mark.parametrize("field", ["hidden", "neurons", "heads", "layers"])
def test_a_model_cannot_be_grown_to_a_smaller_one(bench: Any, small: Any, field: str) -> None:
    same = bench.Size(hidden=32, neurons=48, heads=4, layers=2)
    with pytest.raises(ValueError, match="smaller than the model"):
        bench.grown(small, same._replace(**{field: 1}))


def test_a_grown_model_is_written_with_its_tokenizer(bench: Any, tmp_path: Path) -> None:
    tokenizer = train_tokenizer(TEXTS, SMALL)
    build_model("qwen3", SMALL, tokenizer, seed=1).save_pretrained(tmp_path / "small")
    tokenizer.save_pretrained(tmp_path / "small")
    bench.grow(
        tmp_path / "small", tmp_path / "large", bench.Size(hidden=64, neurons=64, heads=4, layers=3)
    )
    assert load_tokenizer(str(tmp_path / "large"), ModelConfig(name="large")).decode(
        [5]
    ) == tokenizer.decode([5])
    with pytest.raises(ValueError, match="smaller than the model"):
        bench.grow(
            tmp_path / "large",
            tmp_path / "none",
            bench.Size(hidden=32, neurons=64, heads=4, layers=3),
        )
