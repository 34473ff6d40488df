"""Which rows are about one problem: its variants have a group, tests, a prompt or an answer in
common."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

from corpus.similarity import code_tokens, plain

FEWEST_TOKENS = 20
"""Shortest answer that counts as a duplicate of another. Many tasks are solved by `let f x = x +
1`."""


def text(values: Mapping[str, Any], column: str) -> str:
    """A column as text; a list or mapping as JSON, anything missing as nothing."""
    value = values.get(column)
    if isinstance(value, list | dict):
        return json.dumps(value, sort_keys=True, ensure_ascii=False) if value else ""
    return "" if value is None else str(value)


def judged_by(values: Mapping[str, Any]) -> str:
    """What judges the row: tests, cases or references, flat or under `task`."""
    task = values.get("task")
    inner = task if isinstance(task, Mapping) else {}
    columns = ("tests", "cases", "references")
    found = [text(values, name) or text(inner, name) for name in columns]
    return "\n".join(filter(None, found))


def group(values: Mapping[str, Any], column: str = "group") -> str:
    """What the row is a variant of; without one it may have variants itself, and stands for its
    group."""
    return text(values, column).strip() or text(values, "id").strip()


def traits(values: Mapping[str, Any], column: str = "group") -> Iterator[tuple[str, str]]:
    """What rows about one problem have in common: what it is, and its content."""
    if named := group(values, column):
        yield "group", named
    if prompt := plain(text(values, "prompt")):
        yield "prompt", digest(prompt)
    if tests := " ".join(code_tokens(judged_by(values))):
        yield "tests", digest(tests)
    tokens = code_tokens(text(values, "solution") or text(values, "completion"))
    if len(tokens) >= FEWEST_TOKENS:
        yield "solution", digest(" ".join(tokens))


def digest(content: str) -> str:
    return hashlib.sha256(content.encode(errors="replace")).hexdigest()
