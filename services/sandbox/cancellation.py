"""Cancels attempts from another thread: the boxes of a thread under a cancelled token are killed.

Boxes watch the token while they wait (`bubblewrap`, `persistent_box`). A cancelled attempt is a fault, no outcome.
Code that runs in no box is not stopped.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

CANCELLED = "the attempt was stopped: no client waits for it any more"


class CancelToken:
    """Cancelled once and for all. One thread cancels and closes it, another runs under it."""

    def __init__(self) -> None:
        self.fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        """Readable once it is cancelled."""
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True
        if self.fd >= 0:
            os.eventfd_write(self.fd, 1)

    def close(self) -> None:
        """Call once nothing runs under it any more."""
        fd, self.fd = self.fd, -1
        os.close(fd)


_CURRENT: ContextVar[CancelToken | None] = ContextVar("token", default=None)


@contextmanager
def cancellable(token: CancelToken | None) -> Iterator[None]:
    """Boxes that this thread uses in the block are killed when `token` is cancelled."""
    before = _CURRENT.set(token)
    try:
        yield
    finally:
        _CURRENT.reset(before)


current_token = _CURRENT.get
"""The token that this thread runs under, or None."""
