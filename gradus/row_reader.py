"""Records of JSONL, JSON and CSV files, each with its place in the file.

A record that cannot be read is yielded with its problem, so that a caller may report them all or
stop at the first.
"""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gradus.errors import Misuse
from gradus.strict_json import parse_strict_json

SUFFIXES = (".jsonl", ".json", ".csv")


@dataclass(frozen=True, slots=True)
class Row:
    """One record and its place in the file."""

    where: str
    """`file:line`, or `file: record 3`."""
    values: Mapping[str, Any]
    problem: str | None = None
    """Why the record cannot be read; None if it can."""

    def require_valid(self) -> Row:
        """Return this row. Raises Misuse, naming the place, when it could not be read."""
        if self.problem is not None:
            raise Misuse(f"{self.where}: {self.problem}")
        return self

    def text(self, column: str) -> str:
        """Return the text in a column. Raises Misuse, naming the place, where there is none or only
        white space."""
        value = self.values.get(column)
        if value is not None and not isinstance(value, str):
            raise Misuse(f"{self.where}: {column}: is not a text")
        if not value or not value.strip():
            raise Misuse(f"{self.where}: {column}: is missing or empty")
        return value


def read_rows(path: str | Path) -> Iterator[Row]:
    """Return the records of a file; `-` is JSONL on standard input. Raises Misuse when the file
    itself cannot be read."""
    name = "<stdin>" if str(path) == "-" else str(path)
    try:
        data = sys.stdin.buffer.read() if name == "<stdin>" else Path(name).read_bytes()
        text = data.decode("utf-8-sig")
    except OSError as error:
        raise Misuse(f"{name}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise Misuse(f"{name}:{line}: is not UTF-8 text") from None
    suffix = ".jsonl" if name == "<stdin>" else Path(name).suffix
    if suffix not in SUFFIXES:
        raise Misuse(
            f"{name}: the file's name must end in {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}"
        )
    readers = {".jsonl": _read_jsonl, ".json": _read_json, ".csv": _read_csv}
    return readers[suffix](name, text)


def read_stored_rows(file: Path) -> Iterator[Row]:
    """Yield the rows of a file of JSON lines that a program wrote; one that a crash tore off at the
    end is left out.

    Raises Misuse naming the line of any other that cannot be read.
    """
    rows = list(read_rows(file))
    if rows and rows[-1].problem is not None and not file.read_bytes().endswith(b"\n"):
        rows.pop()
    for row in rows:
        yield row.require_valid()


def read_non_empty_rows(file: Path) -> Iterator[Row]:
    """Yield the rows of a file, checked. Raises Misuse for one that cannot be read, and where there
    is none."""
    row = None
    for row in read_rows(file):
        yield row.require_valid()
    if row is None:
        raise Misuse(f"{file}: holds no rows")


def _read_jsonl(name: str, text: str) -> Iterator[Row]:
    # Not splitlines(): it also splits at U+2028 and U+2029, which JSON allows inside texts.
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            place = f"{name}:{number}"
            try:
                row = _build_row(place, parse_strict_json(line))
            except ValueError as error:
                row = Row(place, {}, f"is not JSON: {error}; each line of JSONL is one object")
            yield row


def _read_json(name: str, text: str) -> Iterator[Row]:
    try:
        records = parse_strict_json(text, max_tokens=None)  # it may hold any number of records
    except ValueError as error:
        raise Misuse(f"{name}: is not JSON: {error}") from None
    if not isinstance(records, list):
        raise Misuse(f"{name}: holds no list of records")
    for number, record in enumerate(records, start=1):
        yield _build_row(f"{name}: record {number}", record)


def _build_row(place: str, value: Any) -> Row:
    if not isinstance(value, dict):
        return Row(place, {}, f"is {type(value).__name__}, not a record")
    return Row(place, value)


def _read_csv(name: str, text: str) -> Iterator[Row]:
    csv.field_size_limit(2**31 - 1)
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    try:
        columns = reader.fieldnames or []
    except csv.Error as error:
        raise Misuse(f"{name}:1: is not CSV: {error}") from None
    if len(set(columns)) != len(columns):
        raise Misuse(f"{name}:1: a column name occurs twice: {', '.join(columns)}")
    start = 2
    try:
        for values in reader:
            place = f"{name}:{start}"
            start = reader.line_num + 1
            if None in values or None in values.values():
                yield Row(place, {}, f"does not have {len(columns)} cells, as the first line has")
            else:
                yield Row(place, dict(values))
    except csv.Error as error:
        yield Row(f"{name}:{reader.line_num}", {}, f"is not CSV: {error}")
