"""TRL 1.6 or newer: a reward function and an environment whose faults are `None`.

    from gradus.integrations.trl import reward
    trainer = GRPOTrainer(model=..., reward_funcs=reward("ocaml"), train_dataset=dataset, args=...)

The data set has a column `task`: the task as JSON text or a struct, or the id of a row of the files
in `GRADUS_TASKS`. TRL leaves a row whose rewards are all None out of the baseline, and its warning
prints all columns of such rows: with ids in `task` no tests are printed. `accelerate` runs the
function in each process for that process's completions.

As an environment the model calls the tool `submit` as often as the trainer lets it (transformers
5.2 or newer, a chat template that renders tools):

    GRPOTrainer(model=..., environment_factory=lambda: Environment("ocaml"), train_dataset=dataset,
    args=...)
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from gradus.contract import Faulted, Graded
from gradus.feedback import reply
from gradus.integrations.core import Completion, grade, settings

Rewards = Callable[..., Awaitable[list[float | None]]]


def reward(grader: str | None = None, *, column: str = "task", **options: Any) -> Rewards:
    """Return an async reward function: one reward per completion, None for a fault. `options` are
    those of `core.settings`."""
    chosen = settings(grader, **options)

    async def gradus(
        prompts: Sequence[Any],
        completions: Sequence[Any],
        log_metric: Callable[[str, float], None] | None = None,
        log_extra: Callable[[str, list[Any]], None] | None = None,
        **columns: Any,
    ) -> list[float | None]:
        batch = map(Completion, columns[column], completions, prompts)
        results = await grade(list(batch), chosen)
        if log_metric is not None and results:
            n_graded = sum(isinstance(result, Graded) for result in results)
            log_metric("gradus/faults", 1 - n_graded / len(results))
            log_metric(
                "gradus/passed",
                sum(isinstance(outcome, Graded) and outcome.passed for outcome in results)
                / len(results),
            )
        if log_extra is not None:
            log_extra(
                "gradus",
                [
                    outcome.stage.value if isinstance(outcome, Graded) else "fault"
                    for outcome in results
                ],
            )
        return [result.reward if isinstance(result, Graded) else None for result in results]

    gradus.__name__ = f"gradus_{chosen.grader}"
    return gradus


class Environment:
    """TRL environment of one task. The reward is that of the last submission, 0 where the model
    submitted nothing."""

    def __init__(self, grader: str | None = None, **options: Any) -> None:
        self._settings = settings(grader, **options)
        self._task: Any = None
        self._result: Graded | Faulted | None = None

    def reset(self, task: Any = None, **row: Any) -> str | None:
        self._task = task
        self._result = None
        return None

    async def submit(self, answer: str) -> str:
        """
        Grade an answer and return what the grader reports of it.

        Args:
            answer: The complete answer, such as the whole source file.

        Returns:
            The stage that the answer reached, the tests that pass, and diagnostics.
        """
        [self._result] = await grade([Completion(self._task, answer)], self._settings)
        if isinstance(self._result, Graded):
            return reply(self._result)
        return "The grader is not available. Submit the same answer again."

    async def get_reward(self) -> float | None:
        if isinstance(self._result, Graded):
            return self._result.reward
        return None if isinstance(self._result, Faulted) else 0.0
