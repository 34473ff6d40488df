"""Reads files below one folder only: neither `..` nor a symbolic link leads out of it."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO


class ConfinedDirectory:
    """The files below `root`, a folder that may be created later."""

    def __init__(self, root: Path) -> None:
        self.root = Path(os.path.abspath(root))

    def holds(self, path: Path) -> bool:
        """Whether what is at `path`, after all links, lies in the folder."""
        try:
            return path.resolve(strict=True).is_relative_to(self.root.resolve(strict=True))
        except (OSError, RuntimeError):
            return False

    def open(self, path: Path) -> BinaryIO | None:
        """The regular file at `path`; None where there is none and where a link leads out."""
        try:
            target = path.resolve(strict=True)
            # Without O_NONBLOCK opening a pipe without a writer would block.
            descriptor = os.open(target, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        except (OSError, RuntimeError, ValueError):
            return None
        status = os.fstat(descriptor)
        try:
            # Checked after opening: a folder on the way may have been exchanged for a link in between.
            is_inside = self.holds(target) and os.path.samestat(os.lstat(target), status)
        except OSError:
            is_inside = False
        if not stat.S_ISREG(status.st_mode) or not is_inside:
            os.close(descriptor)
            return None
        return os.fdopen(descriptor, "rb")

    def read(self, path: Path, most: int) -> bytes | None:
        """The whole file; None where `open` has none, and for more than `most` bytes."""
        file = self.open(path)
        if file is None:
            return None
        with file:
            data = file.read(most + 1)
        return data if len(data) <= most else None

    def read_end(self, path: Path, most: int) -> bytes:
        """The last `most` bytes of the file; empty where `open` has none."""
        file = self.open(path)
        if file is None:
            return b""
        with file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - most))
            return file.read(most)
