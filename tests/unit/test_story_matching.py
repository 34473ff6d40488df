"""The gate, the one-to-one matching and what counts as the same: numbers only, no model."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from services.graders.story.matching import (
    Gate,
    Matching,
    Pair,
    Vectors,
    compute_sameness,
    compute_similarities,
    match,
)

GATE = Gate(0.2, 0.4, 0.8)


def rows(*angles: float) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    """Unit vectors at these angles, in degrees: the cosine of two is that of the difference."""
    turned = np.radians(angles)
    return np.stack([np.cos(turned), np.sin(turned)], axis=1).astype(np.float32)


def count_repeats(stories: Vectors, references: Vectors, pairs: tuple[Pair, ...]) -> float:
    """Stories that say the same as one before them."""
    return float(np.triu(compute_sameness(stories, references, pairs), 1).max(0).sum())


def matched(
    gated: np.ndarray[tuple[int, int], np.dtype[np.float64]], references: Vectors
) -> Matching:
    return match(gated, gated, references)


def test_the_gate_is_shut_below_and_wide_open_above() -> None:
    assert GATE(np.array([-1.0, 0.2, 0.3, 0.4, 0.6, 0.8, 1.0])) == pytest.approx(
        [0, 0, 0.375, 0.75, 0.875, 1, 1]
    )


def test_the_matching_is_one_to_one_and_the_best_in_sum() -> None:
    gated = np.array([[0.9, 0.8], [0.8, 0.1]])
    found = match(gated, gated, rows(0, 90))
    assert [(pair.story, pair.reference) for pair in found.pairs] == [(0, 1), (1, 0)]
    assert found.total == pytest.approx(1.6)


def test_where_the_gate_is_wide_open_the_nearest_belong_together() -> None:
    found = match(np.ones((2, 2)), np.array([[0.6, 0.9], [0.9, 0.8]]), rows(0, 90))
    assert [(pair.story, pair.reference) for pair in found.pairs] == [(0, 1), (1, 0)]


def test_pairs_that_the_gate_shuts_out_are_none() -> None:
    assert match(np.array([[0.0, 0.0]]), np.array([[0.1, 0.2]]), rows(0, 90)).pairs == ()


def test_references_that_ask_for_the_same_count_once_unless_more_are_answered() -> None:
    twice = rows(0, 5, 90)
    one = matched(np.array([[1.0, 1.0, 0.0]]), twice)
    assert (one.total, one.references) == (1.0, 2)
    both = matched(np.array([[1.0, 0.9, 0.0], [0.9, 1.0, 0.0]]), twice)
    assert (both.total, both.references) == (2.0, 3)


def test_references_are_the_same_from_one_to_the_next() -> None:
    chain = rows(0, 15, 30, 120)
    assert matched(np.zeros((1, 4)), chain).references == 2
    assert matched(np.eye(2, 4), chain).references == 3


def test_stories_that_are_nearer_to_each_other_than_to_what_they_answer_repeat_one_another() -> (
    None
):
    references = rows(0, 80, 120)
    stories = rows(20, 22, 24)
    pairs = matched(GATE(compute_similarities(stories, references)), references).pairs
    assert count_repeats(stories, references, pairs) == pytest.approx(2)


def test_stories_come_to_repeat_one_another_by_degrees() -> None:
    references = rows(0, 90)
    angles = np.arange(0, 60, 0.25)
    found = [
        count_repeats(
            rows(0, angle),
            references,
            matched(GATE(compute_similarities(rows(0, angle), references)), references).pairs,
        )
        for angle in angles
    ]
    assert (max(found), min(found)) == (1, 0)
    assert max(abs(np.diff(found))) < 0.2


def test_stories_that_answer_references_which_are_as_near_are_no_repeats() -> None:
    references = rows(0, 30, 90)
    stories = rows(1, 29, 91)
    pairs = matched(GATE(compute_similarities(stories, references)), references).pairs
    assert count_repeats(stories, references, pairs) == 0


def test_a_copy_is_a_repeat_even_where_it_answers_nothing() -> None:
    references = rows(0)
    stories = rows(0, 0, 0)
    pairs = matched(GATE(compute_similarities(stories, references)), references).pairs
    assert count_repeats(stories, references, pairs) == 2


@pytest.mark.parametrize("seed", range(20))
def test_what_runtimes_differ_by_decides_no_tie(seed: int) -> None:
    noise = np.random.default_rng(seed)

    def told(*angles: float) -> Vectors:
        exact = rows(*angles)
        return (exact + noise.normal(0, 1e-4, exact.shape)).astype(np.float32)

    for angles, said, expected in (((0, 0, 90), (0, 0, 90), 0), ((0, 90), (0, 0, 90), 1)):
        references, stories = told(*angles), told(*said)
        pairs = matched(GATE(compute_similarities(stories, references)), references).pairs
        assert count_repeats(stories, references, pairs) == expected


SQUARES = arrays(
    np.float64, st.tuples(st.integers(1, 4), st.integers(1, 4)), elements=st.floats(0, 1)
)


@given(SQUARES)
def test_no_other_assignment_is_better(
    gated: np.ndarray[tuple[int, int], np.dtype[np.float64]],
) -> None:
    stories, references = gated.shape
    wide = gated if stories <= references else gated.T
    totals = []
    for chosen in permutations(range(wide.shape[1]), wide.shape[0]):
        totals.append(sum(wide[row, column] for row, column in enumerate(chosen)))
    best = max(totals)
    assert matched(gated, np.eye(references, dtype=np.float32)).total == pytest.approx(
        best, abs=1e-4
    )


@given(st.lists(st.floats(0, 360), min_size=1, max_size=12), st.data())
def test_different_references_do_not_depend_on_their_order(
    angles: list[float], chance: st.DataObject
) -> None:
    vectors = rows(*angles)
    turned = vectors[chance.draw(st.permutations(range(len(angles))))]
    nothing = np.zeros((1, len(angles)))
    assert matched(nothing, vectors).references == matched(nothing, turned).references
