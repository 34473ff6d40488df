"""Does a story mean what its similarity promises? Fluency, focus, coherence, role; each a number in
[0, 1].

A sentence vector hardly tells a want from the same words shuffled or padded: these checks do.
Contradictions are the pair model's (`pairs.py`). Most read words only; the probes are linear
functions of what the model gave for the same text anyway. Knows no model.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from services.graders.story.lexicon import content, stem, tokens, word_list

Vectors = NDArray[np.float32]


def is_hedged(want: str, known: Collection[str]) -> bool:
    """Leaves open whether something is wanted, in a word that the task does not have."""
    return any(stem(word) not in known for word in word_list("hedges").intersection(tokens(want)))


def ramps(values: NDArray[np.float64], low: float, high: float) -> NDArray[np.float64]:
    """For each value 0 up to `low`, 1 from `high` on, straight between."""
    return np.clip((values - low) / (high - low), 0.0, 1.0)


@dataclass(frozen=True, slots=True)
class Probe:
    """A logistic regression on one of the model's vectors, made by `training.py`."""

    weights: NDArray[np.float64]
    bias: float
    low: float
    """Score that is worth 0."""
    high: float
    """Score from which nothing is charged."""

    def __call__(self, vectors: Vectors) -> NDArray[np.float64]:
        """(n,) in [0, 1] of (n, width)."""
        scores = vectors.astype(np.float64) @ self.weights + self.bias
        return ramps(scores, self.low, self.high)


@cache
def probe(name: str) -> Probe:
    """The probe in `<name>.json` beside this file."""
    read = json.loads((Path(__file__).parent / f"{name}.json").read_text())
    weights = np.array(read["weights"], np.float32).astype(np.float64)
    return Probe(weights, read["bias"], read["low"], read["high"])


def is_about_stories(want: str, known: Collection[str]) -> bool:
    """Speaks of stories, tickets or sprints where the task does not."""
    return any(
        stem(word) not in known for word in word_list("meta_words").intersection(tokens(want))
    )


def own_benefit(want: str, benefit: str) -> bool:
    """The benefit says more than the want did."""
    said = set(content(benefit))
    new = said.difference(content(want))
    return bool(new) and len(new) > 0.3 * len(said)


def explained(clause: str, known: Collection[str], wanted: Collection[str] = ()) -> float:
    """Share of the clause's words of meaning that are in `known` or `wanted` (stems) or are usual
    in stories of any trade."""
    said = content(clause)
    if not said:
        return 1.0
    usual = _usual()
    return sum([one in known or one in wanted or one in usual for one in said]) / len(said)


@cache
def _usual() -> frozenset[str]:
    return frozenset(stem(word) for word in word_list("common_words"))


def is_others_role(role: str, own: frozenset[str], all_roles: Collection[frozenset[str]]) -> bool:
    """The role is one that the task has for something else. `own`: stems of the role that the
    reference has."""
    said = frozenset(content(role))
    return bool(own) and not said & own and said in all_roles


def is_known_role(role: str, known: Collection[str]) -> bool:
    """The task itself speaks of the role: its last word of meaning is among `known`."""
    said = content(role)
    return bool(said) and said[-1] in known
