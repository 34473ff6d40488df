"""The statistics against values worked out by hand or taken from the cited papers' formulas."""

from __future__ import annotations

import math
from itertools import combinations, product

import numpy as np
import pytest

from trainer.evaluate import intervals
from trainer.evaluate.intervals import (
    BOOTSTRAP,
    NEWCOMBE,
    NO_WIDTH,
    WILSON,
    WILSON_ALIKE,
    bootstrap,
    compute_mcnemar_p,
    compute_mean,
    compute_paired_change,
    compute_pass_at_k,
    compute_sign_flip_p,
    compute_wilson_interval,
    pass_rate,
)


@pytest.mark.parametrize(
    ("n", "c", "k", "expected"),
    [
        (5, 2, 3, 0.9),
        (4, 1, 1, 0.25),
        (4, 0, 4, 0.0),
        (4, 4, 1, 1.0),
        (10, 3, 8, 1.0),
        (200, 1, 100, 0.5),
    ],
)
def test_pass_at_k_is_the_textbook_value(n: int, c: int, k: int, expected: float) -> None:
    assert compute_pass_at_k(n, c, k) == pytest.approx(expected, abs=1e-12)


def test_pass_at_k_is_the_share_of_draws_that_hold_a_right_answer() -> None:
    for n, c, k in ((6, 2, 3), (7, 5, 2), (5, 1, 4)):
        draws = list(combinations([True] * c + [False] * (n - c), k))
        assert compute_pass_at_k(n, c, k) == pytest.approx(sum(map(any, draws)) / len(draws))


@pytest.mark.parametrize(("n", "c", "k"), [(3, 4, 1), (3, 1, 4), (3, -1, 1), (3, 1, 0), (0, 0, 1)])
def test_pass_at_k_refuses_impossible_counts(n: int, c: int, k: int) -> None:
    with pytest.raises(ValueError):
        compute_pass_at_k(n, c, k)


@pytest.mark.parametrize(
    ("passed", "total", "low", "high"),
    [
        (8, 10, 0.490162, 0.943318),
        (0, 10, 0.0, 0.277533),
        (10, 10, 0.722467, 1.0),
        (1, 2, 0.094531, 0.905469),
    ],
)
def test_wilson_is_the_published_interval(passed: int, total: int, low: float, high: float) -> None:
    assert compute_wilson_interval(passed, total) == pytest.approx((low, high), abs=1e-6)


def test_wilson_of_nothing_is_everything() -> None:
    assert compute_wilson_interval(0, 0) == (0.0, 1.0)


def test_bootstrap_has_the_quantiles_of_the_binomial() -> None:
    # The mean of two draws from {0, 1} is 0, 1/2, 1 with chances 1/4, 1/2, 1/4.
    assert bootstrap([0.0, 1.0]) == (0.0, 1.0)
    # The mean of four draws from {0, 0, 0, 1}: P(0) = .316, P(<= 1/2) = .949, P(<= 3/4) = .996.
    assert bootstrap([0.0, 0.0, 0.0, 1.0]) == (0.0, 0.75)


def test_bootstrap_repeats_itself_for_a_seed_and_does_not_depend_on_its_chunks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    values = [0.1, 0.4, 0.9, 0.3, 0.7]
    once = bootstrap(values, seed=3)
    assert bootstrap(values, seed=3) == once
    monkeypatch.setattr(intervals, "BATCH_VALUES", 64)
    assert bootstrap(values, seed=3) == once


def test_bootstrap_needs_a_problem() -> None:
    with pytest.raises(ValueError):
        bootstrap([])


@pytest.mark.parametrize(
    ("gained", "lost", "p"),
    [(9, 1, 22 / 1024), (1, 9, 22 / 1024), (0, 0, 1.0), (3, 3, 1.0), (10, 0, 2 / 1024)],
)
def test_mcnemar_is_the_exact_binomial_tail(gained: int, lost: int, p: float) -> None:
    assert compute_mcnemar_p(gained, lost) == pytest.approx(p)


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
    assert (rate.value, rate.high, rate.method, rate.fallback) == (
        1.0,
        1.0,
        WILSON_ALIKE,
        WILSON_ALIKE,
    )
    assert rate.low == pytest.approx(0.722467, abs=1e-6)


def test_one_task_has_no_width_and_its_rate_says_so() -> None:
    for rate in (pass_rate([(4, 2)]), compute_mean([0.5])):
        assert rate is not None
        assert (rate.low, rate.value, rate.high, rate.method) == (0.5, 0.5, 0.5, NO_WIDTH)
        assert rate.text == f"50.0% (50.0% to 50.0%); {NO_WIDTH}"
    usual = pass_rate([(4, 0), (4, 4)])
    assert usual is not None
    assert (usual.fallback, usual.text) == (None, "50.0% (0.0% to 100.0%)")


