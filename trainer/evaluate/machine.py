"""On what a run was made, in words that mean something elsewhere too. Names no host and no path."""

from __future__ import annotations

import os
import platform
import sys


def machine() -> dict[str, str | int | float | None]:
    """System, processors, memory, and the versions that matter; `gpu` is None without one."""
    torch = sys.modules.get("torch")
    on_cuda = torch is not None and torch.cuda.is_available()
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "cpus": _cpus(),
        "memory_gib": _memory_gib(),
        "gpu": torch.cuda.get_device_name() if torch is not None and on_cuda else None,
        "python": platform.python_version(),
        "torch": str(torch.__version__) if torch is not None else None,
    }


def _cpus() -> int:
    """Processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _memory_gib() -> float | None:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    except (ValueError, OSError, AttributeError):
        return None
