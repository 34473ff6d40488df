"""How new weights reach a vLLM server: one table, read by `gradus vllm` when it starts and by
`gradus train`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Way:
    """One way of handing weights over."""

    name: str
    """Value of `generation.sync`."""
    backend: str | None
    """Value of `gradus vllm --sync`, vLLM's weight-transfer backend; None: adapters need none."""


TABLE = (Way("lora", None), Way("nccl", "nccl"), Way("http", "file"), Way("file", "file"))
"""In the order in which `generation.sync: auto` tries them, but for `http`: it is for servers that
share no folder."""
DEFAULT_BACKEND = "file"
"""What every run can send and every server can take, whatever cards there are."""
BACKENDS = tuple(sorted({way.backend for way in TABLE if way.backend is not None}))
SHARED_CARD = 0.35
"""Share of its memory that a vLLM server takes of a machine's only card, where the trainer needs
the rest."""


def chosen_way(
    asked: str, *, has_adapter: bool, has_nccl: bool, serves_adapters: bool, backend: str | None
) -> Way:
    """The way that was asked for, or for `auto` the first one that fits both sides; without a fit,
    by file.

    `has_adapter`: the run trains a LoRA adapter that vLLM can serve. `has_nccl`: it trains on CUDA
    with vLLM in its environment. `serves_adapters` and `backend` are the server's.
    """
    ways = {way.name: way for way in TABLE}
    if asked != "auto":
        return ways[asked]
    if has_adapter and serves_adapters:
        return ways["lora"]
    return ways["nccl"] if has_nccl and backend == "nccl" else ways[DEFAULT_BACKEND]


def memory_share(cards: int, *, is_divided: bool) -> float | None:
    """The share of each card's memory for a server; None: vLLM's own, nearly all of it.

    `cards`: those that the server sees. `is_divided`: a person gave the server cards of its own
    (CUDA_VISIBLE_DEVICES).
    """
    return SHARED_CARD if cards == 1 and not is_divided else None
