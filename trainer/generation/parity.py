"""Comparison of a trainer's weights with a vLLM server's: checksums, and log-probabilities of the
same tokens.

Of log-probabilities the mean is what tells: in bfloat16 with equal weights, those of single tokens
differ by up to 0.3.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from trainer.generation.responses import GenerationStopped

MEAN_BOUNDS = {"float32": 1e-3, "float16": 0.02, "bfloat16": 0.1}
"""Largest mean difference of log-probabilities with equal weights, by dtype: measured 1e-6, not
measured, and 0.04."""


def compare_logprobs(own_T: Sequence[float], served_T: Sequence[float]) -> tuple[float, float]:
    """Compute the mean and the largest difference of log-probabilities; infinite when there is
    nothing to compare, or when a figure is no number."""
    all_T = []
    if len(own_T) == len(served_T):
        all_T = [abs(ours - served) for ours, served in zip(own_T, served_T, strict=True)]
    if not all_T or not all(map(math.isfinite, all_T)):
        return math.inf, math.inf
    return math.fsum(all_T) / len(all_T), max(all_T)


def compute_logprobs(model: Any, ids_T: Sequence[int]) -> list[float]:
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


def select_mean_bound(dtypes: Iterable[str]) -> float:
    """Return the bound for the coarsest of these dtypes, such as `torch.bfloat16` and `float32`."""
    return max(
        MEAN_BOUNDS.get(dtype.removeprefix("torch."), MEAN_BOUNDS["bfloat16"]) for dtype in dtypes
    )


def get_served_dtype(settings: Mapping[str, Any]) -> torch.dtype:
    """Return the type of a server's weights from vLLM's settings, where it is such as
    `torch.bfloat16` or `float32`; bfloat16 where they name none."""
    name = str((settings.get("model_config") or {}).get("dtype"))
    dtype = getattr(torch, name.removeprefix("torch."), None)
    return dtype if isinstance(dtype, torch.dtype) else torch.bfloat16


def refuse_differing(compared: int, differing: Sequence[str]) -> None:
    """Raise GenerationStopped where vLLM holds other weights than it was sent. `differing` are
    names of tensors, `compared` is how many were compared."""
    if differing:
        examples = ", ".join(differing[:3])
        raise GenerationStopped(
            f"vLLM holds other weights than it was sent: {len(differing)} of {compared} tensors"
            f" that can be compared, among them {examples}. Nothing was trained on its completions."
            " Start the server again, and look at its log and at the folder of the weights."
        )
