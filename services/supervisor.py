"""A supervisor of one worker process: starts it again at once when it dies, so that a fleet
survives poison.

The queue does the rest: a job whose worker died is claimed by another within seconds, and its last
permitted start happens alone (`services.broker.MAX_DELIVERIES`).
"""

from __future__ import annotations

import logging
import signal
import subprocess
import time
from collections.abc import Sequence
from types import FrameType

log = logging.getLogger("gradus.worker")

FINAL = (0, 2, 3)
"""Exit statuses after which a start is no use: the worker was stopped, or it refuses to serve as it
is configured."""
STEADY_S = 10.0
"""Seconds after which a worker that dies is started again at once; after earlier deaths in a row
the pause doubles."""
FIRST_PAUSE_S = 0.1
LAST_PAUSE_S = 10.0


def supervise(command: Sequence[str]) -> int:
    """Run `command` until it ends by itself or after SIGTERM or SIGINT, which it gets too. Returns
    its exit status."""
    stopping: list[int] = []
    process: subprocess.Popen[bytes] | None = None

    def stop(number: int, _: FrameType | None) -> None:
        stopping.append(number)
        if process is not None:
            process.send_signal(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    pause_s = 0.0
    while True:
        began = time.monotonic()
        process = subprocess.Popen(
            command, start_new_session=True
        )  # a terminal's SIGINT is passed on, once
        status = process.wait()
        if stopping or status in FINAL:
            return max(status, 0)
        pause_s = (
            0.0
            if time.monotonic() - began > STEADY_S
            else min(max(2 * pause_s, FIRST_PAUSE_S), LAST_PAUSE_S)
        )
        log.warning(
            "the worker died with status %d and is started again in %.1f s", status, pause_s
        )
        time.sleep(pause_s)
        if stopping:
            return 0
