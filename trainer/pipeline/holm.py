"""Several tests at once: p-values after Holm's correction (1979). Pure, and knows nothing of what was tested."""

from __future__ import annotations

from collections.abc import Sequence


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted p-values in the same order: a test counts at a level when its own is not above that level.

    The chance that any of them counts wrongly is at most the level, however the tests depend on each other.
    Raises ValueError for what is not within 0 to 1.
    """
    if bad := [p for p in p_values if not 0 <= p <= 1]:
        raise ValueError(f"{bad[0]} is no p-value")
    order = sorted(range(len(p_values)), key=lambda place: p_values[place])
    adjusted = [0.0] * len(p_values)
    largest = 0.0
    for rank, place in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[place]))
        adjusted[place] = largest
    return adjusted
