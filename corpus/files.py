"""Files of rows, read with a bound and written whole or not at all. Knows no columns.

A file that exists is replaced only when that was asked for; who reads while one is written sees the
old one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any

from gradus.errors import Misuse
from gradus.row_reader import Row, read_rows
from gradus.system_errors import require_writable_file
from gradus.whole_file import write_text

MAX_FILE_MB = 2048
"""A larger file of rows is refused: it is read as a whole."""


def load_rows(path: str | Path) -> list[Row]:
    """Return all rows of a file, those that cannot be read with their problem. Raises Misuse naming
    the file."""
    file = Path(path)
    if file.is_file() and file.stat().st_size > MAX_FILE_MB * 2**20:
        raise Misuse(f"{path}: is larger than {MAX_FILE_MB} MB; cut it into several files")
    rows = list(read_rows(path))
    if not rows:
        raise Misuse(f"{path}: holds no rows")
    return rows


def load_valid_rows(path: str | Path) -> list[Row]:
    """Return all rows. Raises Misuse with file and line of the first that cannot be read."""
    return [row.require_valid() for row in load_rows(path)]


def build_sibling_path(path: Path, suffix: str) -> Path:
    """Return `tasks.rejected.jsonl` for `tasks.jsonl` and `rejected`."""
    return path.with_name(f"{path.name.removesuffix('.jsonl')}.{suffix}.jsonl")


def refuse_existing(
    paths: Sequence[Path], *, force: bool, sources: Sequence[str | Path] = ()
) -> None:
    """Check that all of `paths` can be written: none is a source, none exists (but with `force`).
    Raises Misuse.

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
        require_writable_file(path)


def write_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> int:
    """Write JSONL, one row a line in the order given, and return how many. A file that exists is
    replaced at once. Half characters become their escapes, which JSON knows."""
    lines = [json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n" for row in rows]
    try:
        write_text(path, "".join(lines))
    except OSError as error:
        raise Misuse(f"{path}: cannot be written: {error.strerror}") from None
    return len(lines)


def write_task_rows(path: Path, rows: Iterable[Row]) -> int:
    return write_rows(path, map(attrgetter("values"), rows))
