"""Proof that a vLLM server holds the trainer's weights: log-probabilities of the same tokens, and
sums of the weights.

Log-probabilities alone cannot tell: in bfloat16 with equal weights, those of single tokens differ
by up to 0.3.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

MEAN_BOUNDS = {"float32": 1e-3, "float16": 0.02, "bfloat16": 0.1}
"""Largest mean difference of log-probabilities with equal weights, by dtype: measured 1e-6, not
measured, and 0.04."""
FUSED = {
    **dict.fromkeys(("q_proj", "k_proj", "v_proj"), "qkv_proj"),
    **dict.fromkeys(("gate_proj", "up_proj"), "gate_up_proj"),
}
"""Projections that vLLM keeps as one, rows of the first before those of the next."""
VOCABULARY_ROWS = 64
"""vLLM pads a vocabulary with rows of zeros to a multiple of this."""
NOTHING = hashlib.sha256(b"").hexdigest()
"""Sum of weights that vLLM has packed away, as it does on a CPU."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Absolute differences of log-probabilities over the tokens that both sides gave."""

    mean: float
    largest: float


def difference(own_T: Sequence[float], served_T: Sequence[float]) -> Difference:
    """Infinite when there is nothing to compare, or when a figure is no number."""
    if not served_T or len(own_T) != len(served_T):
        return Difference(math.inf, math.inf)
    all_T = [abs(own - served) for own, served in zip(own_T, served_T, strict=True)]
    if not all(map(math.isfinite, all_T)):
        return Difference(math.inf, math.inf)
    return Difference(math.fsum(all_T) / len(all_T), max(all_T))


def logprobs_of_model(model: Any, ids_T: Sequence[int]) -> list[float]:
    """Log-probability of every token but the first, given those before it."""
    training = model.training
    model.eval()  # dropout would be a difference of its own
    try:
        with torch.no_grad():
            ids = torch.tensor([list(ids_T)], device=model.device)
            logits_TV = model(input_ids=ids).logits[0, :-1].float()
            all_TV = torch.log_softmax(logits_TV, dim=-1)
            chosen: list[float] = all_TV.gather(-1, ids[0, 1:, None])[:, 0].tolist()
            return chosen
    finally:
        model.train(training)


def mean_bound(dtypes: Iterable[str]) -> float:
    """The bound for the coarsest of these dtypes, such as `torch.bfloat16` and `float32`."""
    return max(
        MEAN_BOUNDS.get(dtype.removeprefix("torch."), MEAN_BOUNDS["bfloat16"]) for dtype in dtypes
    )


def checksums(tensors: Iterable[tuple[str, torch.Tensor]], dtype: torch.dtype) -> dict[str, str]:
    """SHA-256 of each of vLLM's parameters that these tensors make up, in that dtype, by its name
    in vLLM."""
    sums: dict[str, Any] = {}
    for name, tensor in tensors:
        *path, module, kind = ["", *name.split(".")]
        whole = ".".join([*path[1:], FUSED.get(module, module), kind])
        data = tensor.detach().to("cpu", dtype).contiguous()
        if module in ("embed_tokens", "lm_head") and (short := -len(data) % VOCABULARY_ROWS):
            data = torch.cat([data, data.new_zeros(short, *data.shape[1:])])
        sums.setdefault(whole, hashlib.sha256()).update(data.view(-1).view(torch.uint8).numpy())
    return {name: made.hexdigest() for name, made in sums.items()}


def unlike(own: Mapping[str, str], served: Mapping[str, str]) -> list[str]:
    """Names of parameters that the server holds with other bytes than the trainer.

    A kernel of the server's may keep its matrices in a layout of its own: a kind of matrix
    (`mlp.down_proj.weight`) counts only if one layer's is alike. Those that are packed away or
    unknown to one side are left out.
    """
    served = {
        name.replace(".base_layer.", "."): digest
        for name, digest in served.items()
        if digest != NOTHING
    }
    both = sorted(own.keys() & served.keys())
    alike_kinds = {_kind(name) for name in both if own[name] == served[name]}
    return [
        name
        for name in both
        if own[name] != served[name] and (_kind(name) in alike_kinds or "norm" in name)
    ]


def _kind(name: str) -> str:
    return re.sub(r"\.\d+\.", ".", name)
