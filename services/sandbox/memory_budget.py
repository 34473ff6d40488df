"""The memory of a worker's boxes: a box waits until its limit fits beside those of the others.

Decision 0025 says what counts and why. One process has one budget, whatever its graders.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Protocol, runtime_checkable
from weakref import WeakKeyDictionary

from gradus.errors import SandboxFault
from services.sandbox.cancellation import CANCELLED, current_token, is_cautious
from services.sandbox.cgroup import find_memory_groups, read_number

SHORT_OF_MEMORY = (
    "the kernel killed a process of the box for lack of memory outside of the box's own limit: this"
    " machine, or the control group around the worker, has too little memory"
)
OVERCOMMIT = 4
"""Limits that are admitted per MiB on a machine without a control group's limit, at first."""
_LOOK_S = 0.2
"""Seconds between two looks at a token, and at memory that is free."""
_PATIENCE_S = 10.0
"""Longest wait of a cautious attempt for memory that others, whom no budget counts, use."""
_OWN_MB = 64
"""What the worker itself may come to use after its start."""
_MB = 1 << 20


class MemoryShortage(SandboxFault):
    """A box was killed for lack of memory that was no limit of its own. The next attempt is
    cautious."""

    def __init__(self) -> None:
        super().__init__(SHORT_OF_MEMORY)


@dataclass(frozen=True, slots=True)
class BoxMemory:
    """What a grader's boxes need, in MiB."""

    standing_mb: int
    """What the idle persistent boxes of one slot hold, in all."""
    largest_mb: int
    """The largest limit of a box or of a persistent box's child, unless a task asks for more."""


@runtime_checkable
class UsesBoxes(Protocol):
    """A grader that runs boxes."""

    def get_box_memory(self) -> BoxMemory: ...


class MemoryBudget:
    """`total_mb` for the boxes of one process, which are admitted in the order in which they come:
    a large one is not overtaken until it fits.

    Limits are the worst case. Under a control group's limit they must fit. On a machine without
    one, `OVERCOMMIT` times as many are admitted, as boxes seldom use what they may: a box that the
    kernel then killed is tried again, cautiously, when its limit and all others fit.
    """

    def __init__(self, total_mb: int, *, overcommit: int = 1, root: Path = Path("/")) -> None:
        self._total_mb = total_mb
        self._overcommit = overcommit
        self._root = root
        self._standing: WeakKeyDictionary[object, int] = WeakKeyDictionary()
        """MiB that the persistent boxes of each grader hold."""
        self._changed = threading.Condition()
        """Guards what follows."""
        self._queue: deque[object] = deque()
        self._admitted_mb = 0
        self._cautious = 0
        """Cautious boxes among the admitted ones."""

    @classmethod
    def measure(cls, root: Path = Path("/")) -> MemoryBudget:
        """Return the budget of this process: what its control groups and the machine have free."""
        free_mb, is_limited = _measure_free(root)
        return cls(max(0, free_mb - _OWN_MB), overcommit=1 if is_limited else OVERCOMMIT, root=root)

    @property
    def size_mb(self) -> int:
        """MiB for boxes at work."""
        return self._total_mb - sum(self._standing.values())

    def count_slots(self, needs: BoxMemory) -> int:
        """Return the most slots whose persistent boxes leave room for a box at work."""
        room_mb = self.size_mb - needs.largest_mb // self._overcommit
        return room_mb // max(1, needs.standing_mb)

    def set_aside(self, grader: UsesBoxes, name: str, slots: int) -> str | None:
        """Set memory aside for the persistent boxes of a grader's slots. Return a warning if its
        boxes at work will not all fit at one time.

        Raises SandboxFault, with the numbers and how to mend it, if no box would fit beside them.
        """
        needs = grader.get_box_memory()
        self._standing.pop(grader, None)
        whole_mb = slots * (needs.standing_mb + needs.largest_mb)
        numbers = (
            f"{slots} slots of {name} need {needs.standing_mb} MB each for persistent boxes and"
            f" {needs.largest_mb} MB for each box at work, and {self.size_mb} MB are free for them"
        )
        advice = (
            f"{whole_mb} MB beside the worker itself are enough for all slots at once (mem_limit in"
            " Compose, resources.limits.memory in Kubernetes, MemoryMax in systemd)"
        )
        possible = self.count_slots(needs)
        if possible < slots:
            remedy = f"start it with --slots {possible} or fewer"
            if possible < 1:
                remedy = "lower the limits in configs/graders"
            message = f"too little memory: {numbers}; {remedy}, or give it more: {advice}"
            raise SandboxFault(message, retryable=False)
        self._standing[grader] = slots * needs.standing_mb
        at_once = self._overcommit * self.size_mb // needs.largest_mb
        if at_once < slots:
            return f"boxes will wait for memory, {at_once} fit at one time: {numbers}; {advice}"
        return None

    @contextmanager
    def reserve(self, memory_mb: int) -> Iterator[None]:
        """Wait until a box with this limit fits; hold its memory during the block.

        Raises SandboxFault if it never will, and when the attempt was cancelled.
        """
        if memory_mb > self._overcommit * self.size_mb:
            message = (
                f"a box of {memory_mb} MB can never run here: this worker has {self.size_mb} MB for"
                " boxes. Lower limits.memory_mb of the task, or give the worker more memory"
            )
            raise SandboxFault(message, retryable=False)
        cautious = is_cautious()
        with self._changed:
            self._wait_for_turn(memory_mb, cautious)
            self._admitted_mb += memory_mb
            self._cautious += cautious
        try:
            yield
        finally:
            with self._changed:
                self._admitted_mb -= memory_mb
                self._cautious -= cautious
                self._changed.notify_all()

    def _wait_for_turn(self, memory_mb: int, cautious: bool) -> None:
        ticket = object()
        token = current_token()
        give_up_at = time.monotonic() + _PATIENCE_S
        self._queue.append(ticket)
        try:
            while self._queue[0] is not ticket or not self._fits(memory_mb, cautious, give_up_at):
                self._changed.wait(_LOOK_S)
                if token and token.is_cancelled:
                    raise SandboxFault(CANCELLED)
        finally:
            self._queue.remove(ticket)
            self._changed.notify_all()

    def _fits(self, memory_mb: int, cautious: bool, give_up_at: float) -> bool:
        bound_mb = self.size_mb
        if cautious:
            memory_mb = min(memory_mb, bound_mb)  # alone, if it may use more than there is
        elif self._cautious == 0:
            bound_mb *= self._overcommit
        if self._admitted_mb + memory_mb > bound_mb:
            return False
        if not cautious or time.monotonic() >= give_up_at:
            return True
        return _measure_free(self._root)[0] >= memory_mb


@lru_cache(maxsize=1)
def get_memory_budget() -> MemoryBudget:
    """Return the budget of this process, measured at the first call."""
    return MemoryBudget.measure()


def _measure_free(root: Path) -> tuple[int, bool]:
    """Return the MiB that are free for this process, and whether a control group's limit, not the
    machine's size, bounds them."""
    free_kb = read_number(root / "proc/meminfo", "MemAvailable")
    if free_kb is None:  # a sandboxed runtime may hide it
        free_kb = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 10
    free_mb = free_kb >> 10
    is_limited = False
    for group in find_memory_groups(root):
        limit = group.read_limit()
        if limit is None:
            continue
        left_mb = max(0, limit - group.read_usage()) // _MB
        if left_mb < free_mb:
            free_mb = left_mb
            is_limited = True
    return free_mb, is_limited
