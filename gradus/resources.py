"""Where the files that ship with Gradus are: `configs/` of a checkout, or its copy inside an installed package."""

from __future__ import annotations

import os
from pathlib import Path

from gradus.errors import Misuse


def configs() -> Path:
    """The folder of shipped configurations and tasks. Raises Misuse when neither place has one."""
    for folder in (Path(__file__).parent / "configs", Path(__file__).parent.parent / "configs"):
        if folder.is_dir():
            return folder
    raise Misuse("the shipped configs are missing: reinstall gradus, or run from a checkout")


def cache() -> Path:
    """Where things built on this machine are kept: $GRADUS_CACHE_DIR, else the user's cache folder."""
    if chosen := os.environ.get("GRADUS_CACHE_DIR"):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gradus"
