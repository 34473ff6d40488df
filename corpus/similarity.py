"""Similarity of texts: plain words, n-grams, and pairs of texts that share most of theirs.

MinHash LSH proposes pairs and the exact share of common n-grams (Jaccard) decides: no pair below
the threshold is reported, and a pair at the threshold is missed once in 20 million times.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence

from datasketch import MinHash, MinHashLSH

SIMILAR = 0.8
"""Share of common n-grams from which on two texts count as one."""
NGRAM_LENGTH = 5
"""Words of an n-gram of texts that are compared as a whole."""
BANDS, ROWS = 32, 4
"""Parts of a MinHash, and hashes of each. Two texts are compared if they agree on a whole part."""
_WORD = re.compile(r"\w+")
_TOKEN = re.compile(r"\w+|[^\w\s]")


def split_words(text: str) -> list[str]:
    """Return the words of a text, without case and punctuation."""
    return _WORD.findall(unicodedata.normalize("NFKC", text).casefold())


def split_code(text: str) -> list[str]:
    """Return the words and signs of code, without white space."""
    return _TOKEN.findall(unicodedata.normalize("NFKC", text))


def join_words(text: str) -> str:
    """Return what texts have in common that differ in case, punctuation and white space only."""
    return " ".join(split_words(text))


def build_ngrams(tokens: Sequence[str], length: int) -> frozenset[str]:
    """Return every n-gram of `length` tokens; of a shorter text the whole of it."""
    last = max(len(tokens) - length, 0)
    grams = frozenset(" ".join(tokens[at : at + length]) for at in range(last + 1))
    return grams if tokens else frozenset()


def find_similar_pairs(texts: Sequence[str]) -> Iterator[tuple[int, int, float]]:
    """Yield each pair `(earlier, later, share)` of similar texts, ordered by the later one."""
    index = MinHashLSH(num_perm=BANDS * ROWS, params=(BANDS, ROWS))
    gram_sets = [build_ngrams(split_words(text), NGRAM_LENGTH) for text in texts]
    for later, grams in enumerate(gram_sets):
        sketch = MinHash(BANDS * ROWS)
        sketch.update_batch([ngram.encode(errors="replace") for ngram in grams])
        for earlier in sorted(index.query(sketch)):
            share = len(gram_sets[earlier] & grams) / len(gram_sets[earlier] | grams)
            if share >= SIMILAR:
                yield earlier, later, share
        if grams:
            index.insert(later, sketch)
