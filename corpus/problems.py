"""Which rows are about one problem: its variants have a group, tests, a prompt or an answer in
common."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

from corpus.similarity import join_words, split_code

FEWEST_TOKENS = 20
"""Shortest answer that counts as a duplicate of another. Many tasks are solved by `let f x = x +
1`."""


def render_column(values: Mapping[str, Any], column: str) -> str:
    """Return a column as text; a list or mapping as JSON, anything missing as nothing."""
    value = values.get(column)
    if value in (None, [], {}):
        return ""
    if isinstance(value, list | dict):
        return json.dumps(value, sort_keys=True, ensure_ascii=False)
    return str(value)


def render_tests(values: Mapping[str, Any]) -> str:
    """Return what judges the row: tests, cases or references, flat or under `task`."""
    task = values.get("task")
    inner = task if isinstance(task, Mapping) else {}
    columns = ("tests", "cases", "references")
    texts = [render_column(values, name) or render_column(inner, name) for name in columns]
    return "\n".join(filter(None, texts))


def get_group(values: Mapping[str, Any], column: str = "group") -> str:
    """Return what the row is a variant of; without one it may have variants itself, and stands for
    its group."""
    return render_column(values, column).strip() or render_column(values, "id").strip()


def iter_traits(values: Mapping[str, Any], column: str = "group") -> Iterator[tuple[str, str]]:
    """Yield what rows about one problem have in common: what it is, and its content."""
    named = get_group(values, column)
    if named:
        yield "group", named
    prompt = join_words(render_column(values, "prompt"))
    if prompt:
        yield "prompt", compute_digest(prompt)
    if tests := " ".join(split_code(render_tests(values))):
        yield "tests", compute_digest(tests)
    tokens = split_code(render_column(values, "solution") or render_column(values, "completion"))
    if len(tokens) >= FEWEST_TOKENS:
        yield "solution", compute_digest(" ".join(tokens))


def compute_digest(content: str) -> str:
    return hashlib.sha256(content.encode(errors="replace")).hexdigest()
