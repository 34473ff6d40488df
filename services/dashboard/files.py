"""Access to files below one folder, without links that lead out of it; JSONL files are followed by
offset, as `tail -f` does.

A file that was cut, replaced or deleted is read again from its start. A last line without its end
is read later; lines that are no JSON objects are counted and left out.
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
"""Inode, size in bytes and time of the last write in nanoseconds."""

# Bytes read at a time: some 30 ms of parsing, during which other requests of this process wait.
CHUNK_BYTES = 1 << 20
# A longer line is left out, because its pieces of this size are no JSON. The longest completion
# that graders accept has a million characters.
MAX_LINE_BYTES = 16 << 20


class ConfinedDirectory:
    """The files below `root`, a folder that may not exist yet."""

    def __init__(self, root: Path) -> None:
        self.root = Path(os.path.abspath(root))

    def open(self, path: Path) -> BinaryIO | None:
        """Return the regular file at `path`; None without one and for a link that leads out."""
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
        """Return the whole file; None where `open` returns None, and for more than `max_bytes`."""
        file = self.open(path)
        if file is None:
            return None
        with file:
            data = file.read(max_bytes + 1)
        return data if len(data) <= max_bytes else None

    def read_end(self, path: Path, max_bytes: int) -> bytes:
        """Return the last `max_bytes` bytes of the file; empty where `open` returns None."""
        file = self.open(path)
        if file is None:
            return b""
        with file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - max_bytes))
            return file.read(max_bytes)


def read_identity(path: Path) -> Identity | None:
    """Return the values that change when a file is written to or replaced; None without a file."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


class Line(NamedTuple):
    """A record of a file, and the byte offsets of its line."""

    start: int
    end: int
    record: Json


@dataclass(frozen=True, slots=True)
class TailUpdate:
    from_start: bool = False
    """The file was replaced: drop the lines of earlier calls."""
    lines: list[Line] = field(default_factory=list)
    has_more: bool = False

    def __bool__(self) -> bool:
        return self.from_start or bool(self.lines)


class JsonlTail:
    def __init__(self, confined: ConfinedDirectory, path: Path) -> None:
        self.path = path
        self._confined = confined
        self._reset()

    def _reset(self) -> None:
        self.unreadable = 0
        self.changed_at = 0.0  # Unix time of the last write; 0 without a file
        self._offset = 0
        self._inode: int | None = None
        self._identity: Identity | None = None

    def read_changes(self) -> TailUpdate:
        """Return the lines since the last call, at most a chunk of them."""
        identity = read_identity(self.path)
        if identity == self._identity:
            return TailUpdate()
        file = None if identity is None else self._confined.open(self.path)
        if identity is None or file is None:
            existed = self._inode is not None
            self._reset()
            return TailUpdate(from_start=existed)
        inode, size, written_ns = identity
        is_replaced = self._inode not in (None, inode) or size < self._offset
        if is_replaced:
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
        return TailUpdate(is_replaced, lines, has_more)


def parse_object(text: bytes) -> Json | None:
    """Return the JSON object in `text`; None for any other text."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
