"""Files below one folder, out of which no link leads; JSONL files are followed by offset, as `tail
-f` does.

A file that was cut, replaced or deleted is read from its beginning. A last line that
is still being written waits for its end; lines that are no JSON objects are counted and left out.
"""

from __future__ import annotations

import json
import os
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

Json = dict[str, Any]
Identity = tuple[int, int, int]
"""Inode, size and date in nanoseconds."""

CHUNK_BYTES = 1 << 20
"""Read at a time: some 30 ms of parsing, which others who are served in this process wait for."""
MAX_LINE_BYTES = 16 << 20
"""A longer line is left out, in pieces of this size that are no JSON. The longest completion that
graders take has a million characters."""


class ConfinedDirectory:
    """The files below `root`, a folder that may be created later."""

    def __init__(self, root: Path) -> None:
        self.root = Path(os.path.abspath(root))

    def open(self, path: Path) -> BinaryIO | None:
        """Return the regular file at `path`; None where there is none and where a link leads
        out."""
        try:
            target = path.resolve(strict=True)
            # Without O_NONBLOCK opening a pipe without a writer would block.
            descriptor = os.open(target, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        except (OSError, RuntimeError, ValueError):
            return None
        status = os.fstat(descriptor)
        try:
            # Checked after opening: a folder on the way may have been exchanged for a link in
            # between.
            is_inside = target.resolve(strict=True).is_relative_to(
                self.root.resolve(strict=True)
            ) and os.path.samestat(os.lstat(target), status)
        except (OSError, RuntimeError):
            is_inside = False
        if not stat.S_ISREG(status.st_mode) or not is_inside:
            os.close(descriptor)
            return None
        return os.fdopen(descriptor, "rb")

    def read(self, path: Path, max_bytes: int) -> bytes | None:
        """Return the whole file; None where `open` has none, and for more than `max_bytes`
        bytes."""
        file = self.open(path)
        if file is None:
            return None
        with file:
            data = file.read(max_bytes + 1)
        return data if len(data) <= max_bytes else None

    def read_end(self, path: Path, max_bytes: int) -> bytes:
        """Return the last `max_bytes` bytes of the file; empty where `open` has none."""
        file = self.open(path)
        if file is None:
            return b""
        with file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - max_bytes))
            return file.read(max_bytes)


def read_identity(path: Path) -> Identity | None:
    """Return what changes when a file is written to or replaced; None where there is none."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


class Line(NamedTuple):
    start: int
    """Byte offset in the file."""
    end: int
    record: Json


@dataclass(frozen=True, slots=True)
class TailUpdate:
    """What one call of `JsonlTail.read_changes` found."""

    from_start: bool = False
    """What earlier looks brought is no longer in the file."""
    lines: list[Line] = field(default_factory=list)
    has_more: bool = False
    """There is more to read at once."""

    def __bool__(self) -> bool:
        return self.from_start or bool(self.lines)


class JsonlTail:
    """Follows one JSONL file."""

    def __init__(self, confined: ConfinedDirectory, path: Path) -> None:
        self.path = path
        self._confined = confined
        self._reset()

    def _reset(self) -> None:
        self.unreadable = 0
        self.changed_at = 0.0
        """When it was last written to, by its own date; 0 while it is not there."""
        self._offset = 0
        self._inode: int | None = None
        self._identity: Identity | None = None

    def read_changes(self) -> TailUpdate:
        """Return what is new since the last look, at most a chunk of it."""
        identity = read_identity(self.path)
        if identity == self._identity:
            return TailUpdate()
        file = None if identity is None else self._confined.open(self.path)
        if identity is None or file is None:
            was_there = self._inode is not None
            self._reset()
            return TailUpdate(from_start=was_there)
        inode, size, written_ns = identity
        is_another = self._inode not in (None, inode) or size < self._offset
        if is_another:
            self._reset()
        self._inode = inode
        self.changed_at = written_ns / 1e9
        before = self._offset
        lines = []
        with file:
            file.seek(before)
            while self._offset < before + CHUNK_BYTES:
                line = file.readline(MAX_LINE_BYTES)
                if not line.endswith(b"\n") and len(line) < MAX_LINE_BYTES:
                    break
                record = parse_object(line)
                if record is not None:
                    lines.append(Line(self._offset, self._offset + len(line), record))
                elif line.strip():
                    self.unreadable += 1
                self._offset += len(line)
        has_more = before < self._offset < size
        self._identity = None if has_more else identity
        return TailUpdate(is_another, lines, has_more)


def parse_object(text: bytes) -> Json | None:
    """Return the JSON object in `text`; None for anything else, however deep, long or broken."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
