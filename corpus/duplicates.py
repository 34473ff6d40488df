"""Duplicates in a file of rows: the same prompt or tests, or a prompt that is nearly the same.
Keeps the first of each.

Rows of one `group` are variants that were made on purpose: only the same prompt makes one of them a
duplicate.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from corpus.problems import group, text, traits
from corpus.similarity import ngrams, similar_pairs, words
from gradus.row_reader import Row

NGRAM_LENGTH = 5
"""Words of a run that two prompts can have in common."""


@dataclass(frozen=True, slots=True)
class Duplicate:
    row: Row
    of: Row
    """The row that stays."""
    reason: str


def find_duplicates(rows: Sequence[Row], threshold: float) -> list[Duplicate]:
    """Every row that duplicates an earlier one, in order. `threshold`: share of common n-grams; 1:
    exact ones only."""
    found: dict[int, Duplicate] = {}
    seen: dict[tuple[str, str], int] = {}
    for at, row in enumerate(rows):
        own = [trait for trait in traits(row.values) if trait[0] in ("prompt", "tests")]
        for trait in own:
            first = seen.get(trait)
            if first is not None and (trait[0] == "prompt" or not _variants(row, rows[first])):
                found[at] = Duplicate(row, rows[first], f"the same {trait[0]}")
                break
        else:
            for trait in own:
                seen.setdefault(trait, at)
    if threshold < 1.0:
        _add_near(rows, threshold, found)
    return [found[at] for at in sorted(found)]


def _add_near(rows: Sequence[Row], threshold: float, found: dict[int, Duplicate]) -> None:
    left = [at for at in range(len(rows)) if at not in found]
    near: dict[int, list[tuple[int, float]]] = defaultdict(list)
    for earlier, later, share in similar_pairs([_ngrams(rows[at]) for at in left], threshold):
        near[left[later]].append((left[earlier], share))
    for at in left:
        for first, share in near[at]:
            if first not in found and not _variants(rows[at], rows[first]):
                found[at] = Duplicate(
                    rows[at],
                    rows[first],
                    f"{share:.0%} of the runs of {NGRAM_LENGTH} words of the prompt",
                )
                break


def _ngrams(row: Row) -> frozenset[tuple[str, ...]]:
    return ngrams(words(text(row.values, "prompt")), NGRAM_LENGTH)


def _variants(one: Row, other: Row) -> bool:
    return bool(group(one.values)) and group(one.values) == group(other.values)
