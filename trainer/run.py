"""`Run`: what every part of one training run is handed. Does nothing itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gradus.client import RewardClient
from trainer.config import TrainConfig
from trainer.data import Tasks
from trainer.device import Device
from trainer.run_folder import RunFolder
from trainer.signals import StopWish


@dataclass(frozen=True, slots=True)
class Run:
    config: TrainConfig
    options: dict[str, Any]
    """What TRL's GRPOConfig is told: the config's options, with defaults and the device's needs beneath them."""
    tasks: Tasks
    device: Device
    folder: RunFolder
    client: RewardClient
    wish: StopWish
    say: Callable[[str], None]
    checkpoint: Path | None
    """Where to go on from."""
