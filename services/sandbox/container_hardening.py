"""Checks that the container around a worker has the protections that GRADUS_REQUIRE_HARDENING
names.

Images of graders set the variable, so that a setting that was lost on the way to production stops
the worker. A worker outside of containers leaves it empty. Only settings are checked;
`services.sandbox.escape_probe` attacks the boxes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from gradus.errors import SandboxFault

VARIABLE = "GRADUS_REQUIRE_HARDENING"
NO_LIMIT_BYTES = 1 << 60
"""Control groups of version 1 report a missing memory limit as a number from here on."""
_DEFAULT_ROUTE = "00000000"
_SECCOMP_FILTER = "2"


class ContainerState:
    """Readings of /proc and /sys below `root`."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root

    def read_status(self, name: str) -> str:
        """Return the first word of a line of /proc/self/status; empty if there is no such line."""
        for line in self._read_text("proc/self/status").splitlines():
            field, _, value = line.partition(":")
            if field == name:
                return (value.split() or [""])[0]
        return ""

    def read_mount(self, point: str) -> tuple[list[str], str, list[str]]:
        """Mount options, type and file system options of what is mounted at `point` last."""
        last_mount: tuple[list[str], str, list[str]] = ([], "", [])
        for line in self._read_text("proc/self/mountinfo").splitlines():
            place, _, system = line.partition(" - ")
            fields = place.split()
            of_system = system.split()
            if len(fields) > 5 and len(of_system) > 2 and fields[4] == point:
                last_mount = fields[5].split(","), of_system[0], of_system[2].split(",")
        return last_mount

    def read_limit(self, *files: str) -> int | None:
        """Return the limit in the first of these control group files that holds one; None if none
        does."""
        for file in files:
            text = self._read_text(f"sys/fs/cgroup/{file}").strip()
            if text.isdecimal():
                return int(text)
        return None

    def has_default_route(self) -> bool:
        rows = [line.split() for line in self._read_text("proc/net/route").splitlines()[1:]]
        return any(len(row) > 1 and row[1] == _DEFAULT_ROUTE for row in rows)

    def _read_text(self, file: str) -> str:
        try:
            return (self._root / file).read_text()
        except OSError:
            return ""


def _has_small_tmp(state: ContainerState) -> bool:
    _, kind, options = state.read_mount("/tmp")
    return kind == "tmpfs" and any(option.startswith("size=") for option in options)


_PROTECTIONS: Mapping[str, tuple[Callable[[ContainerState], bool], str]] = {
    "user": (
        lambda a: a.read_status("Uid") not in ("", "0"),
        "it runs as user 0; set user: 1000:1000",
    ),
    # neither for this process nor for any program that it starts
    "capabilities": (lambda a: int(a.read_status("CapBnd") or "1", 16) == 0, "set cap_drop: [ALL]"),
    "privileges": (
        lambda a: a.read_status("NoNewPrivs") == "1",
        "set security_opt: no-new-privileges=true",
    ),
    "seccomp": (
        lambda a: a.read_status("Seccomp") == _SECCOMP_FILTER,
        "no filter is in force; set security_opt: seccomp=deploy/docker/seccomp-grader.json",
    ),
    "root": (
        lambda a: "ro" in a.read_mount("/")[0],
        "its image can be written to; set read_only: true",
    ),
    "tmp": (_has_small_tmp, "/tmp is no tmpfs with a size; set tmpfs: /tmp:size=256m,mode=1777"),
    "memory": (
        lambda a: (
            (memory_limit := a.read_limit("memory.max", "memory/memory.limit_in_bytes")) is not None
            and memory_limit < NO_LIMIT_BYTES
        ),
        "there is no limit; set mem_limit",
    ),
    "processes": (
        lambda a: a.read_limit("pids.max", "pids/pids.max") is not None,
        "there is no limit; set pids_limit",
    ),
    "network": (
        lambda a: not a.has_default_route(),
        "there is a way out; set networks to internal ones only",
    ),
}
"""Name -> check, and the compose setting that brings the protection."""


def find_missing_protections(required: str, state: ContainerState | None = None) -> list[str]:
    """Return the missing protections of `required` (comma-separated names), each with the setting
    that brings it.

    Raises SandboxFault for an unknown name: a misspelt one would never be checked.
    """
    names = [name.strip() for name in required.split(",") if name.strip()]
    unknown = [name for name in names if name not in _PROTECTIONS]
    if unknown:
        raise SandboxFault(
            f"{VARIABLE} names {', '.join(unknown)}; there are: {', '.join(_PROTECTIONS)}",
            retryable=False,
        )
    state = state or ContainerState()
    missing = []
    for name in names:
        if not _PROTECTIONS[name][0](state):
            missing.append(f"{name}: {_PROTECTIONS[name][1]}")
    return missing


def require_container_hardening() -> None:
    """Raise SandboxFault that names each protection required by GRADUS_REQUIRE_HARDENING that the
    container lacks."""
    missing = find_missing_protections(os.environ.get(VARIABLE, ""))
    if missing:
        lines = "\n".join(f"  - {line}" for line in missing)
        raise SandboxFault(
            f"the container does not hold, so this worker refuses to serve:\n{lines}",
            retryable=False,
        )
