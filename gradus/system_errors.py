"""The boundary between errors of the operating system and the command line: one line, what to do,
a documented exit status."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gradus.errors import InternalFault, Misuse

TRACEBACK_VARIABLE = "GRADUS_TRACEBACK"
"""Environment variable; any value shows the traceback of an error instead of one line."""
EXIT_BROKEN_PIPE = 141
"""128 + SIGPIPE, as shells report it for other programs."""

REMEDIES = {
    errno.ENOENT: "check the path",
    errno.EACCES: "choose a path that you may read and write, or change its permissions",
    errno.EPERM: "choose a path that you may read and write, or change its permissions",
    errno.EROFS: "choose a folder on a file system that can be written",
    errno.ENOTDIR: "a part of the path is a file; choose another path",
    errno.EISDIR: "give a file, not a folder",
    errno.EEXIST: "a file stands where a folder is needed; choose another path",
    errno.ENAMETOOLONG: "choose a shorter path",
    errno.ELOOP: "the path is a circle of symbolic links; choose another path",
    errno.EXDEV: "choose an output on the same file system",
    errno.EADDRINUSE: "choose another --port, or end the process that listens there",
}
"""What the caller can do, by errno: exit status 2."""

FAULT_REMEDIES = {
    errno.ENOSPC: "free space on the disk, then repeat the command",
    errno.EDQUOT: "free space in your quota, then repeat the command",
    errno.EFBIG: "raise the limit on file sizes (`ulimit -f`), then repeat the command",
    errno.EMFILE: "raise the limit on open files (`ulimit -n`), then repeat the command",
    errno.ENFILE: "this machine has too many open files: end other processes",
    errno.ENOMEM: "free memory, then repeat the command",
    errno.EIO: "check the disk, then repeat the command",
    errno.ECONNREFUSED: "check that the service runs and that its URL is right",
    errno.ETIMEDOUT: "check that the service runs and that its URL is right",
}
"""What has to change on the machine, by errno: exit status 3."""


@contextmanager
def convert_system_errors() -> Iterator[None]:
    """Convert an OSError of the block: to Misuse if another argument avoids it, else to a fault.

    A broken pipe of standard output ends the process with `EXIT_BROKEN_PIPE`, without a message.
    Output that was buffered is written first, so that a full disk is noticed.
    """
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except OSError as error:
        if os.environ.get(TRACEBACK_VARIABLE):
            raise
        if error.errno == errno.EPIPE:
            _discard_output()
            sys.exit(EXIT_BROKEN_PIPE)
        message = describe_system_error(error)
        if error.errno == errno.ENOSPC:
            _discard_output()
        if error.errno in REMEDIES:
            raise Misuse(message) from None
        raise InternalFault(message) from None


def describe_system_error(error: OSError) -> str:
    """Return one line: the path, if known, the problem, and what to do."""
    number = error.errno or 0
    problem = error.strerror or str(error) or type(error).__name__
    remedy = REMEDIES.get(number) or FAULT_REMEDIES.get(number)
    if remedy is None:
        remedy = f"set {TRACEBACK_VARIABLE}=1 to see where"
    path = f"{error.filename}: " if error.filename else ""
    return f"{path}{problem}: {remedy}"


def require_writable(path: Path) -> None:
    """Check, before work starts, that `path` can be written or created as a file or folder.

    Raises Misuse naming the part of the path that prevents it.
    """
    existing = path
    while not os.path.lexists(existing) and existing != existing.parent:
        existing = existing.parent
    if existing != path and not existing.is_dir():
        raise Misuse(f"{path}: {existing} is a file, not a folder; choose another path")
    mode = os.W_OK | os.X_OK if existing.is_dir() else os.W_OK
    if not os.access(existing, mode) or _is_read_only(existing):
        raise Misuse(
            f"{path}: {existing} cannot be written; choose another path, or change its permissions"
        )


def require_writable_file(path: Path) -> None:
    """Check, before work starts, that `path` can be written as a file. Raises Misuse."""
    if path.is_dir():
        raise Misuse(f"{path}: is a folder; give the name of a file")
    require_writable(path)


def _is_read_only(path: Path) -> bool:
    """Return whether the path is below /proc or /sys, where no file can be created."""
    return bool({"proc", "sys"} & set(path.resolve().parts[1:2]))


def _discard_output() -> None:
    """Point standard output to /dev/null, so that the interpreter's last flush cannot fail."""
    try:
        descriptor = sys.stdout.fileno()
    except (OSError, ValueError):  # a test's capture has none
        return
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, descriptor)
    os.close(nothing)
