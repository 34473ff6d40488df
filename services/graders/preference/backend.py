"""The reward model on torch: opened as the configuration says. The one module of the graders that
needs torch."""

from __future__ import annotations

import torch
from transformers.utils.logging import disable_progress_bar

from gradus.errors import Misuse
from gradus.reward_model.model import RewardModel, load
from services.graders.preference.config import PreferenceConfig


def open_model(config: PreferenceConfig, name: str) -> tuple[RewardModel, str]:
    """Return the model and what it computes in, `float32-cpu`. Raises Misuse for a device or a
    model that cannot be used."""
    disable_progress_bar()
    availability = {
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
        "cpu": True,
    }
    if config.device == "auto":
        device = next(name for name, is_there in availability.items() if is_there)
    else:
        device = config.device
    if not availability[device]:
        available = ", ".join(name for name, is_there in availability.items() if is_there)
        raise Misuse(
            f"device: this machine, or this build of torch, has no {device}; it has: {available}"
        )
    dtype = config.dtype
    if dtype == "auto":
        if device == "cuda" and torch.cuda.is_bf16_supported():
            dtype = "bfloat16"
        else:
            dtype = "float32"
    if device == "cpu":
        torch.set_num_threads(config.threads)
    return load(name, device, dtype, max_tokens=config.max_tokens), f"{dtype}-{device}"
