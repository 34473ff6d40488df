"""Rows to train on that give away rows to measure on: the same names, texts or answers, or long
runs in common.

Runs of words of prompts and of signs of code are looked up, as is usual with 13 words. A run that
many problems of the evaluation share is the wording of their prompts and gives nothing away.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from corpus.problems import digest, group, judged_by, text, traits
from corpus.repair_prompt import quoted
from corpus.similarity import Ngram, code_tokens, ngrams, plain, words
from gradus.row_reader import Row

FEWEST = 6
"""Words or signs of a text that is shorter than a run, and still says something when it is
found."""
_CODE = ("solution", "stub", "completion", "text")


@dataclass(frozen=True, slots=True)
class NgramSizes:
    words: int = 13
    """Length of a shared run of words in prompts."""
    signs: int = 50
    """Length of a shared run of words in code and tests, where short runs are idioms of the
    language."""
    common: int = 5
    """A run that so many problems of the evaluation have says nothing."""


@dataclass(frozen=True, slots=True)
class Leak:
    of: Row
    """The row to measure on."""
    reason: str


class EvalIndex:
    """Index of the evaluation rows, by name, by content and by n-grams."""

    def __init__(self, rows: Sequence[Row], sizes: NgramSizes) -> None:
        self._sizes = sizes
        self._named: dict[tuple[str, str], Row] = {}
        self._ngrams: dict[tuple[str, Ngram], tuple[Row, set[str]]] = {}
        for row in rows:
            for trait in _names(row.values):
                self._named.setdefault(trait, row)
            judge = judged_by(row.values)
            problem = digest(judge) if judge else group(row.values)
            for run in self._all_ngrams(row.values):
                self._ngrams.setdefault(run, (row, set()))[1].add(problem)

    @property
    def ignored(self) -> int:
        """Runs that so many problems share that they say nothing."""
        return sum(len(problems) >= self._sizes.common for _, problems in self._ngrams.values())

    def leaks(self, values: Mapping[str, Any]) -> list[Leak]:
        """Every reason not to train on this row, one for each kind of reason and row to measure
        on."""
        found: dict[tuple[str, str], Leak] = {}
        for what, content in _names(values):
            if (row := self._named.get((what, content))) is not None:
                shown = f": {content}" if what in ("id or group", "title") else ""
                found.setdefault((what, row.where), Leak(row, f"the same {what}{shown}"))
        shared: dict[tuple[str, str], list[Ngram]] = defaultdict(list)
        rows: dict[str, Row] = {}
        for kind, run in self._all_ngrams(values):
            row, problems = self._ngrams.get((kind, run), (None, set()))
            if row is not None and len(problems) < self._sizes.common:
                shared[kind, row.where].append(run)
                rows[row.where] = row
        for (kind, where), some in shared.items():
            reason = f"{len(some)} runs of {kind} in common, such as: {' '.join(min(some))[:200]}"
            found[f"runs of {kind}", where] = Leak(rows[where], reason)
        return list(found.values())

    def _all_ngrams(self, values: Mapping[str, Any]) -> Iterator[tuple[str, Ngram]]:
        for part in (
            *quoted(text(values, "prompt"), text(values, "message")),
            text(values, "text"),
        ):
            found = ngrams(words(part), self._sizes.words)
            yield from (("words", run) for run in found if len(run) >= FEWEST)
        for code in (judged_by(values), *(text(values, column) for column in _CODE)):
            found = ngrams(code_tokens(code), self._sizes.signs)
            yield from (("signs", run) for run in found if len(run) >= self._sizes.signs)


def _names(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for column, what in (("id", "id or group"), ("group", "id or group"), ("title", "title")):
        if name := plain(text(values, column)):
            yield what, name
    yield from (trait for trait in traits(values) if trait[0] != "group")
