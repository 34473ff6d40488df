"""Long logs in a bounded space: means stay true, the newest stays exact, and what is no number is
no figure."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import pytest
from dashboard_server import metric

from services.dashboard.files import Line
from services.dashboard.series import MAX_BINS, MAX_NAMES, Binned, StepLog, read_step, to_finite


def log_of(records: Iterable[dict[str, Any]]) -> StepLog:
    log = StepLog()
    for record in records:
        log.add(Line(0, 0, record))
    return log


@pytest.mark.parametrize(
    "value", [None, True, "1", [1], {}, math.nan, math.inf, -math.inf, 10**400, 1e301]
)
def test_what_is_no_finite_number_is_none(value: Any) -> None:
    assert to_finite(value) is None


@pytest.mark.parametrize("step", [None, "1", -1, 1e13, math.nan, [], True])
def test_what_can_be_no_step_is_none(step: Any) -> None:
    assert read_step({"step": step}) is None


def test_a_short_log_is_kept_exactly() -> None:
    log = log_of(metric(step, reward=step / 100) for step in range(1, 51))
    assert log.binned.list_steps() == list(range(1, 51))
    assert log.binned.compute_means("reward") == [step / 100 for step in range(1, 51)]
    assert (log.step, log.newest["reward"]) == (50, 0.5)


def test_a_log_of_a_hundred_thousand_steps_is_as_small_as_one_of_a_thousand() -> None:
    log = log_of({"step": step, "reward": step / 100_000} for step in range(100_000))
    steps = log.binned.list_steps()
    means = log.binned.compute_means("reward")
    assert MAX_BINS / 2 <= len(steps) <= MAX_BINS
    assert steps[-1] == log.step == 99_999
    # A bin is called by its last step, and its mean is that of its middle.
    assert means == [pytest.approx(step / 1e5, abs=0.002) for step in steps]
    assert sum(log.binned.compute_totals("reward")) == pytest.approx(sum(range(100_000)) / 100_000)


def test_steps_that_are_far_apart_end_in_few_bins_too() -> None:
    log = log_of(map(metric, range(0, 10**12, 10**9)))
    assert len(log.binned.list_steps()) <= MAX_BINS


def test_a_quantity_that_is_not_always_logged_has_gaps() -> None:
    log = log_of([metric(1, kl=0.5), metric(2), metric(3, kl=1.5)])
    assert log.binned.compute_means("kl") == [0.5, None, 1.5]
    assert log.latest["kl"] == 1.5


def test_a_second_line_of_a_step_adds_what_it_says() -> None:
    """As a measured loss comes after the line of the step that it was measured at."""
    log = log_of([{"step": 20, "loss": 2.0}, {"step": 20, "eval_loss": 3.0}])
    assert log.newest == {"loss": 2.0, "eval_loss": 3.0}
    assert (log.binned.compute_means("loss"), log.binned.compute_means("eval_loss")) == (
        [2.0],
        [3.0],
    )


def test_steps_that_are_done_again_replace_what_was_there() -> None:
    first = [metric(step, reward=0.1) for step in (1, 2, 3, 4)]
    log = log_of([*first, metric(3, reward=0.9), metric(4, reward=0.9)])
    assert log.binned.list_steps() == [1, 2, 3, 4]
    assert log.binned.compute_means("reward") == [0.1, 0.1, 0.9, 0.9]


def test_a_line_without_a_step_is_passed_over() -> None:
    log = log_of([{"reward": 0.5}, {"step": "nonsense", "reward": 0.5}])
    assert log.step is None
    assert log.newest == {}


def test_names_made_up_as_it_goes_do_not_fill_the_memory() -> None:
    log = StepLog()
    for step in range(10):
        made_up = {f"x{step}-{n}": 1.0 for n in range(1000)}
        log.add(Line(0, 0, {"step": step, "y" * 10_000: 1.0, **made_up}))
    assert len(log.binned.names) == MAX_NAMES
    assert len(log.latest) <= MAX_NAMES
    assert all(len(name) <= 100 for name in log.latest)


def test_counts_stay_sums_when_bins_widen() -> None:
    tally = Binned()
    for step in range(5000):
        tally.add(step, {"passed": 1.0})
    assert sum(tally.compute_totals("passed")) == 5000
    assert tally.compute_totals("failed") == [0.0] * len(tally.list_steps())
