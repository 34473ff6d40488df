"""The file of completions of one plan: appended to as they come, read again after a crash. Asks and grades nothing.

Each completion is a line when it was written, and another when it was judged; the last line of a key counts. `finish`
leaves one line for each, in the plan's order. Every append is on the disk when it returns.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from pydantic import ValidationError

from gradus.errors import Misuse
from gradus.validation import explain
from trainer.evaluate.asking import Key, Plan
from trainer.rewards import Record
from trainer.run_folder import finite


def key_of(record: Record) -> Key:
    return str(record["mode"]), str(record["prompt_id"]), int(record["sample"]), int(record.get("turn", 1))


class Completions:
    """The completions of a plan, in memory and on the disk alike."""

    def __init__(self, path: Path, handle: BinaryIO, records: dict[Key, Record]) -> None:
        self._path = path
        self._handle = handle
        self._records = records

    def get(self, key: Key) -> Record | None:
        return self._records.get(key)

    def append(self, records: Iterable[Record]) -> None:
        """Add records, or newer ones of the same keys."""
        found = list(records)
        self._handle.write(b"".join(_line(record) for record in found))
        self._handle.flush()
        os.fsync(self._handle.fileno())
        self._records |= {key_of(record): record for record in found}

    def finish(self, order: Iterable[Key]) -> list[Record]:
        """Leave one line for each key, in that order; returns the records."""
        found = [self._records[key] for key in order if key in self._records]
        write_lines(self._path, found)
        return found


@contextmanager
def opened(path: Path, plan: Plan, *, fresh: bool = False) -> Iterator[Completions]:
    """The file at `path`, with what earlier runs of the same plan left there; `fresh` sets that aside first.

    The plan stands beside it in `plan.json` of the folder, or `<name>.plan.json` where the file is not called
    `completions.jsonl`. Raises Misuse for another plan, a damaged file, and while another process writes there.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = plan_path(path)
    with _locked(path):
        if fresh:
            _set_aside(path, beside)
        _agree(beside, plan, path)
        records = _read(path)
        with path.open("ab") as handle:
            yield Completions(path, handle, records)


def plan_path(path: Path) -> Path:
    return path.with_name("plan.json" if path.name == "completions.jsonl" else path.name + ".plan.json")


def write_lines(path: Path, records: Iterable[Record]) -> None:
    """Write a whole file of JSON lines, at once or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    with partial.open("wb") as handle:
        for record in records:
            handle.write(_line(record))
        handle.flush()
        os.fsync(handle.fileno())
    os.replace(partial, path)


def _line(record: Record) -> bytes:
    text = json.dumps(finite(record), ensure_ascii=False, allow_nan=False) + "\n"
    return text.encode("utf-8", "backslashreplace")


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.with_name(f".{path.name}.lock").open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise Misuse(f"{path}: another process is writing here; choose another --out") from None
        yield


def _set_aside(*files: Path) -> None:
    there = [file for file in files if file.exists()]
    number = 1
    while any(file.with_name(f"{file.name}.previous-{number}").exists() for file in files):
        number += 1
    for file in there:
        file.rename(file.with_name(f"{file.name}.previous-{number}"))


def _agree(beside: Path, plan: Plan, path: Path) -> None:
    """See that the plan is the one that is written there, or write it down where nothing was asked yet."""
    if not path.exists() or not path.stat().st_size:
        beside.write_text(plan.model_dump_json(by_alias=True, indent=1) + "\n", encoding="utf-8")
        return
    if not beside.exists():
        raise Misuse(f"{path}: is there without {beside.name}; use --fresh, or another --out")
    try:
        earlier = Plan.model_validate_json(beside.read_bytes())
    except ValidationError as error:
        raise Misuse(f"{beside}: is no plan that this version can read ({explain(error)}); use --fresh") from None
    changed = "; ".join(earlier.differences(plan))
    if changed:
        raise Misuse(
            f"{path}: holds completions of another plan: {changed}. "
            "Ask as before to go on, or use --fresh, or another --out"
        )


def _read(path: Path) -> dict[Key, Record]:
    """The last record of each key. A line that a crash tore off at the end is cut away."""
    if not path.exists():
        return {}
    data = path.read_bytes()
    whole = data.rfind(b"\n") + 1
    if whole != len(data):
        os.truncate(path, whole)
    records: dict[Key, Record] = {}
    for number, line in enumerate(data[:whole].split(b"\n"), start=1):
        if line.strip():
            record = _parsed(line, f"{path}:{number}")
            records[key_of(record)] = record
    return records


def _parsed(line: bytes, where: str) -> Record:
    try:
        value: Any = json.loads(line)
        key_of(value)
        if value["status"] not in STATUSES or not isinstance(value["completion"], str):
            raise ValueError("no such status")
    except (ValueError, KeyError, TypeError, RecursionError):
        raise Misuse(f"{where}: is no completion of ours; use --fresh, or another --out") from None
    return dict(value)


STATUSES = frozenset({"written", "graded", "faulted", "generation_error"})
"""Of a completion: not judged yet, judged, not judged for a fault of ours, or never written."""
