"""SIGINT and SIGTERM as a wish to stop: the first one ends the run after the step in progress, the
second at once.

Loads nothing large, so that it listens before anything large is loaded. `trainer.runs.checkpoints`
ends TRL's loop.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, ClassVar

from gradus.console import log_line

EXIT_STATUS_BASE = 128
"""What shells add to a signal's number."""
DUPLICATE_S = 0.5
"""Seconds in which further signals count as the first one: when a pipeline is killed, Linux sends
its training the parent-death signal once for each of the pipeline's threads."""
_ENDS = (signal.SIGINT, signal.SIGTERM)
_HELD_BACK = tuple(
    number for number in signal.Signals if number in _ENDS or number.name == "SIGHUP"
)


class StopRequested(Exception):
    """The run ends early because of a signal. It is raised after everything that can be saved was
    saved."""

    def __init__(self, signal_number: int) -> None:
        self.exit_status = EXIT_STATUS_BASE + signal_number
        super().__init__(f"stopped by {signal.Signals(signal_number).name}")


class StopWish:
    """Remembers the first signal; `raise_if_made` is for places where stopping loses nothing."""

    NUMBERS: ClassVar[tuple[signal.Signals, ...]] = _ENDS
    SAYS: ClassVar[str] = (
        "stopping after this step, then saving a checkpoint; once more stops at once, without saving"  # noqa: E501
    )

    def __init__(self, log: Callable[[str], None] = log_line) -> None:
        self.signal_number: int | None = None
        self._signalled_at = 0.0
        self.log = log

    def raise_if_made(self) -> None:
        if self.signal_number is not None:
            raise StopRequested(self.signal_number)

    @contextmanager
    def handle_signals(self) -> Iterator[None]:
        """Take over the signals inside the block, in the main thread."""
        with install_handler(self._record_signal, self.NUMBERS):
            yield

    def _record_signal(self, number: int, frame: FrameType | None) -> None:
        if self.signal_number is None:
            self.signal_number = number
            self._signalled_at = time.monotonic()
            self.log(f"{signal.Signals(number).name}: {self.SAYS}")
        elif time.monotonic() - self._signalled_at >= DUPLICATE_S:
            self.stop_at_once()

    def stop_at_once(self) -> None:
        """The answer to a second signal."""
        raise KeyboardInterrupt


@contextmanager
def defer_signals() -> Iterator[None]:
    """Imports are safe in the block: a signal is delivered after it, to its earlier handler; a
    second one exits.

    An import may swallow what a signal's handler raises in it, or leave a module half made.
    """
    first: list[int] = []

    def record_signal(number: int, frame: FrameType | None) -> None:
        if first:
            os._exit(EXIT_STATUS_BASE + number)
        first.append(number)

    try:
        with install_handler(record_signal, _HELD_BACK):
            yield
    finally:
        for number in first:
            signal.raise_signal(number)


@contextmanager
def install_handler(
    handler: Callable[[int, FrameType | None], Any], numbers: tuple[signal.Signals, ...]
) -> Iterator[None]:
    """Take the signals over inside the block; outside the main thread, where Python forbids it, do
    nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)
