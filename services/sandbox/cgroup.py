"""Control groups: one per box where this process may make one, and what the kernel notes in those
that this process is in.

cgroup v2 where a subtree is delegated to us, v1 where that is what there is, nothing elsewhere:
rlimits hold always, per process. In containers there is usually nothing to write to; there the
limits of the container bound all its boxes.
"""

from __future__ import annotations

import itertools
import os
import re
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

_CGROUPS = "sys/fs/cgroup"
_PREFIX = "gradus-"
_LIMIT_FILES = {1: "memory.limit_in_bytes", 2: "memory.max"}
"""By version: the file that a group with a memory controller has, and the root of version 2 not."""
_OVERHEAD_MB = 64
"""What a box's group may hold beyond the limit of a process and its scratch: bubblewrap, the
kernel's own tables, and page cache of the box's files."""
_NUMBERS = itertools.count()
"""Serial numbers, shared by all sandboxes of this process."""
_LOCK = threading.Lock()
_LEFTOVERS: list[Path] = []
"""Folders of groups to remove, whose last processes may still be ending."""


@dataclass(frozen=True)
class MemoryGroup:
    """A control group's memory, read from the kernel's files in `folder`; version 1 or 2."""

    folder: Path
    version: int

    def read_limit(self) -> int | None:
        """Return the limit in bytes; None without one. `memory.high` counts, as reclaim beyond it
        all but stops a program."""
        limits = [read_number(self.folder / _LIMIT_FILES[self.version])]
        limits.append(read_number(self.folder / "memory.high"))
        return min((limit for limit in limits if limit is not None), default=None)

    def read_usage(self) -> int:
        """Return the bytes in use that the kernel cannot take back by dropping files."""
        current = "memory.current" if self.version == 2 else "memory.usage_in_bytes"
        total = "" if self.version == 2 else "total_"
        files = sum(
            self._count("memory.stat", f"{total}{kind}_file") for kind in ("active", "inactive")
        )
        return max(0, self._count(current) - files)

    def count_kills(self) -> int:
        """Return how many processes of the group were killed for lack of memory, whoever's limit it
        was. Version 2 counts groups below it, too."""
        return self._count(
            "memory.events" if self.version == 2 else "memory.oom_control", "oom_kill"
        )

    def has_met_limit(self) -> bool:
        """Return whether the group met its own limit, and not only one of a group around it."""
        if self.version == 1:
            return self._count("memory.failcnt") > 0
        local = "memory.events.local"
        if not (self.folder / local).exists():  # before Linux 5.2
            local = "memory.events"
        return self._count(local, "oom") > 0

    def _count(self, file: str, name: str = "") -> int:
        return read_number(self.folder / file, name) or 0


def read_number(file: Path, name: str = "") -> int | None:
    """Return the number in a file of /proc or /sys, or in its line `name number`; None if there is
    none."""
    with suppress(OSError), open(file, "rb", buffering=0) as opened:  # read in every run of a box
        pattern = rf"^{name}[: ]*(\d+)(?: kB)?$".encode()
        match = re.search(pattern, opened.read(), re.MULTILINE)
        return int(match[1]) if match else None
    return None


def find_memory_groups(root: Path = Path("/")) -> list[MemoryGroup]:
    """Return the memory groups that this process is in, its own first, then those around it that
    can be seen. `root`: where /proc and /sys are."""
    own_paths = _read_own_paths(root)
    version = 1 if "memory" in own_paths else 2
    base = root / _CGROUPS
    if version == 1:
        base /= "memory"
    path = own_paths.get("memory" if version == 1 else "", "/")
    folder = base / path.lstrip("/")
    if ".." in path:  # our namespace begins below it
        folder = base
    groups = []
    for place in (folder, *folder.parents):
        if (place / _LIMIT_FILES[version]).exists():
            groups.append(MemoryGroup(place, version))
        if place == base:
            break
    return groups


def count_kills(groups: list[MemoryGroup], root: Path = Path("/")) -> int:
    """Return the kills for lack of memory that these groups count, or else the whole machine."""
    if groups:
        return sum(group.count_kills() for group in groups)
    return read_number(root / "proc/vmstat", "oom_kill") or 0


