"""Words: tokens, stems and the word lists beside this file. Knows no story and no model.

A list is a text file of words, `#` starts a comment; lists are read once, when first asked for.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache
from pathlib import Path

_TOKEN = re.compile(r"[a-z0-9]+(?:'[a-z]+)?")
_SUFFIX = re.compile(r"(?<=...)(?:ations?|ments?|ings?|ies|ers|ed|es|er|ly|s|e|y)$")
"""Endings that leave three letters at least."""
_LONGEST_KEPT = 30
"""Longest word whose stem is kept, in characters."""


@cache
def load_word_list(name: str) -> frozenset[str]:
    """Return the entries of `<name>.txt`, lower case."""
    text = (Path(__file__).parent / f"{name}.txt").read_text()
    return frozenset(re.sub("#.*", "", text).lower().split())


def extract_words(text: str) -> tuple[str, ...]:
    """Return words of `text` in order, lower case, without punctuation."""
    return tuple(_TOKEN.findall(text.lower()))


def extract_stems(text: str) -> tuple[str, ...]:
    """Stems of the words of `text` that carry meaning, in order: function words are left out."""
    stop = load_word_list("stop_words")
    return tuple([stem(word) for word in extract_words(text) if word not in stop])


def stem(word: str) -> str:
    """Return a crude stem, the same for the forms that one word usually takes: `uploads`,
    `uploaded` -> `upload`."""
    return _stem(word) if len(word) <= _LONGEST_KEPT else _stem.__wrapped__(word)


@lru_cache(maxsize=50_000)
def _stem(word: str) -> str:
    word = word.removesuffix("'s")
    word = _SUFFIX.sub("", _SUFFIX.sub("", word))  # `notifications`: the plural first
    return word[:-1] if len(word) > 3 and word[-1] == word[-2] else word
