"""SIGINT and SIGTERM as a wish to stop: the first one ends the run after the step in progress, the second at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from transformers import TrainerCallback

from trainer.ranks import any_rank

EXIT_STATUS_BASE = 128
"""What shells add to a signal's number."""


class StopRequested(Exception):
    """The run ends early because of a signal; whoever raises it has saved what there is to save."""

    def __init__(self, signal_number: int) -> None:
        self.exit_status = EXIT_STATUS_BASE + signal_number
        super().__init__(f"stopped by {signal.Signals(signal_number).name}")


class StopWish:
    """Remembers the first signal; `raise_if_made` is for places where stopping loses nothing."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.signal_number: int | None = None
        self._say = say

    def raise_if_made(self) -> None:
        if self.signal_number is not None:
            raise StopRequested(self.signal_number)

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Take over both signals inside the block; outside the main thread, where Python forbids it, do nothing."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self._note) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.signal_number is not None:
            raise KeyboardInterrupt
        self.signal_number = number
        name = signal.Signals(number).name
        self._say(
            f"{name}: stopping after this step, then saving a checkpoint; once more stops at once, without saving"
        )


class StopAtStepEnd(TrainerCallback):  # type: ignore[misc]
    """Turns a wish into TRL's orderly stop: log, save, leave the loop."""

    def __init__(self, wish: StopWish) -> None:
        self._wish = wish

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        # A launcher passes signals on one by one: processes must agree on the step, or some wait for ever for others.
        if any_rank(self._wish.signal_number is not None):
            control.should_log = control.should_save = control.should_training_stop = True
