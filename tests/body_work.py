"""Work for the process that reads large bodies, which imports it."""

from __future__ import annotations

import os
from pathlib import Path

from services.api.problems import Refused


def end_once(flag: Path) -> str:
    """End the process the first time."""
    if not flag.exists():
        flag.touch()
        os.abort()
    return "the second time"


def refuse() -> None:
    raise Refused(429, "later", [{"field": "a", "message": "b"}], retry_after_s=3, bound="bytes")


def write_line(file: Path, line: str) -> None:
    with file.open("a") as lines:
        lines.write(f"{line}\n")
