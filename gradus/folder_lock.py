"""The lock of a folder that one process writes: held by the writer, probed by readers such as the
dashboard."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from gradus.errors import Misuse

BOOT = Path("/proc/sys/kernel/random/boot_id")
ATTEMPTS = 5
PAUSE_S = 0.1


@contextmanager
def locked(path: Path, refusal: str) -> Iterator[None]:
    """Hold the lock in the file `path` inside the block; the kernel releases it however the process
    ends.

    Raises Misuse with `refusal` while another process holds it.
    """
    with path.open("ab") as handle:
        for _ in range(ATTEMPTS):  # a reader that probes holds it for a moment
            with suppress(OSError):
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            time.sleep(PAUSE_S)
        else:
            raise Misuse(refusal)
        handle.truncate(0)
        handle.write(_read_boot_id())
        handle.flush()
        yield


def is_abandoned(handle: BinaryIO) -> bool:
    """Return whether the process that held the lock in this file has ended.

    False if it is not known: locks of other machines, which may be invisible here, and those of
    before a restart.
    """
    boot = _read_boot_id()
    if not boot or handle.read(len(boot) + 1) != boot:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _read_boot_id() -> bytes:
    """Return the id of this start of this machine, alike in all its containers; empty where the
    system has none."""
    try:
        return BOOT.read_bytes().strip()
    except OSError:
        return b""
