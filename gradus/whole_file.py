"""Files that are written whole: a reader never sees half of one, and a crash leaves the earlier
one."""

from __future__ import annotations

import os
from pathlib import Path


def write_text(path: Path, text: str) -> None:
    """Write a file at once or not at all, and its folder if there is none.

    Half a surrogate pair, which a model can write and UTF-8 has no form for, becomes its escape.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    with partial.open("w", encoding="utf-8", errors="backslashreplace", newline="\n") as handle:
        handle.write(text)
        handle.flush()
        os.fsync(handle.fileno())
    os.replace(partial, path)
