"""What training would compute on here, and in which numbers: CUDA, MPS or the CPU."""

from __future__ import annotations

import shutil
import sys
from typing import Any

from gradus.doctor import Check

BF16_FROM, FP8_FROM = (8, 0), (8, 9)
"""CUDA's compute capability."""


def accelerator() -> Check:
    """The device that training would choose, with what it can do."""
    try:
        import torch
    except (ImportError, OSError, RuntimeError) as error:
        return Check("device", False, f"torch cannot be loaded: {error}; install it anew", needed=False)
    if torch.cuda.is_available():
        return _cuda(torch)
    if torch.backends.mps.is_available():
        text = "MPS (Apple Silicon): float32 unless the config asks for more; `make verify-mps` tries it out"
        return Check("device", True, text, details={"kind": "mps"})
    return Check("device", True, f"CPU, torch {torch.__version__}: {_why_only_cpu(torch)}", details={"kind": "cpu"})


def _cuda(torch: Any) -> Check:
    devices = [cuda_device(torch, index) for index in range(torch.cuda.device_count())]
    told = "; ".join(
        f"{one['name']}, {one['memory_gb']:.0f} GiB, "
        f"{'bf16' if one['has_bf16'] else 'no bf16: fp16 or float32'}, {'fp8' if one['has_fp8'] else 'no fp8'}"
        for one in devices
    )
    return Check("device", True, f"CUDA {torch.version.cuda}: {told}", details={"kind": "cuda", "devices": devices})


def cuda_device(torch: Any, index: int) -> dict[str, Any]:
    """One CUDA device: name, memory, and which short numbers its tensor cores have."""
    found = torch.cuda.get_device_properties(index)
    capability = (found.major, found.minor)
    return {
        "name": found.name,
        "memory_gb": round(found.total_memory / 2**30, 2),
        "capability": f"{found.major}.{found.minor}",
        "has_bf16": capability >= BF16_FROM,
        "has_fp8": capability >= FP8_FROM,
    }


def _why_only_cpu(torch: Any) -> str:
    if shutil.which("nvidia-smi") is not None and torch.version.cuda is None:
        return "there is an NVIDIA driver, and this torch is a build for the CPU: install one for CUDA"
    if shutil.which("nvidia-smi") is not None:
        return f"there is an NVIDIA driver, and CUDA {torch.version.cuda} does not start: is the driver older than it?"
    if sys.platform == "darwin":
        return "this torch has no MPS: `make verify-mps` says why"
    return "fine for the demos, slow for real models"


def chosen_dtypes() -> str:
    """The numbers in which training would compute, by the trainer's own choice."""
    from trainer.config.device import choose_device, weights_dtype, with_device_defaults
    from trainer.config.run import ModelConfig

    device = choose_device(ModelConfig(name="any"))
    arithmetic = (
        "bf16 arithmetic" if with_device_defaults({}, device, lambda text: None)["bf16"] else "float32 arithmetic"
    )
    trained, frozen = (weights_dtype(device, "auto", frozen=is_frozen) for is_frozen in (False, True))
    return (
        f"trained weights {trained}, frozen ones under LoRA {frozen}, {arithmetic} (model.dtype, bf16, fp16 change it)"
    )
