"""Rows of tasks made from foreign rows, or why none could be made."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gradus.row_reader import Row

MAX_ID_CHARS = 200
KEPT = ("difficulty", "topics", "tags", "title", "notes", "licence", "license", "source", "kind")
"""Columns of foreign rows that say the same as ours of that name."""


class Unusable(Exception):
    """This record cannot become a task; the message says why."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A signature that was derived, and the answers that must pass with it."""

    signature: str
    variants: tuple[str, ...]
    """The reference answer; it again, with the types that the prompt or the tests give."""


def build_drafts(
    rows: Iterable[Row],
    get_id: Callable[[Mapping[str, Any]], str],
    make: Callable[[Mapping[str, Any]], dict[str, Any]],
) -> Iterator[Row]:
    """Yield the row of a task for each foreign row, in order, with the problem where none can be
    made of it. `get_id` and `make` raise Unusable."""
    for row in rows:
        named: dict[str, Any] = {}
        try:
            if row.problem is not None:
                raise Unusable(row.problem)
            named = {"id": get_id(row.values)}
            described = {
                column: row.values[column]
                for column in KEPT
                if row.values.get(column) not in (None, "", [], {})
            }
            task = {**named, **described, **make(row.values)}
            yield Row(row.where, task)
        except Unusable as problem:
            # whole, so that a person can repair it
            yield Row(row.where, {**row.values, **named}, str(problem))


def require_text(values: Mapping[str, Any], *names: str) -> str:
    """Return the first of these columns that holds text. Raises Unusable, naming them, when none
    does."""
    text = get_text(values, *names)
    if text is None:
        raise Unusable(f"{' or '.join(names)}: is missing or empty")
    return text


def get_text(values: Mapping[str, Any], *names: str) -> str | None:
    for name in names:
        value = values.get(name)
        if isinstance(value, str) and value.strip():
            return value
        if value is not None and not isinstance(value, str):
            raise Unusable(f"{name}: is {type(value).__name__}, not text")
    return None


def build_id(text: Any) -> str:
    """Return an id of what a source calls its record: letters, digits, `.`, `_`, `-`. Raises
    Unusable when nothing is left."""
    if not isinstance(text, str | int) or isinstance(text, bool):
        raise Unusable("id: is missing")
    identifier = re.sub(r"[^A-Za-z0-9._]+", "-", str(text)).strip("-.")[:MAX_ID_CHARS]
    if not identifier:
        raise Unusable("id: is missing or empty")
    return identifier


def parse_group(name: str) -> str | None:
    """Return the problem that a benchmark's name stands for in every language: `humaneval/0` of
    `HumanEval_0_f` and of `Rust/0`, `mbpp/3` of `mbpp_3_g`."""
    match = re.match(r"(?i)(humaneval|mbpp)_(\d+)_", name)
    numbered = re.fullmatch(r"\w+/(\d+)", name)
    if match:
        return f"{match[1].lower()}/{int(match[2])}"
    return f"humaneval/{int(numbered[1])}" if numbered else None