def test_problems_with_too_few_answers_are_left_out_of_pass_at_k() -> None:
    rate = pass_rate([(4, 2), (1, 0), (0, 0)], k=2)
    assert rate is not None
    assert rate.value == pytest.approx(1 - 1 / 6)
    assert pass_rate([(1, 1)], k=2) is None
    assert pass_rate([]) is None


def test_the_mean_of_nothing_is_none() -> None:
    assert compute_mean([]) is None


def test_a_paired_difference_is_over_the_same_problems() -> None:
    change = compute_paired_change([0.0, 1.0], [1.0, 1.0])
    assert change is not None
    assert (change.value, change.low, change.high, change.method) == (0.5, 0.0, 1.0, BOOTSTRAP)
    assert compute_paired_change([], []) is None
    with pytest.raises(ValueError):
        compute_paired_change([0.0], [])


def test_a_uniform_change_still_has_width() -> None:
    change = compute_paired_change([0.0] * 10, [1.0] * 10)
    assert change is not None
    assert (change.value, change.high, change.method) == (1.0, 1.0, NEWCOMBE)
    # Both Wilson ends lie .277533 inside, so the lower end is 1 - .277533 * sqrt(2).
    assert change.low == pytest.approx(1 - 0.277533 * 2**0.5, abs=1e-5)


# ---------------------------------------------------------------------- against other programs


def test_sign_flips_are_the_share_of_all_signs_that_go_as_far() -> None:
    changes = [0.5, -0.25, 0.75, 0.0, 0.25, 0.1]
    moved = [change for change in changes if change]
    sums = [abs(np.dot(signs, moved)) for signs in product((1, -1), repeat=len(moved))]
    expected = sum(total >= abs(sum(moved)) - 1e-12 for total in sums) / len(sums)
    assert compute_sign_flip_p(changes) == pytest.approx(expected)
    assert compute_sign_flip_p([]) == compute_sign_flip_p([0.0, 0.0]) == 1.0


def test_many_sign_flips_are_drawn_and_repeat_themselves() -> None:
    changes = [0.25] * 12 + [-0.25] * 8
    # The exact value, by the binomial: 12 or more of 20 heads, both tails.
    exact = 2 * sum(math.comb(20, k) for k in range(12, 21)) / 2**20
    assert (
        compute_sign_flip_p(changes, seed=1)
        == compute_sign_flip_p(changes, seed=1)
        == pytest.approx(exact, abs=0.02)
    )


def test_mcnemar_and_pass_at_k_agree_with_scipy() -> None:
    stats = pytest.importorskip("scipy.stats")
    for gained, lost in ((0, 0), (3, 1), (10, 2), (25, 40)):
        expected = stats.binomtest(gained, gained + lost).pvalue if gained + lost else 1.0
        assert compute_mcnemar_p(gained, lost) == pytest.approx(expected)
    for n, c, k in ((10, 3, 4), (20, 1, 5), (7, 7, 2), (5, 0, 5)):
        assert compute_pass_at_k(n, c, k) == pytest.approx(1 - stats.hypergeom(n, c, k).pmf(0))


def test_bootstraps_agree_with_scipys() -> None:
    stats = pytest.importorskip("scipy.stats")
    draw = np.random.default_rng(3)
    values = draw.beta(2, 3, size=60)
    theirs = stats.bootstrap(
        (values,), np.mean, method="percentile", n_resamples=10_000, rng=draw
    ).confidence_interval
    assert bootstrap(list(values)) == pytest.approx((theirs.low, theirs.high), abs=0.01)
    tops = draw.uniform(1, 3, size=50)
    bottoms = draw.integers(1, 40, size=50)
    ratio = lambda a, b, axis: a.sum(axis=axis) / b.sum(axis=axis)  # noqa: E731
    theirs = stats.bootstrap(
        (tops, bottoms), ratio, paired=True, method="percentile", n_resamples=10_000, rng=draw
    ).confidence_interval
    assert bootstrap(list(tops), list(bottoms), statistic=ratio) == pytest.approx(
        (theirs.low, theirs.high), rel=0.02
    )


def test_wilson_agrees_with_scipy() -> None:
    stats = pytest.importorskip("scipy.stats")
    for passed, total in ((0, 10), (3, 10), (10, 10), (189, 406)):
        theirs = stats.binomtest(passed, total).proportion_ci(method="wilson")
        assert compute_wilson_interval(passed, total) == pytest.approx(
            (theirs.low, theirs.high), abs=1e-9
        )


def test_an_interval_needs_a_problem() -> None:
    with pytest.raises(ValueError, match="at least one problem"):
        bootstrap([])
