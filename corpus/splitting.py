"""Splits of rows into training and evaluation, with all variants of a problem on one side.

Problems for evaluation are drawn by their content and a seed: neither the order of rows nor rows
that are added change the draw of the others.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from corpus.problems import compute_digest, iter_traits, render_column
from corpus.similarity import find_similar_pairs, join_words
from gradus.errors import Misuse
from gradus.row_reader import Row


def split(rows: Sequence[Row], share: float, seed: int) -> tuple[list[Row], list[Row], int]:
    """Return training rows, about `share` of the rows, or fewer, for evaluation, and the number of
    problems, whose rows stay together. Both sides are in the order of the rows.

    Rows are of one problem with the same group, prompt, tests or answer, or with similar prompts.
    Raises Misuse when one side would be empty.
    """
    problems = _group_rows(rows)
    contents = ["\0".join(map(" ".join, iter_traits(row.values))) for row in rows]
    drawn = sorted(
        problems,
        key=lambda problem: min(compute_digest(f"{seed} {contents[at]}") for at in problem),
    )
    target = round(share * len(rows))
    chosen: set[int] = set()
    for problem in drawn:
        if len(chosen) + len(problem) <= target:
            chosen.update(problem)
    if not chosen or len(chosen) == len(rows):
        sizes = sorted(map(len, problems))
        raise Misuse(
            f"a share of {share} of {len(rows)} rows, {target}, leaves one side empty: there are"
            f" {len(problems)} problems, of {sizes[0]} to {sizes[-1]} rows each, and their rows"
            " stay together"
        )
    train = [row for at, row in enumerate(rows) if at not in chosen]
    return train, [rows[at] for at in sorted(chosen)], len(problems)


def _group_rows(rows: Sequence[Row]) -> list[list[int]]:
    """Return the numbers of the rows of each problem."""
    links = list(zip(range(len(rows)), range(len(rows)), strict=True))
    prompts: dict[str, int] = {}
    first: dict[tuple[str, str], int] = {}
    for at, row in enumerate(rows):
        prompts.setdefault(join_words(render_column(row.values, "prompt")), at)
        links += [(first.setdefault(trait, at), at) for trait in iter_traits(row.values)]
    heads = list(prompts.values())
    for earlier, later, _ in find_similar_pairs(list(prompts)):
        links.append((heads[earlier], heads[later]))
    graph = coo_array((np.ones(len(links)), np.transpose(links)), (len(rows), len(rows)))
    groups: dict[int, list[int]] = defaultdict(list)
    for at, label in enumerate(connected_components(graph, directed=False)[1]):
        groups[label].append(at)
    return list(groups.values())
