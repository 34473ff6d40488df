"""A control group per box where this process may make one: bounds the memory and the processes of a
box as a whole.

cgroup v2 where a subtree is delegated to us, v1 where that is what there is, nothing elsewhere:
rlimits hold always, per process. In containers there is usually nothing to write to; there the
limits of the container bound all its boxes.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")
_MEMORY_FACTOR = 2
"""Limit of a box / limit of a process: page cache of the box's files and the box's own start count,
too."""
_NUMBERS = itertools.count()
"""Serial numbers, shared by all sandboxes of this process."""


class CgroupManager:
    """Makes one control group per box, where this process may."""

    def __init__(self, root: Path = _ROOT) -> None:
        self._parents = _find_v2_parent(root) or _find_v1_parents(root)

    @contextmanager
    def open_group(self, memory_mb: int, processes: int) -> Iterator[Cgroup]:
        """A group with these limits, removed at the end of the block. Where none can be made it
        does nothing."""
        name = f"gradus-{os.getpid()}-{next(_NUMBERS)}"
        group = Cgroup([f"{parent}/{name}" for parent in self._parents])
        memory = _MEMORY_FACTOR * memory_mb << 20
        limits = {"memory.max": memory, "memory.swap.max": 0, "memory.limit_in_bytes": memory}
        try:
            group.make({**limits, "pids.max": processes + 4})  # bubblewrap itself and its monitor
            yield group
        finally:
            group.remove()


@dataclass
class Cgroup:
    folders: list[str]

    def make(self, limits: Mapping[str, int]) -> None:
        for folder in self.folders:
            with suppress(OSError):
                os.mkdir(folder)
            for name, value in limits.items():
                with suppress(OSError):  # a file of the other version or controller
                    Path(folder, name).write_text(str(value))

    def add(self, pid: int) -> None:
        for folder in self.folders:
            with suppress(OSError):
                Path(folder, "cgroup.procs").write_text(str(pid))

    def remove(self) -> None:
        for folder in self.folders:
            with suppress(OSError):
                os.rmdir(folder)


def _read_own_paths() -> dict[str, str]:
    """Controller -> path of our own group; the empty name is v2."""
    paths = {}
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            paths[controller] = path
    return paths


def _find_v2_parent(root: Path) -> list[Path]:
    """Our own group, if its children get the memory and pids controllers and we may make some."""
    with suppress(OSError):
        own_group = root / _read_own_paths().get("", "/").lstrip("/")
        controllers = (own_group / "cgroup.subtree_control").read_text().split()
        if {"memory", "pids"} <= set(controllers) and os.access(own_group, os.W_OK):
            return [own_group]
    return []


def _find_v1_parents(root: Path) -> list[Path]:
    parents = []
    with suppress(OSError):
        for controller, path in _read_own_paths().items():
            folder = root / controller / path.lstrip("/")
            if controller in ("memory", "pids") and os.access(folder, os.W_OK):
                parents.append(folder)
    return parents
