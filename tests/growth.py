"""Work that grows as its input does, told without a clock's absolute seconds."""

from __future__ import annotations

import time
from collections.abc import Callable

GROWTH = 8
"""How many times longer the long input is."""
MARGIN = 3
"""Linear work may cost this many times `GROWTH`: a machine that others use is uneven. A search of
the whole input for each of its pieces costs `GROWTH` times `GROWTH`."""
UNNOTICED_S = 0.05
"""CPU seconds in which growth cannot be told from the start of the work."""
TRIES = 3


def check_growth(work: Callable[[int], Callable[[], object]], size: int) -> None:
    """Assert that what `work` prepares for `size` costs about `GROWTH` times the CPU time of what
    it prepares for an eighth of it.

    The long input is tried again where it seems slow: others' work on the machine lengthens a try,
    and never shortens one.
    """
    short = work(size // GROWTH)
    usual = min(_measure(short) for _ in range(TRIES))
    bound = MARGIN * GROWTH * usual + UNNOTICED_S
    long = work(size)
    found = []
    for _ in range(TRIES):
        found.append(_measure(long))
        if found[-1] < bound:
            return
    raise AssertionError(f"{size // GROWTH} take {usual:.3f} s, {size} take {min(found):.3f} s")


def _measure(work: Callable[[], object]) -> float:
    """Return the CPU seconds of this thread that the work takes."""
    started = time.thread_time()
    work()
    return time.thread_time() - started
