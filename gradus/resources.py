"""Where files are: `configs/` of the checkout, the shared style sheet, and what was built on this
machine."""

from __future__ import annotations

import os
from pathlib import Path

from gradus.errors import Misuse


def configs() -> Path:
    """Return the folder of shipped configurations and tasks. Raises Misuse outside a checkout,
    which alone has them."""
    folder = Path(__file__).parents[1] / "configs"
    if not folder.is_dir():
        raise Misuse(
            f"there is no {folder}: the shipped configurations and tasks are in a checkout of"
            " Gradus only"
        )
    return folder


def get_cache_folder() -> Path:
    """Return the folder of what was built on this machine: $GRADUS_CACHE_DIR, else the user's cache
    folder."""
    chosen = os.environ.get("GRADUS_CACHE_DIR")
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gradus"
