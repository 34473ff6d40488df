"""Numbers and hostile texts as a report shows them. Knows nothing about runs or pages."""

from __future__ import annotations

import math
from typing import Any

from gradus.console import visible as visible

NOTHING = "–"
"""Shown where there is no number."""
MAX_SHOWN_CHARS = 2000
MAX_SHOWN_LINES = 40


def percent(share: float | None) -> str:
    """`42.6%`. What is not quite all or nothing is not rounded to it."""
    if share is None or not math.isfinite(share):
        return NOTHING
    text = f"{100 * share:.1f}"
    if text == "100.0" and share < 1:
        return "> 99.9%"
    if text == "0.0" and share > 0:
        return "< 0.1%"
    return text + "%"


def whole_percent(share: float | None) -> str:
    """`40%`, as a scale needs it."""
    return f"{100 * share:g}%" if share is not None else NOTHING


def points(difference: float) -> str:
    """A difference of two shares in percentage points, signed."""
    return signed(100 * difference)


def signed(value: float, digits: int = 1) -> str:
    text = f"{value:+.{digits}f}".replace("-", "\N{MINUS SIGN}")
    return f"{0:.{digits}f}" if float(f"{value:.{digits}f}") == 0 else text


def number(value: float | None, digits: int = 3) -> str:
    """At most `digits` significant digits, without trailing zeros: `0.531`, `17`, `12,400`."""
    if value is None or not math.isfinite(value):
        return NOTHING
    if value == 0 or 1e-4 <= abs(value) < 1e7:
        places = max(0, digits - 1 - math.floor(math.log10(abs(value)))) if value else 0
        text = f"{value:,.{places}f}"
        text = text.rstrip("0").rstrip(".") if "." in text else text
    else:
        text = f"{value:.{digits - 1}e}"
    return text.replace("-", "\N{MINUS SIGN}") if text != "-0" else "0"


def duration(seconds: float | None) -> str:
    """`42 s`, `4 min 12 s`, `3 h 05 min`."""
    if seconds is None or not math.isfinite(seconds) or seconds < 0:
        return NOTHING
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02} s" if minutes else f"{rest} s"
    return f"{minutes // 60} h {minutes % 60:02} min"


def whole_seconds(seconds: float | None) -> str:
    """`0.5 s`, as a scale needs it."""
    return f"{seconds:g} s" if seconds is not None else NOTHING


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """`1 task`, `2 tasks`, `1,000 tasks`."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def finite(value: Any) -> float | None:
    """The value as a float if it is a finite number, else None."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or abs(value) > 1e300:
        return None
    return float(value) if math.isfinite(value) else None


# ------------------------------------------------------------------------------------------------------ hostile texts


def shortened(text: str, chars: int = MAX_SHOWN_CHARS, lines: int = MAX_SHOWN_LINES) -> tuple[str, int]:
    """The beginning that a page can hold, and how many characters were left out."""
    kept = text[:chars]
    kept = "\n".join(kept.split("\n")[:lines])
    return kept, len(text) - len(kept)
