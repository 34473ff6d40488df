"""Do trainer and server hold the same weights? They do when they give the same tokens the same probability."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch


def largest_difference(model: Any, ids_T: Sequence[int], served_T1: Sequence[float]) -> float:
    """The largest difference between the model's log-probabilities of `ids_T[1:]` and those that a server gave.

    Infinite when there is nothing to compare, or when a figure is no number.
    """
    own_T1 = _logprobs(model, ids_T)
    if not served_T1 or len(own_T1) != len(served_T1):
        return math.inf
    differences = [abs(own - served) for own, served in zip(own_T1, served_T1, strict=True)]
    return max(differences) if all(map(math.isfinite, differences)) else math.inf


def _logprobs(model: Any, ids_T: Sequence[int]) -> list[float]:
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
