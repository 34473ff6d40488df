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

from services.graders.story.lexicon import extract_stems, extract_words, load_word_list, stem

Vectors = NDArray[np.float32]


def is_hedged(want: str, known_stems: Collection[str]) -> bool:
    """Leaves open whether something is wanted, in a word that the task does not have."""
    return any(
        stem(word) not in known_stems
        for word in load_word_list("hedges").intersection(extract_words(want))
    )


def apply_ramps(values: NDArray[np.float64], low: float, high: float) -> NDArray[np.float64]:
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
        return apply_ramps(scores, self.low, self.high)


@cache
def load_probe(name: str) -> Probe:
    """Return the probe in `<name>.json` beside this file."""
    read = json.loads((Path(__file__).parent / f"{name}.json").read_text())
    weights = np.array(read["weights"], np.float32).astype(np.float64)
    return Probe(weights, read["bias"], read["low"], read["high"])


def is_about_stories(want: str, known_stems: Collection[str]) -> bool:
    """Speaks of stories, tickets or sprints where the task does not."""
    return any(
        stem(word) not in known_stems
        for word in load_word_list("meta_words").intersection(extract_words(want))
    )


def has_own_benefit(want: str, benefit: str) -> bool:
    """Return whether the benefit says more than the want did."""
    benefit_stems = set(extract_stems(benefit))
    new = benefit_stems.difference(extract_stems(want))
    return bool(new) and len(new) > 0.3 * len(benefit_stems)


def compute_explained_share(
    clause: str, known_stems: Collection[str], want_stems: Collection[str] = ()
) -> float:
    """Return share of the clause's words of meaning that are in `known_stems` or `want_stems`
    (stems) or are usual in stories of any trade."""
    clause_stems = extract_stems(clause)
    if not clause_stems:
        return 1.0
    usual = _load_usual_stems()
    return sum(
        [word in known_stems or word in want_stems or word in usual for word in clause_stems]
    ) / len(clause_stems)


@cache
def _load_usual_stems() -> frozenset[str]:
    return frozenset(stem(word) for word in load_word_list("common_words"))


def is_others_role(
    role: str, reference_role: frozenset[str], all_roles: Collection[frozenset[str]]
) -> bool:
    """Return whether the role is one that the task has for something else. `reference_role`: stems
    of the role that the reference has."""
    role_stems = frozenset(extract_stems(role))
    return bool(reference_role) and not role_stems & reference_role and role_stems in all_roles


def is_known_role(role: str, known_stems: Collection[str]) -> bool:
    """Return whether the task itself speaks of the role: its last word of meaning is among
    `known_stems`."""
    role_stems = extract_stems(role)
    return bool(role_stems) and role_stems[-1] in known_stems
