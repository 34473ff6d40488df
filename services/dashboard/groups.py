"""Where each group of completions lies in `completions.jsonl`, so that one can be shown without
reading the file again.

It keeps offsets and no texts. Counted of every completion, by step: outcomes, shares of tests
passed, parts of the reward, repeats; and over all steps: flags and faults.
"""

from __future__ import annotations

import math
import re
from collections import Counter, OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from services.dashboard.files import ConfinedDirectory, Json, Line, parsed
from services.dashboard.series import Binned, finite, step_in

MAX_GROUPS = 20_000
"""Older ones are forgotten; they stay in the file."""
MAX_SAMPLES = 128
"""Completions of one group that are shown."""
MAX_ID_CHARS = 200
BUCKETS = ("0%", "1-25%", "26-50%", "51-75%", "76-99%", "100%")
PASSED, FAULTED = "passed", "faulted"
FIRST, REPEATED, CACHED = "graded afresh", "repeated in its step", "from the cache"
MAX_NAMES = 200
"""Flags, graders and kinds of faults that are counted."""

Key = tuple[int, str, int]


@dataclass(slots=True)
class Group:
    """The completions of one prompt in one step."""

    number: int
    """Counted from the start of the file."""
    step: int
    prompt_id: str
    places: list[tuple[int, int]] = field(default_factory=list)
    """Where each line begins and ends."""
    graded: int = 0
    passed: int = 0
    reward_sum: float = 0.0
    least: float = math.inf
    most: float = -math.inf
    """Least and greatest reward."""

    @property
    def has_signal(self) -> bool:
        """Whether its rewards differ: only then is there something to learn from it."""
        return self.most > self.least


class Faults:
    """Faults by place, kind and message (of the first in full); digits and quoted names in messages
    do not count."""

    def __init__(self) -> None:
        self._sums: dict[tuple[str, str, str], Json] = {}

    def add(self, record: Json, where: str, step: int | None = None) -> None:
        """Count a record that has no verdict."""
        fault = record.get("fault") or record.get("error")
        fault = fault if isinstance(fault, Mapping) else {}
        message = str(fault.get("message") or "it has neither a reward nor a fault")[:2000]
        kind = str(fault.get("kind") or "unknown")[:100]
        key = where, kind, re.sub(r"'[^']*'|[0-9]+", "…", message)
        if key not in self._sums and len(self._sums) >= MAX_NAMES:
            return
        first = {"where": where, "kind": kind, "message": message, "count": 0, "first_step": step}
        sums = self._sums.setdefault(key, first)
        sums["count"] += 1
        sums["last_step"] = step

    def most_frequent(self, most: int = 40) -> list[Json]:
        return sorted(self._sums.values(), key=lambda sums: -sums["count"])[:most]


def bucket_of(tests: Any) -> str | None:
    """Which share of its tests a completion passed; None where that is not known."""
    if not isinstance(tests, Mapping):
        return None
    passed, total = finite(tests.get("passed")), finite(tests.get("total"))
    if passed is None or total is None or total <= 0 or not 0 <= passed <= total:
        return None
    if passed in (0, total):
        return BUCKETS[-1 if passed else 0]
    share = passed / total
    return next(
        name
        for name, most in zip(BUCKETS[1:5], (0.25, 0.5, 0.75, 1.0), strict=True)
        if share <= most
    )


def is_verdict(record: Json) -> bool:
    """It has a reward and no fault."""
    return record.get("fault") is None and finite(record.get("reward")) is not None


def numbers_in(given: Any, most: int = 24) -> dict[str, float]:
    """The finite numbers of what should be an object: components of a reward."""
    items = list(given.items())[:most] if isinstance(given, Mapping) else []
    return {
        str(name)[:60]: number for name, value in items if (number := finite(value)) is not None
    }


def texts_in(given: Any, most: int = 24) -> list[str]:
    """The items of what should be a list, as texts: flags."""
    return [str(one)[:100] for one in given[:most]] if isinstance(given, list) else []


def outcome_of(record: Json) -> str:
    """`passed`, the stage at which it stopped, or `faulted`."""
    if not is_verdict(record):
        return FAULTED
    return PASSED if record.get("passed") is True else f"stopped at {str(record.get('stage'))[:40]}"


