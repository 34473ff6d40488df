"""`gradus doctor`: checks this machine and names remedies. Changes nothing.

This module checks CPU, memory, disks and a service; the installed wings add their own checks
(`gradus.wings`).
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from gradus.errors import GradusError
from gradus.resources import get_cache_folder
from gradus.wings import load_entry_points

LITTLE_DISK_GB = 20.0
"""Below it one checkpoint of a model with 1.5 billion weights, its optimizer's states included, may
not fit."""
LITTLE_MEMORY_GB = 4.0


@dataclass(frozen=True, slots=True)
class Check:
    subject: str
    fine: bool
    text: str
    """What was found, and the remedy if the check failed."""
    needed: bool = True
    """False: only some uses need it."""

    def __str__(self) -> str:
        missing = "MISS" if self.needed else "--  "
        return f"{'ok  ' if self.fine else missing} {self.subject}: {self.text}"


def run_check(subject: str, look: Callable[[], str], needed: bool = True) -> Check:
    """Check with the text that `look` returns, or with its error: a broken library must not hide
    the other checks."""
    try:
        return Check(subject, True, look())
    except (GradusError, ImportError, OSError, RuntimeError) as error:
        return Check(subject, False, str(error).strip() or type(error).__name__, needed)


def is_installed(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def check_extra(name: str, module: str, use: str) -> Check:
    """Check for one of Gradus' extras: whether `module`, one of its packages, is installed."""
    is_present = is_installed(module)
    return Check(
        f"extra {name}",
        is_present,
        "installed" if is_present else f"{use} needs it: pip install 'gradus-rl[{name}]'",
        False,
    )


def print_checks(redis: str | None = None, url: str | None = None) -> int:
    """Print every check; 0 if everything needed is there, else 1."""
    is_lacking = False
    for check in run_checks(redis, url):
        print(check, flush=True)
        is_lacking = is_lacking or (check.needed and not check.fine)
    return int(is_lacking)


def run_checks(redis: str | None, url: str | None) -> Iterator[Check]:
    """Checks of the machine, then of every installed wing, then of the service at `url`."""
    python = ".".join(map(str, sys.version_info[:3]))
    yield Check("machine", True, f"{platform.platform()}, Python {python}")
    yield check_cpu()
    yield check_memory()
    yield from check_disks()
    for signs_of_wing in load_entry_points("gradus.doctor"):
        yield from signs_of_wing(redis)
    if url is not None:
        from gradus.client import RewardClient

        def describe_service() -> str:
            live = ", ".join(info.grader for info in asyncio.run(RewardClient(url).graders()))
            return f"{url} answers; live graders: {live or 'none'}"

        yield run_check("service", describe_service)


def check_cpu() -> Check:
    """Check of cores, and of bf16, which decides how a model can be trained here."""
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    has_bf16 = any("bf16" in flag for flag in cpu_flags())
    advice = "bf16" if has_bf16 else "no bf16: train in float32 here"
    return Check("CPU", True, f"{cores} cores, {advice}")


def cpu_flags() -> frozenset[str]:
    """Return the CPU's abilities as the kernel names them, in lower case; empty where the kernel
    does not list them."""
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        flag_lines = (
            line.partition(":")[2]
            for line in lines
            if line.lower().startswith(("flags", "features"))
        )
        return frozenset(next(flag_lines, "").lower().split())
    with suppress(OSError, subprocess.SubprocessError):
        command = ["sysctl", "-a", "hw.optional"]
        output = subprocess.run(
            command, capture_output=True, text=True, timeout=10, check=False
        ).stdout
        return frozenset(
            line.partition(":")[0].rpartition(".")[2].lower()
            for line in output.splitlines()
            if ": 1" in line
        )
    return frozenset()


def check_memory() -> Check:
    """Check of the memory this process may use; a container's limit counts."""
    found_gb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    usable_gb = found_gb
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with suppress(OSError, ValueError):
            usable_gb = min(found_gb, int(Path(path).read_text(encoding="ascii")) / 2**30)
            break
    text = f"{usable_gb:.0f} GiB"
    if usable_gb < found_gb:
        text += f" of the machine's {found_gb:.0f}"
    enough = usable_gb >= LITTLE_MEMORY_GB
    if not enough:
        text += (
            f"; a demo needs {LITTLE_MEMORY_GB:.0f}: give the container more, or take fewer workers"
        )
    return Check("memory", enough, text, needed=False)


def check_disks() -> Iterator[Check]:
    hub = Path(os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface")
    for purpose, place, remedy in (
        ("runs", Path("runs"), "set output_dir elsewhere"),
        ("models", hub, "set HF_HOME"),
        ("builds", get_cache_folder(), "set GRADUS_CACHE_DIR"),
    ):
        existing_folder = next(
            (folder for folder in (place, *place.absolute().parents) if folder.is_dir()), Path("/")
        )
        free_gb = shutil.disk_usage(existing_folder).free / 2**30
        enough = free_gb >= LITTLE_DISK_GB or (purpose == "builds" and free_gb >= 1)
        text = f"{free_gb:.0f} GiB free for {place}"
        if not enough:
            text += f"; {remedy}"
        yield Check(f"disk, {purpose}", enough, text, False)
