"""A wish to stop becomes the orderly end of a loop of TRL's. It neither listens for signals nor saves by itself."""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback

from trainer.ranks import any_rank
from trainer.signals import StopWish


class StopAtStepEnd(TrainerCallback):  # type: ignore[misc]
    """Turns a wish into TRL's orderly stop: log, save, leave the loop."""

    def __init__(self, wish: StopWish) -> None:
        self._wish = wish

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        # A launcher passes signals on one by one: processes must agree on the step, or some wait for ever for others.
        if any_rank(self._wish.signal_number is not None):
            control.should_log = control.should_save = control.should_training_stop = True