class Groups:
    """The groups of one `completions.jsonl`, in the order in which they stand there."""

    def __init__(self, group_size: int | None = None) -> None:
        """`group_size`: how many completions of a prompt are one group, so that a prompt drawn
        twice is two."""
        self.group_size = group_size
        self.outcomes = Binned()
        self.buckets = Binned()
        self.components = Binned()
        """Sums over verdicts."""
        self.repeats = Binned()
        self.completions = 0
        self.faulted = 0
        self.passed = 0
        self.flags: Counter[str] = Counter()
        self.graders: Counter[str] = Counter()
        self.faults = Faults()
        self._written: set[int] = set()
        """Hashes of the prompts and completions of the step that is being written."""
        self._step: int | None = None
        self._by_number: OrderedDict[int, Group] = OrderedDict()
        self._open: dict[Key, Group] = {}
        """Those of the step that is being written."""
        self._next = 0

    def add(self, line: Line) -> None:
        """Take a line in; one without a step is passed over."""
        record = line.record
        step = step_in(record)
        if step is None:
            return
        self.completions += 1
        group = self._group_of(step, record)
        group.places.append((line.start, line.end))
        self.outcomes.add(step, {outcome_of(record): 1.0})
        if (bucket := bucket_of(record.get("tests"))) is not None:
            self.buckets.add(step, {bucket: 1.0})
        if not is_verdict(record):
            self.faulted += 1
            self.faults.add(record, "training", step)
            return
        reward, passed = finite(record.get("reward")) or 0.0, record.get("passed") is True
        group.graded += 1
        group.passed += passed
        group.reward_sum += reward
        group.least, group.most = min(group.least, reward), max(group.most, reward)
        self.passed += passed
        self.components.add(step, numbers_in(record.get("components")))
        named = (
            (self.flags, texts_in(record.get("flags"))),
            (self.graders, [str(record.get("grader"))]),
        )
        for counter, names in named:
            counter.update(
                name[:100] for name in names if name in counter or len(counter) < MAX_NAMES
            )
        if step != self._step:
            self._step, self._written = step, set()
        text = hash((str(record.get("prompt_id")), str(record.get("completion"))))
        how = (
            REPEATED if text in self._written else CACHED if record.get("cached") is True else FIRST
        )
        self._written.add(text)
        self.repeats.add(step, {how: 1.0})

    def _group_of(self, step: int, record: Json) -> Group:
        prompt_id = str(record.get("prompt_id"))[:MAX_ID_CHARS]
        sample = finite(record.get("sample")) or 0.0
        key = (step, prompt_id, int(sample // self.group_size) if self.group_size else 0)
        if key not in self._open:
            if any(other[0] != step for other in self._open):
                self._open.clear()
            self._open[key] = self._by_number[self._next] = Group(self._next, step, prompt_id)
            self._next += 1
            if len(self._by_number) > MAX_GROUPS:
                self._by_number.popitem(last=False)
        return self._open[key]

    @property
    def numbers(self) -> tuple[int, int] | None:
        """The first and the last group that can be shown."""
        return (next(iter(self._by_number)), self._next - 1) if self._by_number else None

    def get(self, number: int) -> Group | None:
        return self._by_number.get(number)

    def beside(self, number: int, by: int, *, with_signal: bool = False) -> int | None:
        """The nearest group before (`by` -1) or after (1) that number, if wanted the nearest with a
        signal."""
        while (group := self._by_number.get(number := number + by)) is not None:
            if group.has_signal or not with_signal:
                return number
        return None

    def at_step(self, step: int) -> Group | None:
        """The first group of that step, or of the first step after it."""
        return next((group for group in self._by_number.values() if group.step >= step), None)

    def of_prompt(self, prompt_id: str) -> list[Group]:
        """All groups of one prompt, oldest first."""
        return [group for group in self._by_number.values() if group.prompt_id == prompt_id]


def records_of(confined: ConfinedDirectory, path: Path, group: Group) -> list[Json]:
    """The lines of a group as they stand in the file now; lines that are no longer there are left
    out."""
    file = confined.open(path)
    if file is None:
        return []
    found = []
    with file:
        for start, end in group.places[:MAX_SAMPLES]:
            file.seek(start)
            record = parsed(file.read(end - start))
            if record is not None and step_in(record) == group.step:
                found.append(record)
    return found
