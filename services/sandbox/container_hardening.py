"""The container around a worker, looked at from inside: what it was asked to be and is not is named, one by one.

Images of graders ask by GRADUS_CONFINED, so that a setting lost on the way to production stops the worker and not the
next hostile answer. A worker outside of containers is asked for nothing. Looks at settings only: that boxes hold is
`services.sandbox.escape_probe`'s.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from gradus.errors import SandboxFault

VARIABLE = "GRADUS_CONFINED"
NO_LIMIT_BYTES = 1 << 60
"""A memory limit from here on is how control groups of version 1 say that there is none."""
_DEFAULT_ROUTE = "00000000"
_SECCOMP_FILTER = "2"


class ContainerState:
    """What the kernel tells a process of its container; `root` is where /proc and /sys are found."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root

    def status(self, name: str) -> str:
        """The first word of a line of /proc/self/status, empty if there is no such line."""
        for line in self._text("proc/self/status").splitlines():
            field, _, value = line.partition(":")
            if field == name:
                return (value.split() or [""])[0]
        return ""

    def mount(self, point: str) -> tuple[list[str], str, list[str]]:
        """Options of the mount, type, and options of the file system that is mounted at `point` last."""
        found: tuple[list[str], str, list[str]] = ([], "", [])
        for line in self._text("proc/self/mountinfo").splitlines():
            place, _, system = line.partition(" - ")
            fields, of_system = place.split(), system.split()
            if len(fields) > 5 and len(of_system) > 2 and fields[4] == point:
                found = fields[5].split(","), of_system[0], of_system[2].split(",")
        return found

    def limit(self, *files: str) -> int | None:
        """The limit in the first of these files of the control group that is there; None if there is none."""
        for file in files:
            said = self._text(f"sys/fs/cgroup/{file}").strip()
            if said.isdecimal():
                return int(said)
        return None

    def has_default_route(self) -> bool:
        rows = [line.split() for line in self._text("proc/net/route").splitlines()[1:]]
        return any(len(row) > 1 and row[1] == _DEFAULT_ROUTE for row in rows)

    def _text(self, file: str) -> str:
        try:
            return (self._root / file).read_text()
        except OSError:
            return ""


def _has_no_capabilities(around: ContainerState) -> bool:
    """Neither now nor by any program that it may start."""
    bounding = around.status("CapBnd")
    return bounding != "" and int(bounding, 16) == 0


def _has_small_tmp(around: ContainerState) -> bool:
    _, kind, options = around.mount("/tmp")
    return kind == "tmpfs" and any(option.startswith("size=") for option in options)


def _has_memory_limit(around: ContainerState) -> bool:
    limit = around.limit("memory.max", "memory/memory.limit_in_bytes")
    return limit is not None and limit < NO_LIMIT_BYTES


_PROTECTIONS: Mapping[str, tuple[Callable[[ContainerState], bool], str]] = {
    "user": (lambda a: a.status("Uid") not in ("", "0"), "it runs as user 0; set user: 1000:1000"),
    "capabilities": (_has_no_capabilities, "set cap_drop: [ALL]"),
    "privileges": (lambda a: a.status("NoNewPrivs") == "1", "set security_opt: no-new-privileges=true"),
    "seccomp": (
        lambda a: a.status("Seccomp") == _SECCOMP_FILTER,
        "no filter is in force; set security_opt: seccomp=deploy/docker/seccomp-grader.json",
    ),
    "root": (lambda a: "ro" in a.mount("/")[0], "its image can be written to; set read_only: true"),
    "tmp": (_has_small_tmp, "/tmp is no tmpfs with a size; set tmpfs: /tmp:size=256m,mode=1777"),
    "memory": (_has_memory_limit, "there is no limit; set mem_limit"),
    "processes": (
        lambda a: a.limit("pids.max", "pids/pids.max") is not None,
        "there is no limit; set pids_limit",
    ),
    "network": (lambda a: not a.has_default_route(), "there is a way out; set networks to internal ones only"),
}
"""Name -> whether it stands, and what to do if not, in compose's words."""


def missing_protections(asked: str, around: ContainerState | None = None) -> list[str]:
    """What of `asked` (names with commas between) does not stand, each with what to set.

    Raises SandboxFault for a name that is none: a misspelt one would be a wall that nobody looks at.
    """
    names = [name.strip() for name in asked.split(",") if name.strip()]
    if unknown := [name for name in names if name not in _PROTECTIONS]:
        raise SandboxFault(
            f"{VARIABLE} names {', '.join(unknown)}; there are: {', '.join(_PROTECTIONS)}", retryable=False
        )
    around = around or ContainerState()
    return [f"{name}: {_PROTECTIONS[name][1]}" for name in names if not _PROTECTIONS[name][0](around)]


def require_container_hardening() -> None:
    """Raises SandboxFault, naming each setting that the container lacks of those that GRADUS_CONFINED asks for."""
    if missing := missing_protections(os.environ.get(VARIABLE, "")):
        lines = "\n".join(f"  - {line}" for line in missing)
        raise SandboxFault(f"the container does not hold, so this worker refuses to serve:\n{lines}", retryable=False)
