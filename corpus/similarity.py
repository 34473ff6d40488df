"""Similarity of texts: plain words, n-grams, and pairs of texts that share most of theirs.

It is the exact share of common n-grams (Jaccard), not an estimate: pairs are found by looking only
for the rare ones among each text's runs, so nothing depends on chance or on the order of texts.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from math import ceil

_WORD = re.compile(r"\w+")
_TOKEN = re.compile(r"\w+|[^\w\s]")

Ngram = tuple[str, ...]


def words(text: str) -> list[str]:
    """The words of a text, without case and punctuation."""
    return _WORD.findall(unicodedata.normalize("NFKC", text).casefold())


def code_tokens(text: str) -> list[str]:
    """The words and signs of code; white space is nothing."""
    return _TOKEN.findall(unicodedata.normalize("NFKC", text))


def plain(text: str) -> str:
    """What two texts have in common that differ in case, punctuation and white space only."""
    return " ".join(words(text))


def ngrams(tokens: Sequence[str], length: int) -> frozenset[Ngram]:
    """Every n-gram of `length` tokens; of a shorter text the whole of it."""
    if len(tokens) <= length:
        return frozenset({tuple(tokens)}) if tokens else frozenset()
    return frozenset(tuple(tokens[at : at + length]) for at in range(len(tokens) - length + 1))


def similar_pairs(
    texts: Sequence[frozenset[Ngram]], threshold: float
) -> Iterator[tuple[int, int, float]]:
    """Every pair `(earlier, later, share)` with at least `threshold` of its n-grams in common, by
    the later one.

    Two sets that overlap so much must share one of the rarest runs of each: only such pairs are
    compared.
    """
    numbers = Counter(run for text in texts for run in text)
    known: dict[Ngram, list[int]] = defaultdict(list)
    for later, text in enumerate(texts):
        rare = sorted(text, key=lambda run: (numbers[run], run))[
            : len(text) - ceil(threshold * len(text)) + 1
        ]
        candidates = sorted({earlier for run in rare for earlier in known[run]})
        for earlier in candidates:
            share = _share(texts[earlier], text, threshold)
            if share >= threshold:
                yield earlier, later, share
        for run in rare:
            known[run].append(later)


def _share(one: frozenset[Ngram], other: frozenset[Ngram], threshold: float) -> float:
    if min(len(one), len(other)) < threshold * max(len(one), len(other)):
        return 0.0
    common = len(one & other)
    return common / (len(one) + len(other) - common)
