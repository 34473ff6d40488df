"""The statistics against values worked out by hand or taken from the cited papers' formulas."""

from __future__ import annotations

from itertools import combinations

import pytest

from trainer.evaluate import intervals
from trainer.evaluate.intervals import (
    BOOTSTRAP,
    NEWCOMBE,
    WILSON,
    bootstrap,
    discordance,
    mcnemar,
    mean_with_interval,
    paired_difference,
    pass_at_k,
    pass_rate,
    wilson,
)


@pytest.mark.parametrize(
    ("n", "c", "k", "expected"),
    [(5, 2, 3, 0.9), (4, 1, 1, 0.25), (4, 0, 4, 0.0), (4, 4, 1, 1.0), (10, 3, 8, 1.0), (200, 1, 100, 0.5)],
)
def test_pass_at_k_is_the_textbook_value(n: int, c: int, k: int, expected: float) -> None:
    assert pass_at_k(n, c, k) == pytest.approx(expected, abs=1e-12)


def test_pass_at_k_is_the_share_of_draws_that_hold_a_right_answer() -> None:
    for n, c, k in ((6, 2, 3), (7, 5, 2), (5, 1, 4)):
        draws = list(combinations([True] * c + [False] * (n - c), k))
        assert pass_at_k(n, c, k) == pytest.approx(sum(map(any, draws)) / len(draws))


@pytest.mark.parametrize(("n", "c", "k"), [(3, 4, 1), (3, 1, 4), (3, -1, 1), (3, 1, 0), (0, 0, 1)])
def test_pass_at_k_refuses_impossible_counts(n: int, c: int, k: int) -> None:
    with pytest.raises(ValueError):
        pass_at_k(n, c, k)


@pytest.mark.parametrize(
    ("passed", "total", "low", "high"),
    [(8, 10, 0.490162, 0.943318), (0, 10, 0.0, 0.277533), (10, 10, 0.722467, 1.0), (1, 2, 0.094531, 0.905469)],
)
def test_wilson_is_the_published_interval(passed: int, total: int, low: float, high: float) -> None:
    assert wilson(passed, total) == pytest.approx((low, high), abs=1e-6)


def test_wilson_of_nothing_is_everything() -> None:
    assert wilson(0, 0) == (0.0, 1.0)


def test_bootstrap_has_the_quantiles_of_the_binomial() -> None:
    # The mean of two draws from {0, 1} is 0, 1/2, 1 with chances 1/4, 1/2, 1/4.
    assert bootstrap([0.0, 1.0]) == (0.0, 1.0)
    # The mean of four draws from {0, 0, 0, 1}: P(0) = .316, P(<= 1/2) = .949, P(<= 3/4) = .996.
    assert bootstrap([0.0, 0.0, 0.0, 1.0]) == (0.0, 0.75)


def test_bootstrap_repeats_itself_for_a_seed_and_does_not_depend_on_its_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    values = [0.1, 0.4, 0.9, 0.3, 0.7]
    once = bootstrap(values, seed=3)
    assert bootstrap(values, seed=3) == once
    monkeypatch.setattr(intervals, "CHUNK_VALUES", 64)
    assert bootstrap(values, seed=3) == once


def test_bootstrap_needs_a_problem() -> None:
    with pytest.raises(ValueError):
        bootstrap([])


@pytest.mark.parametrize(
    ("gained", "lost", "p"), [(9, 1, 22 / 1024), (1, 9, 22 / 1024), (0, 0, 1.0), (3, 3, 1.0), (10, 0, 2 / 1024)]
)
def test_mcnemar_is_the_exact_binomial_tail(gained: int, lost: int, p: float) -> None:
    assert mcnemar(gained, lost) == pytest.approx(p)


def test_one_answer_per_problem_gets_wilsons_interval() -> None:
    rate = pass_rate([(1, 1)] * 8 + [(1, 0)] * 2)
    assert rate is not None
    assert (rate.value, rate.method) == (0.8, WILSON)
    assert (rate.low, rate.high) == pytest.approx((0.490162, 0.943318), abs=1e-6)


def test_several_answers_per_problem_get_the_bootstrap_over_problems() -> None:
    rate = pass_rate([(4, 0), (4, 4)])
    assert rate is not None
    assert (rate.value, rate.low, rate.high, rate.method) == (0.5, 0.0, 1.0, BOOTSTRAP)


def test_a_perfect_score_is_not_claimed_to_be_certain() -> None:
    rate = pass_rate([(4, 4)] * 10)
    assert rate is not None
    assert (rate.value, rate.high, rate.method) == (1.0, 1.0, WILSON)
    assert rate.low == pytest.approx(0.722467, abs=1e-6)


def test_problems_with_too_few_answers_are_left_out_of_pass_at_k() -> None:
    rate = pass_rate([(4, 2), (1, 0), (0, 0)], k=2)
    assert rate is not None
    assert rate.value == pytest.approx(1 - 1 / 6)
    assert pass_rate([(1, 1)], k=2) is None
    assert pass_rate([]) is None


def test_the_mean_of_nothing_is_none() -> None:
    assert mean_with_interval([]) is None


def test_a_paired_difference_is_over_the_same_problems() -> None:
    change = paired_difference([0.0, 1.0], [1.0, 1.0])
    assert change is not None
    assert (change.value, change.low, change.high, change.method) == (0.5, 0.0, 1.0, BOOTSTRAP)
    assert paired_difference([], []) is None
    with pytest.raises(ValueError):
        paired_difference([0.0], [])


def test_a_uniform_change_still_has_width() -> None:
    change = paired_difference([0.0] * 10, [1.0] * 10)
    assert change is not None
    assert (change.value, change.high, change.method) == (1.0, 1.0, NEWCOMBE)
    # Both Wilson ends lie .277533 inside, so the lower end is 1 - .277533 * sqrt(2).
    assert change.low == pytest.approx(1 - 0.277533 * 2**0.5, abs=1e-5)


def test_discordance_counts_the_four_kinds() -> None:
    found = discordance([True, False, True, False, False], [True, True, False, False, True])
    assert (found.both_passed, found.gained, found.lost, found.neither) == (1, 2, 1, 1)
    assert found.p_value == 1.0
