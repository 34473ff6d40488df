"""Each rule rings where it should and nowhere else, and says what it compared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from dashboard_server import metric

from services.dashboard.evaluations import Evaluation, Figures
from services.dashboard.run_alerts import Rule, alerts_of
from services.dashboard.series import StepLog


def log_of(steps: int, **columns: Callable[[int], Any] | float) -> StepLog:
    log = StepLog()
    for step in range(1, steps + 1):
        values = {
            name.replace("__", "/"): made(step) if callable(made) else made
            for name, made in columns.items()
        }
        log.add(metric(step, **values))
    return log


def rules(log: StepLog, *evaluations: Evaluation) -> list[Rule]:
    return [alert.rule for alert in alerts_of(log, evaluations)]


def measured(step: int, rate: float | None, mode: str = "sampled") -> Evaluation:
    return Evaluation(f"step-{step}", "", step, (Figures(mode, rate, None, None, rate, 10, 0),))


def test_an_ordinary_run_raises_none() -> None:
    log = log_of(
        60,
        frac_reward_zero_std=0.4,
        completions__clipped_ratio=0.05,
        entropy=0.5,
        gradus__faulted=0.0,
    )
    assert rules(log, measured(0, 0.4), measured(60, 0.6)) == []
    assert rules(StepLog()) == []


def test_groups_without_signal() -> None:
    assert rules(log_of(10, frac_reward_zero_std=0.85)) == [Rule.ZERO_SPREAD]
    assert rules(log_of(10, frac_reward_zero_std=0.8)) == []
    [alert] = alerts_of(log_of(10, frac_reward_zero_std=0.9), [])
    assert "90%" in alert.detail


def test_one_bad_step_is_no_alarm() -> None:
    assert rules(log_of(10, frac_reward_zero_std=lambda step: 1.0 if step == 10 else 0.3)) == []


def test_completions_that_are_cut_off() -> None:
    assert rules(log_of(10, completions__clipped_ratio=0.25)) == [Rule.CLIPPED]
    assert rules(log_of(10, completions__clipped_ratio=0.2)) == []


def test_completions_that_are_not_graded() -> None:
    assert rules(log_of(10, gradus__faulted=0.1)) == [Rule.FAULTS]
    assert rules(log_of(10, gradus__faulted=0.04)) == []


def test_entropy_that_falls_while_the_reward_rises() -> None:
    falls: dict[str, Any] = {"entropy": lambda step: 1.0 if step <= 20 else 0.4}
    assert rules(log_of(40, **falls, reward=lambda step: 0.2 if step <= 20 else 0.6)) == [
        Rule.ENTROPY_FALLS
    ]
    assert rules(log_of(40, **falls, reward=0.5)) == []
    assert rules(log_of(40, entropy=1.0, reward=lambda step: step / 40)) == []
    assert rules(log_of(6, **falls)) == []


def test_a_flag_that_doubles() -> None:
    doubled = log_of(40, gradus__flag__stub=lambda step: 0.05 if step <= 20 else 0.12)
    [alert] = alerts_of(doubled, [])
    assert alert.rule is Rule.FLAG_DOUBLES
    assert "stub" in alert.title
    assert "12.0%" in alert.detail
    assert rules(log_of(40, gradus__flag__stub=lambda step: 0.05 if step <= 20 else 0.08)) == []
    assert rules(log_of(40, gradus__flag__stub=lambda step: 0.001 if step <= 20 else 0.01)) == []


def test_a_flag_that_was_never_seen_before() -> None:
    log = StepLog()
    for step in range(1, 41):
        log.add(metric(step, **({"gradus/flag/new": 0.1} if step > 20 else {})))
    assert rules(log) == [Rule.FLAG_DOUBLES]


def test_a_reward_that_rises_while_held_out_tasks_do_not() -> None:
    log = log_of(40, reward=lambda step: 0.2 + step / 80)
    assert rules(log, measured(0, 0.4), measured(40, 0.4)) == [Rule.HELD_OUT_FLAT]
    assert rules(log, measured(0, 0.4), measured(40, 0.5)) == []
    assert rules(log_of(40, reward=0.5), measured(0, 0.4), measured(40, 0.4)) == []


@pytest.mark.parametrize("rates", [(0.4,), (None, None), (0.4, None)])
def test_too_few_evaluations_compare_nothing(rates: tuple[float | None, ...]) -> None:
    log = log_of(40, reward=lambda step: step / 40)
    assert rules(log, *(measured(40 * n, rate) for n, rate in enumerate(rates))) == []


def test_evaluations_of_a_run_that_logged_nothing_compare_nothing() -> None:
    assert rules(StepLog(), measured(0, 0.4), measured(40, 0.4)) == []


def test_several_can_ring_at_once() -> None:
    assert rules(log_of(10, frac_reward_zero_std=1.0, completions__clipped_ratio=0.5)) == [
        Rule.ZERO_SPREAD,
        Rule.CLIPPED,
    ]
