"""Graders beside the one that judges the tasks, `reward.services`: each a reward function of its own for TRL.

They are asked as that one is: early, in one deadline, with a budget of faults; a fault is None. What they said of a
completion stands in its line of completions.jsonl. Judges nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from gradus.client import RewardClient
from gradus.contract import Graded, PreferenceSubmission, Submission
from trainer.asked_early import Asked, Grading, Result
from trainer.config import RewardConfig, ServiceConfig
from trainer.data import Example
from trainer.prompts import Prompt, text_of
from trainer.rewards import BudgetWatch, Record, clean, metrics_of, outcome_of, submission_of

TOLD = ("status", "reward", "components", "flags", "fault", "rubric", "grader", "toolchain", "cached")
"""Of a verdict, in the line of its completion."""
COUNTED = ("faulted", "cached", "flag/", "component/")
"""Of the metrics of a grader: what means something for one that has no tests."""
Tell = Callable[[str, Sequence[Record]], None]
"""Takes a grader's name and what it said of a step's completions, in their order."""


class FurtherGrader:
    """`function` is what to hand to TRL, which names its metrics after it."""

    def __init__(
        self,
        reward: RewardConfig,
        service: ServiceConfig,
        examples: Iterable[Example],
        client: RewardClient,
        *,
        prompt_of: Callable[[Example], Prompt],
        opening: str = "",
        tell: Tell = lambda name, records: None,
        grading: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        """`prompt_of` is the prompt as the model being trained reads it; the rest as for `trainer.rewards.Rewarder`."""
        self.name = service.label
        self._config = reward.as_asked_of(service)
        self._examples = {example.id: example for example in examples}
        self._prompt_of = prompt_of
        self._opening = opening
        self._grading = Grading(self._config, client, self._submission)
        self._budget = BudgetWatch(self._config)
        self._tell = tell
        self._clock = grading

    def _submission(self, prompt_id: str, text: str, submission_id: str) -> Submission:
        example = self._examples[prompt_id]
        if self._config.grader == "preference":
            return preference_of(self._prompt_of(example), text, submission_id)
        return submission_of(self._config, example, text, submission_id, self._opening)

    def send_ahead(self, asked: Iterable[Asked]) -> None:
        self._grading.send_ahead(asked)

    @property
    def function(self) -> Callable[..., Awaitable[list[float | None]]]:
        async def rewards(**columns: Any) -> list[float | None]:
            return await self.rewards(**columns)

        rewards.__name__ = self.name
        return rewards

    async def rewards(
        self,
        completions: Sequence[Any],
        *,
        prompt_id: Sequence[str],
        trainer_state: Any,
        log_metric: Callable[[str, float], None],
        **_columns: Any,
    ) -> list[float | None]:
        """One reward per completion, None where there is no verdict. Raises GradingStopped past the fault budget."""
        step = trainer_state.global_step + 1
        asked = [(one, text_of(completion)) for one, completion in zip(prompt_id, completions, strict=True)]
        with self._clock():
            results = await self._grading.grade(asked, f"{step}.")
        self._tell(self.name, [told_of(result) for result in results])
        for name, value in metrics_of(prompt_id, results, self.name).items():
            if name.removeprefix(f"{self.name}/").startswith(COUNTED):
                log_metric(name, value)
        self._budget.check(step, results)
        return [result.reward if isinstance(result, Graded) else None for result in results]


def preference_of(prompt: Prompt, completion: str, submission_id: str) -> Submission:
    """A completion behind the prompt that it answers, as a reward model is asked in the trainer's own process."""
    given: dict[str, Any] = {"id": submission_id, "completion": clean(completion), "task": {}}
    if isinstance(prompt, str):
        return PreferenceSubmission.model_validate({**given, "prompt": clean(prompt)})
    messages = [{"role": message["role"], "content": clean(message["content"])} for message in prompt]
    return PreferenceSubmission.model_validate({**given, "task": {"messages": messages}})


def told_of(result: Result) -> Record:
    outcome = outcome_of(result)
    return {name: outcome[name] for name in TOLD}
