"""A way to end an attempt from outside: the boxes of a thread that runs under a pulled `CancelToken` are killed.

Kills nothing itself: boxes watch for it while they wait (`bubblewrap`, `standing`), and what ran in them becomes a
fault, never an outcome. Code that runs in no box is not stopped.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

STOPPED = "the attempt was stopped: nobody waits for it any more"


class CancelToken:
    """Pulled once, it stays so. One thread pulls and closes it, another runs under it."""

    def __init__(self) -> None:
        self.fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        """Readable once it is pulled."""
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True
        if self.fd >= 0:
            os.eventfd_write(self.fd, 1)

    def close(self) -> None:
        """Nothing runs under it any more."""
        fd, self.fd = self.fd, -1
        os.close(fd)


_CURRENT: ContextVar[CancelToken | None] = ContextVar("stop", default=None)


@contextmanager
def cancellable(stop: CancelToken | None) -> Iterator[None]:
    """What this thread runs in the block ends when `stop` is pulled."""
    token = _CURRENT.set(stop)
    try:
        yield
    finally:
        _CURRENT.reset(token)


def current_token() -> CancelToken | None:
    return _CURRENT.get()
