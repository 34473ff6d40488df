"""Index of the groups of completions in `completions.jsonl`, by offset: it holds no texts.

Outcomes are counted by step; flags and faults over all steps.
"""

from __future__ import annotations

import math
import re
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from services.dashboard.files import ConfinedDirectory, Json, Line, parse_object
from services.dashboard.series import Binned, read_step, to_finite, to_list, to_mapping

MAX_GROUPS = 20_000  # newest groups that are indexed; older ones stay in the file
MAX_SAMPLES = 128  # completions of one group that are shown
MAX_ID_CHARS = 200
PASSED, FAULTED = "passed", "faulted"
MAX_NAMES = 200  # flags, graders and kinds of faults that are counted

Key = tuple[int, str, int]


@dataclass(slots=True)
class Group:
    """The completions of one prompt in one step."""

    number: int
    """Counted from the start of the file."""
    step: int
    prompt_id: str
    places: list[tuple[int, int]] = field(default_factory=list)
    """Offsets of each line's start and end, in bytes."""


class Faults:
    """Faults by place, kind and message (of the first in full); digits and quoted names in messages
    do not count."""

    def __init__(self) -> None:
        self._sums: dict[tuple[str, str, str], Json] = {}

    def add(self, record: Json, place: str, step: int | None = None) -> None:
        """Count a record that has no verdict."""
        fault = to_mapping(record.get("fault") or record.get("error"))
        message = str(fault.get("message") or "it has neither a reward nor a fault")[:2000]
        kind = str(fault.get("kind") or "unknown")[:100]
        key = place, kind, re.sub(r"'[^']*'|[0-9]+", "…", message)
        if key not in self._sums and len(self._sums) >= MAX_NAMES:
            return
        first = {"where": place, "kind": kind, "message": message, "count": 0, "first_step": step}
        sums = self._sums.setdefault(key, first)
        sums["count"] += 1
        sums["last_step"] = step

    def list_most_frequent(self, limit: int = 40) -> list[Json]:
        return sorted(self._sums.values(), key=lambda sums: -sums["count"])[:limit]


def is_verdict(record: Json) -> bool:
    return record.get("fault") is None and to_finite(record.get("reward")) is not None


def read_texts(value: Any, limit: int = 24) -> list[str]:
    """Return the items of what should be a list, such as flags, as texts."""
    return [str(item)[:100] for item in to_list(value)[:limit]]


def describe_outcome(record: Json) -> str:
    """Return `passed`, the stage at which it stopped, or `faulted`."""
    if not is_verdict(record):
        return FAULTED
    return PASSED if record.get("passed") is True else f"stopped at {str(record.get('stage'))[:40]}"


class Groups:
    """The groups of one `completions.jsonl`, in the order in which they stand there."""

    def __init__(self, group_size: int | None = None) -> None:
        """`group_size`: completions per group, so that a prompt drawn twice is two groups."""
        self.group_size = group_size
        self.clear()

    def clear(self) -> None:
        self.outcomes = Binned()
        self.completions = 0
        self.faulted = 0
        self.passed = 0
        self.flags: Counter[str] = Counter()
        self.graders: Counter[str] = Counter()
        self.faults = Faults()
        self._groups: deque[Group] = deque(maxlen=MAX_GROUPS)
        self._open: dict[Key, Group] = {}  # groups of the step that is being written
        self._next = 0

    def add(self, line: Line) -> None:
        """Add a line; skip one without a step."""
        record = line.record
        step = read_step(record)
        if step is None:
            return
        self.completions += 1
        self._ensure_group(step, record).places.append((line.start, line.end))
        self.outcomes.add(step, {describe_outcome(record): 1.0})
        if not is_verdict(record):
            self.faulted += 1
            self.faults.add(record, "training", step)
            return
        self.passed += record.get("passed") is True
        _count(self.flags, read_texts(record.get("flags")))
        if record.get("grader"):
            _count(self.graders, [str(record["grader"])[:100]])

    def _ensure_group(self, step: int, record: Json) -> Group:
        prompt_id = str(record.get("prompt_id"))[:MAX_ID_CHARS]
        sample = to_finite(record.get("sample")) or 0.0
        key = (step, prompt_id, int(sample // (self.group_size or math.inf)))
        if key not in self._open:
            if any(open_step != step for open_step, _, _ in self._open):
                self._open.clear()
            self._open[key] = Group(self._next, step, prompt_id)
            self._groups.append(self._open[key])
            self._next += 1
        return self._open[key]

    @property
    def numbers(self) -> tuple[int, int] | None:
        """The first and the last group that can be shown."""
        return (self._groups[0].number, self._next - 1) if self._groups else None

    def get(self, number: int) -> Group | None:
        index = number - (self._next - len(self._groups))
        if 0 <= index < len(self._groups):
            return self._groups[index]
        return None

    def get_newest(self) -> Group | None:
        return self.get(self._next - 1)

    def find_at_step(self, step: int) -> Group | None:
        """Return the first group of that step, or of the first step after it."""
        return next((group for group in self._groups if group.step >= step), None)


def _count(counts: Counter[str], names: Iterable[str]) -> None:
    for name in names:
        if name in counts or len(counts) < MAX_NAMES:
            counts[name] += 1


def read_records(confined: ConfinedDirectory, path: Path, group: Group) -> list[Json]:
    """Read the lines of a group from the file; leave out lines that are no longer there."""
    file = confined.open(path)
    if file is None:
        return []
    records = []
    with file:
        for start, end in group.places[:MAX_SAMPLES]:
            file.seek(start)
            record = parse_object(file.read(end - start))
            if record is not None and read_step(record) == group.step:
                records.append(record)
    return records
