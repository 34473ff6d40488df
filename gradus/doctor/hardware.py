"""What computes here, and in which numbers: CPU, memory, disk, CUDA, MPS. Benchmarks nothing."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from gradus.doctor.sign import Sign, is_installed, tried
from gradus.resources import cache

LITTLE_DISK_GB = 20.0
"""Below it one checkpoint of a model with 1.5 billion weights, its optimizer's states included, may not fit."""
LITTLE_MEMORY_GB = 4.0
BF16_FROM, FP8_FROM = (8, 0), (8, 9)
"""CUDA's compute capability."""
ABILITIES = {
    "AVX2": ("avx2",),
    "AVX-512": ("avx512f",),
    "AVX-512 bf16": ("avx512_bf16",),
    "AMX": ("amx_tile", "amx_int8"),
    "AMX bf16": ("amx_bf16",),
    "NEON": ("asimd", "neon"),
    "bf16": ("bf16", "feat_bf16"),
}
"""What torch's kernels look for, by the names that the kernel has for it."""


def hardware_signs() -> Iterator[Sign]:
    python = ".".join(map(str, sys.version_info[:3]))
    yield Sign("machine", True, f"{platform.platform()}, Python {python}")
    yield cpu()
    yield memory()
    yield from disks()
    if is_installed("torch"):
        yield accelerator()
        if is_installed("trl"):
            yield tried("dtype", chosen_dtypes)


def cpu() -> Sign:
    """Cores and what they can do that matters for training and for the story grader."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    flags = cpu_flags()
    able = [name for name, any_of in ABILITIES.items() if any(flag in flags for flag in any_of)]
    text = f"{cores} cores{', ' if able else ''}{', '.join(able)}"
    bf16 = any("bf16" in name for name in able)
    if not bf16:
        text += "; no bf16: train in float32 here"
    return Sign("CPU", True, text, details={"cores": cores, "abilities": able, "has_bf16": bf16})


def cpu_flags() -> frozenset[str]:
    """The CPU's abilities as the kernel names them, in small letters; empty where it does not say."""
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        told = (line.partition(":")[2] for line in lines if line.lower().startswith(("flags", "features")))
        return frozenset(next(told, "").lower().split())
    with suppress(OSError, subprocess.SubprocessError):
        asked = ["sysctl", "-a", "hw.optional"]
        said = subprocess.run(asked, capture_output=True, text=True, timeout=10, check=False).stdout
        return frozenset(
            line.partition(":")[0].rpartition(".")[2].lower() for line in said.splitlines() if ": 1" in line
        )
    return frozenset()


def memory() -> Sign:
    """What this process may use: a container's limit counts."""
    found_gb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    limit_gb = _container_limit_gb()
    usable_gb = min(found_gb, limit_gb) if limit_gb is not None else found_gb
    text = f"{usable_gb:.0f} GiB" + (f" of the machine's {found_gb:.0f}" if usable_gb < found_gb else "")
    enough = usable_gb >= LITTLE_MEMORY_GB
    if not enough:
        text += f"; a demo needs {LITTLE_MEMORY_GB:.0f}: give the container more, or take fewer workers"
    return Sign("memory", enough, text, needed=False, details={"usable_gb": round(usable_gb, 2)})


def _container_limit_gb() -> float | None:
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with suppress(OSError, ValueError):
            return int(Path(path).read_text(encoding="ascii")) / 2**30
    return None


def disks() -> Iterator[Sign]:
    """Room where runs, models and builds go."""
    hub = Path(os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface")
    for what, place in (("runs", Path("runs")), ("models", hub), ("builds", cache())):
        there = next((folder for folder in (place, *place.absolute().parents) if folder.is_dir()), Path("/"))
        free_gb = shutil.disk_usage(there).free / 2**30
        enough = free_gb >= LITTLE_DISK_GB or (what == "builds" and free_gb >= 1)
        text = f"{free_gb:.0f} GiB free for {place}"
        advice = {"runs": "set output_dir elsewhere", "models": "set HF_HOME", "builds": "set GRADUS_CACHE_DIR"}[what]
        yield Sign(
            f"disk, {what}", enough, text if enough else f"{text}; {advice}", False, {"free_gb": round(free_gb, 2)}
        )


# --------------------------------------------------------------------------------------------------------------- torch


def accelerator() -> Sign:
    """The device that training would choose, with what it can do."""
    try:
        import torch
    except (ImportError, OSError, RuntimeError) as error:
        return Sign("device", False, f"torch cannot be loaded: {error}; install it anew", needed=False)
    if torch.cuda.is_available():
        return _cuda(torch)
    if torch.backends.mps.is_available():
        text = "MPS (Apple Silicon): float32 unless the config asks for more; `make verify-mps` tries it out"
        return Sign("device", True, text, details={"kind": "mps"})
    return Sign("device", True, f"CPU, torch {torch.__version__}: {_why_only_cpu(torch)}", details={"kind": "cpu"})


def _cuda(torch: Any) -> Sign:
    devices = [cuda_device(torch, index) for index in range(torch.cuda.device_count())]
    told = "; ".join(
        f"{one['name']}, {one['memory_gb']:.0f} GiB, "
        f"{'bf16' if one['has_bf16'] else 'no bf16: fp16 or float32'}, {'fp8' if one['has_fp8'] else 'no fp8'}"
        for one in devices
    )
    return Sign("device", True, f"CUDA {torch.version.cuda}: {told}", details={"kind": "cuda", "devices": devices})


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
    from trainer.config import ModelConfig
    from trainer.device import choose_device, settled, weights_dtype

    device = choose_device(ModelConfig(name="any"))
    arithmetic = "bf16 arithmetic" if settled({}, device, lambda text: None)["bf16"] else "float32 arithmetic"
    trained, frozen = (weights_dtype(device, "auto", frozen=is_frozen) for is_frozen in (False, True))
    return (
        f"trained weights {trained}, frozen ones under LoRA {frozen}, {arithmetic} (model.dtype, bf16, fp16 change it)"
    )
