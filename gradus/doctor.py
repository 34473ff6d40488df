"""`gradus doctor`: looks at this machine and says what to do about what is missing. Changes
nothing.

CPU, memory, disks and a named service are looked at here; the installed wings add the rest
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
from gradus.resources import cache
from gradus.wings import loaded_from

LITTLE_DISK_GB = 20.0
"""Below it one checkpoint of a model with 1.5 billion weights, its optimizer's states included, may
not fit."""
LITTLE_MEMORY_GB = 4.0


@dataclass(frozen=True, slots=True)
class Check:
    """One finding about this machine."""

    what: str
    fine: bool
    text: str
    """What is there; if it is missing, also what to do about it."""
    needed: bool = True
    """False: some uses do without it."""

    def __str__(self) -> str:
        missing = "MISS" if self.needed else "--  "
        return f"{'ok  ' if self.fine else missing} {self.what}: {self.text}"


def run_check(what: str, look: Callable[[], str], needed: bool = True) -> Check:
    """Check with the text that `look` returns, or with its error: a broken library must not hide
    the other checks."""
    try:
        return Check(what, True, look())
    except (GradusError, ImportError, OSError, RuntimeError) as error:
        return Check(what, False, str(error).strip() or type(error).__name__, needed)


def is_installed(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def extra(name: str, module: str, use: str) -> Check:
    """Check for one of Gradus' extras: whether `module`, one of its packages, is installed."""
    found = is_installed(module)
    text = "installed" if found else f"{use} needs it: pip install 'gradus-rl[{name}]'"
    return Check(f"extra {name}", found, text, False)


def examine(redis: str | None = None, url: str | None = None) -> int:
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
    yield cpu()
    yield memory()
    yield from disks()
    for signs_of_wing in loaded_from("gradus.doctor"):
        yield from signs_of_wing(redis)
    if url is not None:
        from gradus.client import RewardClient

        def service() -> str:
            live = ", ".join(info.grader for info in asyncio.run(RewardClient(url).graders()))
            return f"{url} answers; live graders: {live or 'none'}"

        yield run_check("service", service)


def cpu() -> Check:
    """Check of cores, and of bf16, which decides how a model can be trained here."""
    cores = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    has_bf16 = any("bf16" in flag for flag in cpu_flags())
    advice = "bf16" if has_bf16 else "no bf16: train in float32 here"
    return Check("CPU", True, f"{cores} cores, {advice}")


def cpu_flags() -> frozenset[str]:
    """The CPU's abilities as the kernel names them, in lower case; empty where the kernel does not
    list them."""
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        told = (
            line.partition(":")[2]
            for line in lines
            if line.lower().startswith(("flags", "features"))
        )
        return frozenset(next(told, "").lower().split())
    with suppress(OSError, subprocess.SubprocessError):
        asked = ["sysctl", "-a", "hw.optional"]
        said = subprocess.run(asked, capture_output=True, text=True, timeout=10, check=False).stdout
        return frozenset(
            line.partition(":")[0].rpartition(".")[2].lower()
            for line in said.splitlines()
            if ": 1" in line
        )
    return frozenset()


def memory() -> Check:
    """Check of the memory this process may use; a container's limit counts."""
    found_gb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    usable_gb = found_gb
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with suppress(OSError, ValueError):
            usable_gb = min(found_gb, int(Path(path).read_text(encoding="ascii")) / 2**30)
            break
    text = f"{usable_gb:.0f} GiB" + (
        f" of the machine's {found_gb:.0f}" if usable_gb < found_gb else ""
    )
    enough = usable_gb >= LITTLE_MEMORY_GB
    if not enough:
        text += (
            f"; a demo needs {LITTLE_MEMORY_GB:.0f}: give the container more, or take fewer workers"
        )
    return Check("memory", enough, text, needed=False)


def disks() -> Iterator[Check]:
    """Checks of free space where runs, models and builds are written."""
    hub = Path(os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface")
    for what, place in (("runs", Path("runs")), ("models", hub), ("builds", cache())):
        there = next(
            (folder for folder in (place, *place.absolute().parents) if folder.is_dir()), Path("/")
        )
        free_gb = shutil.disk_usage(there).free / 2**30
        enough = free_gb >= LITTLE_DISK_GB or (what == "builds" and free_gb >= 1)
        text = f"{free_gb:.0f} GiB free for {place}"
        advice = {
            "runs": "set output_dir elsewhere",
            "models": "set HF_HOME",
            "builds": "set GRADUS_CACHE_DIR",
        }[what]
        yield Check(
            f"disk, {what}",
            enough,
            text if enough else f"{text}; {advice}",
            False,
        )
