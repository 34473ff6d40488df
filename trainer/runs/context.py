"""`RunContext`: what every part of one training run is handed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from trainer.config.device import Device
from trainer.config.run import RunConfig
from trainer.runs.folder import RunFolder
from trainer.runs.signals import StopWish

C = TypeVar("C", bound=RunConfig)
D = TypeVar("D")


@dataclass(frozen=True, slots=True)
class RunContext(Generic[C, D]):
    config: C
    options: dict[str, Any]
    """Options for TRL: the config's, with defaults and the device's needs beneath them."""
    data: D
    """What the run trains and measures on: rows, tokens or tasks."""
    device: Device
    folder: RunFolder
    wish: StopWish
    log: Callable[[str], None]
    checkpoint: Path | None
    """Where to resume from."""
