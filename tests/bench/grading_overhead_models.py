"""A trained model made larger without changing what it says: each token costs more and has the same
probabilities.

The residual stream gets columns that stay zero, heads and neurons are added whose output
projections are zero, and whole blocks of them. Takes Qwen3 as the demo makes it; gives nothing that
a larger model would know.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

INIT_STD = 0.02


class Size(NamedTuple):
    hidden: int
    neurons: int
    """Of each feed-forward part."""
    heads: int
    layers: int


SIZES = {
    "1m": Size(hidden=128, neurons=512, heads=8, layers=3),
    "2m": Size(hidden=128, neurons=1024, heads=8, layers=4),
    "5m": Size(hidden=128, neurons=2048, heads=8, layers=6),
    "10m": Size(hidden=512, neurons=1536, heads=16, layers=3),
    "50m": Size(hidden=512, neurons=2048, heads=16, layers=12),
}
"""By about how many parameters there are."""


def grow(source: Path, target: Path, size: Size) -> None:
    """Write the grown model of `source` to `target`, its tokenizer beside it."""
    grown(AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32), size).save_pretrained(
        target
    )
    AutoTokenizer.from_pretrained(source).save_pretrained(target)


def grown(small: Any, size: Size) -> Any:
    """A model of that size with the logits of `small`, in its type of numbers. Raises ValueError
    for a smaller size."""
    config = small.config.__class__.from_dict(small.config.to_dict() | _changes(small.config, size))
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(0)
        model = small.__class__(config).to(small.dtype).eval()
        trained = small.state_dict()
        # Norms divide by the root of the mean of squares, and the new columns are zero: the others
        # are made larger, so that the mean is what it was, and smaller again behind each norm.
        louder = (size.hidden / small.config.hidden_size) ** 0.5
        for name, weight in model.state_dict().items():
            weight.copy_(_filled(name, weight.shape, trained.get(name), louder))
    return model


def _changes(config: Any, size: Size) -> dict[str, Any]:
    least = (
        config.hidden_size,
        config.intermediate_size,
        config.num_attention_heads,
        config.num_hidden_layers,
    )
    if any(wanted < there for wanted, there in zip(size, least, strict=True)):
        raise ValueError(f"{size} is smaller than the model, {Size(*least)}")
    queries_per_key = config.num_attention_heads // config.num_key_value_heads
    return {
        "hidden_size": size.hidden,
        "intermediate_size": size.neurons,
        "num_attention_heads": size.heads,
        "num_key_value_heads": size.heads // queries_per_key,
        "num_hidden_layers": size.layers,
        "layer_types": [config.layer_types[0]] * size.layers,
    }


def _filled(
    name: str, shape: torch.Size, trained: torch.Tensor | None, louder: float
) -> torch.Tensor:
    """The trained weights in their corner; around them zeros where something would come out, else
    small noise."""
    part = name.split(".")[-2]
    if part in ("q_norm", "k_norm"):
        return torch.ones(shape) if trained is None else trained
    if "norm" in part:
        new = torch.ones(shape, dtype=torch.float64)
        if trained is not None:
            new[: len(trained)] = trained / louder
        return new
    speaks = part in ("embed_tokens", "o_proj", "down_proj")
    new = (
        torch.zeros(shape, dtype=torch.float64)
        if speaks or part == "lm_head"
        else torch.randn(shape, dtype=torch.float64) * INIT_STD
    )
    if trained is not None:
        new[: trained.shape[0], : trained.shape[1]] = trained * (louder if speaks else 1.0)
    return new
