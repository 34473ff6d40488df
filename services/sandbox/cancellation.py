"""What holds for one attempt at grading, in its thread: the token that cancels it, and whether it
is brief.

Boxes watch the token while they wait (`bubblewrap`, `persistent_box`). A cancelled attempt is a
fault, no outcome. Code that runs in no box is not stopped.
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
        fd = self.fd
        self.fd = -1
        os.close(fd)


class NeedsTime(Exception):
    """A brief attempt came to no end. Another one, with all the time that the limits grant, should
    follow."""


_TOKEN: ContextVar[CancelToken | None] = ContextVar("token", default=None)
_IS_BRIEF: ContextVar[bool] = ContextVar("is_brief", default=False)
_IS_CAUTIOUS: ContextVar[bool] = ContextVar("is_cautious", default=False)
current_token = _TOKEN.get
is_brief = _IS_BRIEF.get
is_cautious = _IS_CAUTIOUS.get


@contextmanager
def enter_attempt(
    token: CancelToken | None, *, brief: bool, cautious: bool = False
) -> Iterator[None]:
    """`token` cancels what this thread does in the block; if it is `brief`, what takes long may
    raise NeedsTime. A `cautious` attempt waits until its boxes fit with all that they may use."""
    token_before = _TOKEN.set(token)
    brief_before = _IS_BRIEF.set(brief)
    cautious_before = _IS_CAUTIOUS.set(cautious)
    try:
        yield
    finally:
        _TOKEN.reset(token_before)
        _IS_BRIEF.reset(brief_before)
        _IS_CAUTIOUS.reset(cautious_before)
