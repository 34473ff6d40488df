"""Files that hold keys, tokens and secrets."""

from __future__ import annotations

from pathlib import Path

from gradus.errors import Misuse


def read_secret_file(path: Path, label: str) -> str:
    """Return the text. Raises Misuse that names `label` and the file and repeats nothing of it."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise Misuse(f"{label} {path} cannot be read: {type(error).__name__}") from None