class CgroupManager:
    """Makes one control group per box, where this process may; removes those of dead workers."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._around = find_memory_groups(root)
        cgroups = root / _CGROUPS
        self._parents = _find_v2_parent(root, cgroups) or _find_v1_parents(root, cgroups)
        for parent in self._parents:
            for folder in parent.glob(f"{_PREFIX}*-*"):
                pid = folder.name.split("-")[1]
                if not Path(f"/proc/{pid}").exists():  # of a dead worker
                    _LEFTOVERS.append(folder)
        remove_leftovers()

    @contextmanager
    def open_group(self, memory_mb: int, processes: int, scratch_mb: int = 0) -> Iterator[Cgroup]:
        """Make a group with these limits, removed at the end of the block. Where none can be made
        it bounds nothing, and counts what happens in the groups around it."""
        name = f"{_PREFIX}{os.getpid()}-{next(_NUMBERS)}"
        group = Cgroup([parent / name for parent in self._parents], self._around)
        memory = (memory_mb + scratch_mb + _OVERHEAD_MB) << 20
        limits = {"memory.max": memory, "memory.swap.max": 0, "memory.limit_in_bytes": memory}
        limits["pids.max"] = processes + 4  # bubblewrap itself and its monitor
        try:
            group.make(limits)
            yield group
        finally:
            group.remove()


@dataclass
class Cgroup:
    """The control group of one box, in each hierarchy that has a controller of ours."""

    folders: list[Path]
    around: list[MemoryGroup]
    """The memory groups that this process is in."""
    _kills_before: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.start_count()

    def make(self, limits: Mapping[str, int]) -> None:
        created = []
        for folder in self.folders:
            with suppress(OSError):
                folder.mkdir()
                created.append(folder)
            for name, value in limits.items():
                with suppress(OSError):  # a file of the other version or controller
                    if (folder / name).exists():
                        (folder / name).write_text(str(value))
        self.folders = created

    @cached_property
    def own(self) -> MemoryGroup | None:
        """The box's own memory group, if it has one. Not to be read before it is made."""
        for folder, version in itertools.product(self.folders, _LIMIT_FILES):
            if (folder / _LIMIT_FILES[version]).exists():
                return MemoryGroup(folder, version)
        return None

    def list_join_files(self) -> list[str]:
        """Return the files to which a process writes 0 to join the group."""
        return [f"{folder}/cgroup.procs" for folder in self.folders]

    def has_kills(self) -> bool:
        """Return whether a process was killed for lack of memory since the group was made: in the
        box, if it has a memory group, or in the groups that this process is in."""
        if self.own:
            return self.own.count_kills() > 0
        return self.has_kills_around()

    def has_kills_around(self) -> bool:
        """Return whether one was killed in the groups that this process is in."""
        return count_kills(self.around) > self._kills_before

    def has_met_limit(self) -> bool:
        """Return whether the box met a memory limit of its own group."""
        return self.own is not None and self.own.has_met_limit()

    def start_count(self) -> None:
        """Count kills in the groups that this process is in from now on."""
        self._kills_before = count_kills(self.around)

    def remove(self) -> None:
        """Remove the groups, and kill what is left in them: a box that is closed while it starts
        may leave a process whose parent had not bound it to itself yet."""
        for folder in self.folders:
            with suppress(OSError):
                for pid in map(int, (folder / "cgroup.procs").read_text().split()):
                    if pid > 1:  # 0: of another PID namespace
                        os.kill(pid, signal.SIGKILL)
        _LEFTOVERS.extend(self.folders)
        remove_leftovers()


def remove_leftovers(patience_s: float = 0.0) -> None:
    """Remove the groups of boxes that are gone. A group whose last process is still ending stays
    for the next call, or is waited for `patience_s`."""
    give_up_at = time.monotonic() + patience_s
    while True:
        with _LOCK:
            for folder in list(_LEFTOVERS):
                with suppress(OSError):
                    folder.rmdir()
                if not folder.exists():
                    _LEFTOVERS.remove(folder)
        if not _LEFTOVERS or time.monotonic() >= give_up_at:
            return
        time.sleep(0.01)


def _read_own_paths(root: Path) -> dict[str, str]:
    """Controller -> path of our own group; the empty name is v2."""
    paths = {}
    with suppress(OSError):
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            for controller in controllers.split(","):
                paths[controller] = path
    return paths


def _find_v2_parent(root: Path, cgroups: Path) -> list[Path]:
    """Our own group, if its children get the memory and pids controllers and we may make some."""
    with suppress(OSError):
        own_group = cgroups / _read_own_paths(root).get("", "/").lstrip("/")
        controllers = (own_group / "cgroup.subtree_control").read_text().split()
        if {"memory", "pids"} <= set(controllers) and os.access(own_group, os.W_OK):
            return [own_group]
    return []


def _find_v1_parents(root: Path, cgroups: Path) -> list[Path]:
    parents = []
    for controller, path in _read_own_paths(root).items():
        folder = cgroups / controller / path.lstrip("/")
        if controller in ("memory", "pids") and os.access(folder, os.W_OK):
            parents.append(folder)
    return parents
