"""Splits rows into some to train on and some to measure on, so that variants of one problem are on
one side.

Which problems are measured on is drawn by their content and a seed: neither the order of rows nor
rows that are added change the draw of the others.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from corpus.duplicates import NGRAM_LENGTH
from corpus.problems import digest, text, traits
from corpus.similarity import ngrams, plain, similar_pairs, words
from gradus.errors import Misuse
from gradus.row_reader import Row


@dataclass(frozen=True, slots=True)
class Split:
    train: list[Row]
    measured: list[Row]
    problems: int
    """Sets of rows that cannot be parted."""


def split(
    rows: Sequence[Row], share: float, seed: int, column: str = "group", near: float = 0.8
) -> Split:
    """Training and evaluation rows, about `share` of them or fewer for evaluation. Both sides keep
    the order of rows.

    Rows are of one problem with the same `column`, prompt, tests or answer, or prompts of which
    `near` of the runs are common (1: none of that). Raises Misuse when one side would be empty.
    """
    problems = _problems(rows, column, near)
    contents = [
        "\0".join(f"{what} {content}" for what, content in traits(row.values)) for row in rows
    ]
    drawn = sorted(problems, key=lambda one: min(digest(f"{seed} {contents[at]}") for at in one))
    wanted = round(share * len(rows))
    chosen: set[int] = set()
    for one in drawn:
        if len(chosen) + len(one) <= wanted:
            chosen.update(one)
    if not chosen or len(chosen) == len(rows):
        sizes = sorted(map(len, problems))
        raise Misuse(
            f"a share of {share} of {len(rows)} rows, {wanted}, leaves one side empty: there are"
            f" {len(problems)} problems, of {sizes[0]} to {sizes[-1]} rows each, and their rows"
            " stay together"
        )
    train = [row for at, row in enumerate(rows) if at not in chosen]
    return Split(train, [rows[at] for at in sorted(chosen)], len(problems))


def _problems(rows: Sequence[Row], column: str, near: float) -> list[list[int]]:
    """Numbers of rows that belong together, each set in order."""
    parent = list(range(len(rows)))

    def root(at: int) -> int:
        while parent[at] != at:
            parent[at] = parent[parent[at]]
            at = parent[at]
        return at

    first: dict[tuple[str, str], int] = {}
    for at, row in enumerate(rows):
        for trait in traits(row.values, column):
            parent[root(at)] = root(first.setdefault(trait, at))
    if near < 1.0:
        prompts = [text(row.values, "prompt") for row in rows]
        heads = list({plain(prompts[at]): at for at in reversed(range(len(rows)))}.values())
        texts = [ngrams(words(prompts[at]), NGRAM_LENGTH) for at in heads]
        for earlier, later, _ in similar_pairs(texts, near):
            parent[root(heads[later])] = root(heads[earlier])
    found: dict[int, list[int]] = defaultdict(list)
    for at in range(len(rows)):
        found[root(at)].append(at)
    return list(found.values())
