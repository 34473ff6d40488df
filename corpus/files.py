"""Files of rows, read with a bound and written whole or not at all. Knows no columns.

A file that exists is replaced only when that was asked for; who reads while one is written sees the
old one.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gradus.errors import Misuse
from gradus.row_reader import Row, read_rows

MAX_FILE_MB = 2048
"""A larger file of rows is refused: it is read as a whole."""


def rows_of(path: str | Path) -> list[Row]:
    """All rows of a file, those that cannot be read with their problem. Raises Misuse naming the
    file."""
    if str(path) != "-":
        file = Path(path)
        if file.exists() and not file.is_file():
            raise Misuse(f"{path}: is no file")
        if file.exists() and file.stat().st_size > MAX_FILE_MB * 2**20:
            raise Misuse(f"{path}: is larger than {MAX_FILE_MB} MB; cut it into several files")
    rows = list(read_rows(path))
    if not rows:
        raise Misuse(f"{path}: holds no rows")
    return rows


def checked_rows(path: str | Path) -> list[Row]:
    """All rows as tasks. Raises Misuse with file and line of the first row that is not a task."""
    return [row.checked() for row in rows_of(path)]


def sibling_path(path: Path, what: str) -> Path:
    """`tasks.rejected.jsonl` for `tasks.jsonl` and `rejected`."""
    return path.with_name(f"{path.name.removesuffix('.jsonl')}.{what}.jsonl")


def refuse_existing(
    paths: Sequence[Path], *, force: bool, sources: Sequence[str | Path] = ()
) -> None:
    """Raises Misuse unless all of `paths` can be written: none is a source, none exists (but with
    `force`).

    To be called before hours of work and not after them.
    """
    read = {Path(source).resolve() for source in sources}
    for path in paths:
        if path.resolve() in read:
            raise Misuse(f"{path}: is also an input; choose another output file")
        if path.is_dir() or not path.parent.is_dir():
            raise Misuse(f"{path}: is a folder, or stands in one that does not exist")
        if path.exists() and not force:
            raise Misuse(f"{path}: exists; choose another file, or --force to replace it")


def _line(row: Mapping[str, Any]) -> str:
    """One line of JSON. Half characters, which JSON can name and UTF-8 cannot hold, stay named."""
    line = json.dumps(row, ensure_ascii=False, allow_nan=False)
    halved = not line.isascii() and any("\ud800" <= character <= "\udfff" for character in line)
    return json.dumps(row, allow_nan=False) if halved else line


def write_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> int:
    """Write JSONL, one row a line in the order given, and return how many. The file is there when
    it is whole."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    count = 0
    try:
        with partial.open("x", encoding="utf-8") as file:
            for row in rows:
                file.write(_line(row) + "\n")
                count += 1
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError as error:
        raise Misuse(f"{path}: cannot be written: {error.strerror}") from None
    finally:
        partial.unlink(missing_ok=True)
    return count
