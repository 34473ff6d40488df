"""Mutations: one edit that breaks a text as people break it, and how some of many are chosen, for
any language."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Edit:
    kind: str
    """`operator`, `constant`, `case`, `condition`, `arguments`, `rec`, `constructor` ..."""
    start: int
    """Character offset in the source, of what is replaced; `end` is behind it."""
    end: int
    text: str
    """What stands there instead."""

    def apply(self, source: str) -> str:
        return source[: self.start] + self.text + source[self.end :]

    def get_line_number(self, source: str) -> int:
        """1-based."""
        return source.count("\n", 0, self.start) + 1


class Mutations(Protocol):
    """Edits that break the answers of one grader's tasks."""

    def find_edits(self, source: str, task: Mapping[str, Any] = {}) -> list[Edit]:
        """Return every edit of `source`, in no order that matters."""
        ...


def select_edits(source: str, edits: Iterable[Edit], number: int, seed: str) -> list[Edit]:
    """Return up to `number` edits, of as many kinds as there are, drawn by `seed`; no two leave the
    same text.

    The same edits and seed give the same choice, in whatever order the edits came.
    """
    draw = random.Random(seed)
    by_kind: dict[str, list[Edit]] = defaultdict(list)
    for edit in sorted(
        edits,
        key=lambda candidate: (candidate.kind, candidate.start, candidate.end, candidate.text),
    ):
        by_kind[edit.kind].append(edit)
    kinds = list(by_kind)
    draw.shuffle(kinds)
    for kind in kinds:
        draw.shuffle(by_kind[kind])
    turns = zip_longest(*(by_kind[kind] for kind in kinds))
    return _select_distinct(
        source, (edit for turn in turns for edit in turn if edit is not None), number
    )


def _select_distinct(source: str, edits: Iterable[Edit], number: int) -> list[Edit]:
    texts = {" ".join(source.split())}
    distinct: list[Edit] = []
    for edit in edits:
        if len(distinct) == number:
            break
        plain = " ".join(edit.apply(source).split())
        if plain and plain not in texts:
            texts.add(plain)
            distinct.append(edit)
    return distinct
