"""Training rows that give away evaluation rows: the same names, texts or answers, or long n-grams
in common.

N-grams are looked up exactly, and not estimated as near duplicates are: thirteen words in a row are
found in a text of any length, and MinHash estimates how much of two whole texts is alike. An n-gram
that many problems of the evaluation share is the wording of their prompts and gives nothing away.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from corpus.problems import get_group, iter_traits, render_column, render_tests
from corpus.repair_prompt import extract_quotes
from corpus.similarity import build_ngrams, join_words, split_code, split_words
from gradus.row_reader import Row

PROMPT_WORDS, CODE_TOKENS = 13, 50
"""Lengths of shared n-grams; short ones of code are idioms of the language."""
WORDS = f"run of {PROMPT_WORDS} words"
TOKENS = f"run of {CODE_TOKENS} code tokens"
FEWEST_WORDS = 6
"""Words of a shorter text that still counts when it is found as a whole."""
COMMON = 5
"""An n-gram of so many problems of the evaluation does not count."""
_CODE = ("solution", "stub", "completion", "text")


class EvalIndex:
    """Index of the evaluation rows, by name, by content and by n-grams."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._rows: dict[tuple[str, str], dict[str, Row]] = defaultdict(dict)
        """Trait -> evaluation problem -> its first row with the trait."""
        for row in rows:
            problem = render_tests(row.values) or get_group(row.values)
            for trait in _iter_traits(row.values):
                self._rows[trait].setdefault(problem, row)

    def find_leaks(self, values: Mapping[str, Any]) -> list[str]:
        """Return every reason not to train on this row, one for each kind and evaluation row, with
        its place."""
        reasons: dict[tuple[str, str], str] = {}
        for kind, content in sorted(_iter_traits(values)):
            sharing = self._rows.get((kind, content), {})
            is_wording = kind in (WORDS, TOKENS) and len(sharing) >= COMMON
            if sharing and not is_wording:
                row = next(iter(sharing.values()))
                shown = "" if kind in ("prompt", "tests", "solution") else f": {content[:200]}"
                reasons.setdefault((kind, row.where), f"the same {kind}{shown}, at {row.where}")
        return list(reasons.values())


def _iter_traits(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield what a training row must not share with an evaluation row: kind and content."""
    for column, kind in (("id", "id or group"), ("group", "id or group"), ("title", "title")):
        name = join_words(render_column(values, column))
        if name:
            yield kind, name
    for kind, content in iter_traits(values):
        if kind != "group":
            yield kind, content
    prompts = extract_quotes(render_column(values, "prompt"), render_column(values, "message"))
    for part in (*prompts, render_column(values, "text")):
        tokens = split_words(part)
        if len(tokens) >= FEWEST_WORDS:
            for ngram in build_ngrams(tokens, PROMPT_WORDS):
                yield WORDS, ngram
    for column in ("", *_CODE):
        tokens = split_code(render_column(values, column) if column else render_tests(values))
        if len(tokens) >= CODE_TOKENS:
            for ngram in build_ngrams(tokens, CODE_TOKENS):
                yield TOKENS, ngram
