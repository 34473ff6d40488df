"""`stop_when`: which logs end a run, after how many steps, and what is said."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = pytest.mark.training


class Course:
    """A run of so many logged steps, as transformers tells its callbacks of it."""

    def __init__(self, **rules: Any) -> None:
        from transformers import TrainerControl, TrainerState

        from trainer.config.run import StopWhen
        from trainer.runs.collapse import CollapseWatch

        self.said: list[str] = []
        self.pass_rates: list[float] = []
        self.control = TrainerControl()
        self.state = TrainerState()
        self.watch = CollapseWatch(StopWhen(**rules), self.said.append, self.pass_rates)

    def step(self, **logs: float) -> bool:
        """Whether the run ends at the end of the step after this one."""
        self.watch.on_log(None, self.state, self.control, {"learning_rate": 0.1, **logs})
        self.state.global_step += 1
        self.watch.on_step_end(None, self.state, self.control)
        return bool(self.control.should_training_stop)


@pytest.mark.parametrize(("rule", "name"), [("kl", "kl"), ("no_spread", "frac_reward_zero_std")])
def test_a_mean_over_the_limit_ends_the_run(rule: str, name: str) -> None:
    course = Course(**{rule: 0.5, "steps": 3})
    assert not any(course.step(**{name: value}) for value in (0.9, 0.5, 0.0, 0.6, 0.6))
    assert course.step(**{name: 0.6})
    assert course.control.should_save
    assert course.said == [
        f"stop_when: {name} is 0.6 over 3 logged steps, over 0.5; the run ends with step 6"
    ]


def test_a_policy_that_became_certain_ends_the_run() -> None:
    course = Course(min_entropy=0.1, steps=3)
    assert not any(course.step(entropy=value) for value in (0.05, 0.05, 0.4, 0.1, 0.05))
    assert course.step(entropy=0.05)
    assert course.said == [
        "stop_when: entropy is 0.0667 over 3 logged steps, below 0.1; the run ends with step 6"
    ]


def test_a_warning_of_kl_comes_once_and_ends_nothing() -> None:
    course = Course(kl_warning=0.3, steps=2)
    assert not any(course.step(kl=value) for value in (0.4, 0.4, 0.4, 0.1, 0.1, 0.5, 0.5))
    assert [line.partition(",")[0] for line in course.said] == [
        "warning: KL to the reference is 0.4",
        "warning: KL to the reference is 0.5",
    ]


@pytest.mark.parametrize(
    ("rates", "rewards", "ends"),
    [
        (
            (0.2, 0.3, 0.3, 0.3),
            (0.1, 0.2, 0.3, 0.4),
            True,
        ),  # more reward, and nothing gained where nothing is trained
        ((0.2, 0.3, 0.3, 0.4), (0.1, 0.2, 0.3, 0.4), False),  # a gain in the second measurement
        ((0.2, 0.3, 0.3, 0.2), (0.3, 0.3, 0.3, 0.3), False),  # the reward stays where it is, too
        (
            (0.3, 0.3, 0.3),
            (0.2, 0.3, 0.4),
            False,
        ),  # before the first steps nothing was earned to compare with
    ],
)
def test_reward_that_rises_while_held_out_tasks_do_not(
    rates: tuple[float, ...], rewards: tuple[float, ...], ends: bool
) -> None:
    course = Course(held_out_flat=2)
    ended = []
    for rate, reward in zip(rates, rewards, strict=True):
        course.pass_rates.append(rate)
        ended += [course.step(reward=reward), course.step(reward=reward)]
    assert ended[-1] is ends
    assert not any(ended[:-2])
    assert (
        "pass@1 of the held-out tasks did not rise above 30.0% in 2 measurements"
        in "".join(course.said)
    ) is ends


def test_nothing_ends_a_run_by_default() -> None:
    course = Course()
    assert not any(course.step(kl=9.0, frac_reward_zero_std=1.0, reward=0.0) for _ in range(30))
    assert course.said == []
