"""A memory control group with a limit, for tests of what happens when memory runs out."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from services.sandbox.cgroup import MemoryGroup, find_memory_groups

ROOT = Path(__file__).parents[1]
_JOIN = 'echo 0 > "$0" && exec "$@"'
_NOBODY = ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "--inh-caps=-all")


class NoControlGroup(Exception):
    """No memory control group can be made here."""


class LimitedGroup:
    """A control group below our own, to run programs in."""

    def __init__(self, folder: Path, version: int) -> None:
        self.folder = folder
        self.group = MemoryGroup(folder, version)
        self.limit_file = folder / ("memory.limit_in_bytes" if version == 1 else "memory.max")

    def set_limit(self, limit_mb: int) -> None:
        self.limit_file.write_text(str(limit_mb << 20))

    def wrap(self, argv: Sequence[str]) -> list[str]:
        """Return the command that runs `argv` in the group."""
        return ["/bin/sh", "-c", _JOIN, f"{self.folder}/cgroup.procs", *argv]

    def start(self, argv: Sequence[str], *, privileged: bool = True) -> subprocess.Popen[str]:
        """Start a program in the group; its standard output is text to be read."""
        person: tuple[str, ...] = ()
        if not privileged:
            person = _NOBODY
            self.limit_file.chmod(0o666)
        return subprocess.Popen(
            self.wrap([*person, *argv]),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )

    def run_python(self, script: str, *argv: str, privileged: bool = True) -> str:
        """Return what `script` prints. The test fails if it fails."""
        interpreter = sys.executable if privileged else "/usr/bin/python3"
        program = [interpreter, "-c", script, str(self.limit_file), *argv]
        process = self.start(program, privileged=privileged)
        out, err = process.communicate(timeout=300)
        assert process.returncode == 0, err
        return out.strip()


@contextmanager
def open_limited_group(limit_mb: int) -> Iterator[LimitedGroup]:
    """Make a group with this limit, removed with the groups in it at the end. Raises
    NoControlGroup."""
    around = find_memory_groups()
    if not around:
        raise NoControlGroup("no memory control group can be read")
    folder = around[0].folder / f"test-{os.getpid()}-{time.monotonic_ns()}"
    try:
        folder.mkdir()
    except OSError as error:
        raise NoControlGroup(f"no control group can be made: {error}") from None
    try:
        made = LimitedGroup(folder, around[0].version)
        if not made.limit_file.exists():
            raise NoControlGroup("control groups that are made here have no memory controller")
        made.set_limit(limit_mb)
        yield made
    finally:
        for _ in range(100):
            for place in (*folder.glob("*/"), folder):
                with suppress(OSError):
                    place.rmdir()
            if not folder.exists():
                break
            time.sleep(0.02)


@contextmanager
def make_limited_group(limit_mb: int) -> Iterator[LimitedGroup]:
    """As `open_limited_group`, but skips the test where none can be made."""
    try:
        with open_limited_group(limit_mb) as group:
            yield group
    except NoControlGroup as reason:
        pytest.skip(str(reason))
