"""Words: tokens, stems and the word lists beside this file. Knows no story and no model.

A list is a text file, one entry a line, `#` starts a comment; lists are read once, when first asked
for.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache
from pathlib import Path

_TOKEN = re.compile(r"[a-z0-9]+(?:'[a-z]+)?")
_SUFFIXES = (
    "ations",
    "ation",
    "ments",
    "ment",
    "ings",
    "ing",
    "ies",
    "ers",
    "ed",
    "es",
    "er",
    "ly",
    "s",
    "e",
    "y",
)
_SHORTEST_STEM = 3
LONGEST_KEPT, _LONGEST_KEPT_WORD = 500, 30
"""Longest text and word that are kept, in characters. With the numbers of entries below, that takes
at most 60 MB."""
_APART = "".join(mark if mark.isalnum() else " " for mark in map(chr, range(128)))
"""Table for `str.translate`: keeps ASCII letters and digits, and turns all else of ASCII into white
space."""


@cache
def word_list(name: str) -> frozenset[str]:
    """The entries of `<name>.txt`, lower case."""
    return frozenset(_entries(name))


def _entries(name: str) -> list[str]:
    lines = (Path(__file__).parent / f"{name}.txt").read_text().splitlines()
    entries = (line.partition("#")[0].strip().lower() for line in lines)
    return [entry for entry in entries if entry]


def tokens(text: str) -> tuple[str, ...]:
    """Words of `text` in order, lower case, without punctuation."""
    return _tokens(text) if len(text) <= LONGEST_KEPT else _tokens.__wrapped__(text)


@lru_cache(maxsize=2000)  # a clause is looked at by several checks
def _tokens(text: str) -> tuple[str, ...]:
    lower = text.lower()
    if lower.isascii() and "'" not in lower:  # nearly always, and five times as fast
        return tuple(lower.translate(_APART).split())
    return tuple(_TOKEN.findall(lower))


def content(text: str) -> tuple[str, ...]:
    """Stems of the words of `text` that carry meaning, in order: function words are left out."""
    return _content(text) if len(text) <= LONGEST_KEPT else _content.__wrapped__(text)


@lru_cache(maxsize=2000)
def _content(text: str) -> tuple[str, ...]:
    stop = word_list("stop_words")
    return tuple([stem(word) for word in tokens(text) if word not in stop])


def stem(word: str) -> str:
    """A crude stem, the same for the forms that one word usually takes: `uploads`, `uploaded` ->
    `upload`."""
    return _stem(word) if len(word) <= _LONGEST_KEPT_WORD else _stem.__wrapped__(word)


@lru_cache(maxsize=50_000)
def _stem(word: str) -> str:
    word = word.removesuffix("'s")
    for _ in range(2):  # `notifications`: the plural first
        if not word.endswith(_SUFFIXES):
            break
        for suffix in _SUFFIXES:
            if word.endswith(suffix) and len(word) - len(suffix) >= _SHORTEST_STEM:
                word = word[: -len(suffix)]
                break
    return word[:-1] if len(word) > _SHORTEST_STEM and word[-1] == word[-2] else word
