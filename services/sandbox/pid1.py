"""PID 1 of a box, by its number outside: killing it kills everything in the box.

bubblewrap's --die-with-parent does not see to this when we are root: PID 1 has become another user
by then, and bubblewrap, which has dropped its rights, may not signal it. So the worker kills it, or
the next worker if that one was killed itself.
"""

from __future__ import annotations

import os
import re
import select
import signal
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path


def read_init_pid(status_fd: int) -> int | None:
    """Return the number that bubblewrap wrote to its --json-status-fd; None if it has not yet. Read
    it once."""
    if not select.select([status_fd], [], [], 0)[0]:
        return None
    match = re.search(rb'"child-pid": ?(\d+)', os.read(status_fd, 4096))
    return int(match[1]) if match else None


def kill_box(bwrap: int, init: int | None) -> None:
    """Kill a box of which `bwrap` is our child, not waited for yet, and `init` its PID 1 if that is
    known."""
    # with another parent it is gone, and another process has the number
    if init is not None and _read_status(init).get("PPid") == str(bwrap):
        _kill(init)
    _kill(bwrap)


def kill_orphans(first_uid: int) -> None:
    """Kill every box, of users from `first_uid` on, whose bubblewrap is gone."""
    for name in os.listdir("/proc"):
        if name.isdigit():
            status = _read_status(int(name))
            of_a_box = int(status.get("Uid", "0").split()[0]) >= first_uid and status[
                "NSpid"
            ].split()[1:] == ["1"]
            if of_a_box and _read_status(int(status["PPid"])).get("Name") != "bwrap":
                _kill(int(name))


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _read_status(pid: int) -> Mapping[str, str]:
    """/proc/<pid>/status; empty when there is no such process."""
    with suppress(OSError):
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        fields = (line.partition(":") for line in lines)
        return {name: value.strip() for name, _, value in fields}
    return {}
