"""Where the model computes and in which numbers: chosen once, safe by default. Loads no model."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from gradus.errors import Misuse
from trainer.config.run import ModelConfig

EIGHT_BIT = (
    "adamw_8bit",
    "adamw_bnb_8bit",
    "paged_adamw_8bit",
    "lion_8bit",
    "paged_lion_8bit",
    "ademamix_8bit",
)
"""Optimizers that need CUDA and bitsandbytes."""


@dataclass(frozen=True, slots=True)
class Device:
    kind: str
    """`cuda`, `mps` or `cpu`."""
    has_bf16: bool
    has_eight_bit: bool


def choose_device(config: ModelConfig) -> Device:
    """Return the device that was asked for, or the best there is. Raises Misuse when it is not
    there."""
    import torch

    if config.cpu_threads is not None:
        torch.set_num_threads(config.cpu_threads)
    availability = {
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
        "cpu": True,
    }
    usable = [name for name, is_there in availability.items() if is_there]
    kind = usable[0] if config.device == "auto" else config.device
    if kind not in usable:
        raise Misuse(
            f"model.device: this machine, or this build of torch, has no {kind}; it has:"
            f" {', '.join(usable)}"
        )
    on_cuda = kind == "cuda"
    return Device(
        kind=kind,
        has_bf16=on_cuda and torch.cuda.is_bf16_supported(),
        has_eight_bit=on_cuda and importlib.util.find_spec("bitsandbytes") is not None,
    )


def select_weights_dtype(device: Device, dtype: str, *, frozen: bool) -> str:
    """Return name of the weights' dtype. Weights that are trained stay in float32: small updates
    vanish in 16 bits."""
    if dtype != "auto":
        return dtype
    return "bfloat16" if device.has_bf16 and frozen else "float32"


def apply_device_defaults(
    options: Mapping[str, Any], device: Device, log: Callable[[str], None]
) -> dict[str, Any]:
    """TRL options with the device's defaults beneath them, and an optimizer that works here.

    Raises Misuse for kernels that are not installed, which transformers would only miss when it
    trains.
    """
    on_cuda = device.kind == "cuda"
    defaults: dict[str, Any] = {
        "use_cpu": device.kind == "cpu",
        # TRL's own default is bf16 everywhere, which is slow or wrong off CUDA.
        "bf16": device.has_bf16 and not options.get("fp16"),
        # Trades time for memory, and memory is not what runs out on a CPU.
        "gradient_checkpointing": on_cuda,
        "dataloader_pin_memory": on_cuda,
    }
    chosen = {**defaults, **options}
    if chosen.get("use_liger_kernel") and importlib.util.find_spec("liger_kernel") is None:
        raise Misuse("use_liger_kernel needs Liger's kernels: pip install liger-kernel")
    optimizer = str(getattr(chosen.get("optim"), "value", chosen.get("optim")))
    if optimizer in EIGHT_BIT and not device.has_eight_bit:
        log(f"optim {optimizer} needs CUDA and bitsandbytes; adamw_torch is used instead")
        chosen["optim"] = "adamw_torch"
    return chosen
