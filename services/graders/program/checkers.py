"""Comparisons of an output with the expected one, and of a returned value. Nothing here runs what a
model wrote."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

_INTEGER = re.compile(r"[+-]?\d{1,4000}")
# Possessive: what is printed may be a million digits and no number.
_NUMBER = re.compile(r"[+-]?(?:\d++\.?\d*+|\.\d++)(?:[eE][+-]?\d++)?")


def is_close(got: float, expected: float, tolerance: float) -> bool:
    try:
        return abs(got - expected) <= tolerance * max(1.0, abs(expected))
    except OverflowError:  # an integer that no float holds
        return got == expected


def have_same_tokens(got: str, expected: str, tolerance: float) -> bool:
    return got.split() == expected.split()


def are_identical(got: str, expected: str, tolerance: float) -> bool:
    return got.removesuffix("\n") == expected.removesuffix("\n")


def have_same_lines(got: str, expected: str, tolerance: float) -> bool:
    return _sort_lines(got) == _sort_lines(expected)


def have_close_numbers(got: str, expected: str, tolerance: float) -> bool:
    got_tokens = got.split()
    expected_tokens = expected.split()
    if len(got_tokens) != len(expected_tokens):
        return False
    return all(map(lambda a, b: _is_close_token(a, b, tolerance), got_tokens, expected_tokens))


CHECKERS: Mapping[str, Callable[[str, str, float], bool]] = {
    "tokens": have_same_tokens,
    "exact": are_identical,
    "lines": have_same_lines,
    "floats": have_close_numbers,
}


def read_value(report: bytes) -> tuple[bool, Any]:
    """Return whether a call reported a JSON value, and that value."""
    try:
        return True, json.loads(report)
    except (ValueError, RecursionError):
        return False, None


def is_equal_json(got: Any, expected: Any, tolerance: float) -> bool:
    """Return whether two JSON values are equal: `true` is not 1, and numbers are equal within
    `tolerance` where one of them has a fraction."""
    pending = [(got, expected)]
    while pending:
        value, other = pending.pop()
        if isinstance(value, bool) or isinstance(other, bool):
            is_same = value is other
        elif isinstance(value, float) or isinstance(other, float):
            is_number = isinstance(value, int | float) and isinstance(other, int | float)
            is_same = is_number and is_close(value, other, tolerance)
        elif isinstance(value, list) and isinstance(other, list):
            is_same = len(value) == len(other)
            pending += zip(value, other, strict=False)
        elif isinstance(value, dict) and isinstance(other, dict):
            is_same = value.keys() == other.keys()
            pending += [(value[key], other[key]) for key in value.keys() & other.keys()]
        else:
            is_same = type(value) is type(other) and value == other
        if not is_same:
            return False
    return True


def _is_close_token(got: str, expected: str, tolerance: float) -> bool:
    if got == expected:
        return True
    if _INTEGER.fullmatch(got) and _INTEGER.fullmatch(expected):
        return int(got) == int(expected)  # counts and indices are right or wrong
    is_number = _NUMBER.fullmatch(got) and _NUMBER.fullmatch(expected)
    return bool(is_number) and is_close(float(got), float(expected), tolerance)


def _sort_lines(text: str) -> list[str]:
    return sorted(line.rstrip() for line in text.rstrip().split("\n"))
