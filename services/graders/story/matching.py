"""Which story answers which reference: worth similarities, an optimal one-to-one matching,
near-duplicates.

Works on vectors and numbers; knows no model and reads no text. Nothing depends on the order of
stories or references.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from scipy.sparse.csgraph import connected_components

Floats = NDArray[np.float64]
Vectors = NDArray[np.float32]

SAME_REFERENCE = 0.95
"""Cosine from which two references ask for the same."""
SAME_STORY = 0.65
"""Cosine from which two stories may say the same."""
EQUAL = 0.002
"""Cosines this close are equal: backends, precisions and the company in a pass move them by
less."""
EDGE = 0.02
"""Cosines over which two stories come to say the same."""
AT_KNEE = 0.75
ANSWERED = 0.5
"""Gated similarity from which a story answers its reference."""
TIE = 1e-6
"""Weight of cosines: where the gate is wide open, a story still belongs to what it is nearest
to."""


@dataclass(frozen=True, slots=True)
class Gate:
    low: float
    """Cosines up to here are worth nothing: what any two texts of one trade have in common."""
    knee: float
    """The cosine that is worth AT_KNEE: below it stands what few honest wants are, above it
    most."""
    high: float
    """Cosines from here on are worth everything: more would pay for copying words."""

    def __post_init__(self) -> None:
        if not -1 <= self.low < self.knee < self.high <= 1:
            raise ValueError(
                "`low` must be less than `knee`, and `knee` less than `high`, in [-1, 1]"
            )

    def __call__(self, values: NDArray[np.floating] | float) -> Floats:
        """In [0, 1], straight between the three."""
        worths: Floats = np.asarray(
            np.interp(values, (self.low, self.knee, self.high), (0.0, AT_KNEE, 1.0))
        )
        return worths


class Pair(NamedTuple):
    story: int
    reference: int
    worth: float


@dataclass(frozen=True, slots=True)
class Matching:
    pairs: tuple[Pair, ...]
    """Those with a worth similarity above 0, by story."""
    references: int
    """Different things that were asked for: of references that ask for the same, those that were
    answered, else one."""

    @property
    def total(self) -> float:
        return sum(pair.worth for pair in self.pairs)


def compute_similarities(stories: Vectors, references: Vectors) -> Floats:
    """(len(stories), len(references)) cosines of unit rows."""
    return stories.astype(np.float64) @ references.astype(np.float64).T


def match(worths: Floats, cosines: Floats, references: Vectors) -> Matching:
    """Return the one-to-one matching with the largest sum of `worths`, (stories, references); of
    equal ones that of the largest cosines. References: unit rows."""
    rows, columns = linear_sum_assignment(worths + TIE * cosines, maximize=True)
    chosen = zip(rows.tolist(), columns.tolist(), worths[rows, columns].tolist(), strict=True)
    pairs = tuple(
        [Pair(story, reference, worth) for story, reference, worth in chosen if worth > 0]
    )
    alike = compute_similarities(references, references)
    if np.count_nonzero(alike >= SAME_REFERENCE) == len(alike):  # nearly always: itself
        return Matching(pairs, len(alike))
    count, groups = connected_components(alike >= SAME_REFERENCE, directed=False)
    answered = np.bincount(groups[[pair.reference for pair in pairs]], minlength=count)
    return Matching(pairs, int(np.maximum(1, answered).sum()))


def compute_sameness(stories: Vectors, references: Vectors, pairs: Sequence[Pair]) -> Floats:
    """(stories, stories) in [0, 1]: how far two only say the same; 0 for a story and itself.

    Two say the same when they are nearer to one another than what they answer is, and than they are
    to that. A tie is decided for two that both answer something, which may want the same, and
    against a copy that answers nothing. There is no edge: a little nearer is a little more the
    same, so that rounding is not felt.
    """
    cosines = compute_similarities(stories, stories)
    sameness = np.zeros(cosines.shape)
    first, second = np.triu(cosines >= SAME_STORY - EQUAL - EDGE, 1).nonzero()
    if not len(first):
        return sameness
    limits, answered = _compute_limits(stories, references, pairs)
    between = np.full(len(first), SAME_STORY)
    both = (answered[first] >= 0) & (answered[second] >= 0)
    if both.any():
        between[both] = compute_similarities(references, references)[
            answered[first[both]], answered[second[both]]
        ]
    nearer = cosines[first, second] - np.maximum(np.maximum(limits[first], limits[second]), between)
    same = np.clip(np.where(both, nearer - EQUAL, nearer + EQUAL + EDGE) / EDGE, 0.0, 1.0)
    sameness[first, second] = same
    sameness[second, first] = same
    return sameness


def _compute_limits(
    stories: Vectors, references: Vectors, pairs: Sequence[Pair]
) -> tuple[Floats, NDArray[np.intp]]:
    """Cosine from which another story says the same, and index of the answered reference or -1, for
    each story."""
    limits = np.full(len(stories), SAME_STORY)
    answered = np.full(len(stories), -1, np.intp)
    for story, reference, _ in pairs:
        answered[story] = reference
        limits[story] = max(SAME_STORY, float(stories[story] @ references[reference]))
    return limits, answered
