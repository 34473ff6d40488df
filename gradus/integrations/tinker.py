"""tinker-cookbook 0.6: an environment of one turn that raises for a fault.

    builder = ProblemGroupBuilder(env_thunk=lambda: GradusEnv(renderer, question, task, "ocaml"),
    num_envs=8)

`task` is an object, JSON text, or the id of a row of the files in `GRADUS_TASKS`. The reward is the
grader's alone; an answer that was cut off is graded like any other. What the cookbook does with the
exception of a fault is the rollout strategy: `FailFast`, the default, ends the run;
`RetryOnFailure` makes another rollout; `MinViableGroup` trains on the rest of the group.
"""

from __future__ import annotations

from typing import Any

import tinker
from tinker_cookbook import renderers
from tinker_cookbook.rl.problem_env import ProblemEnv
from tinker_cookbook.rl.types import StepResult

from gradus.integrations.core import (
    Completion,
    build_metrics,
    grade,
    grade_blocking,
    require_reward,
    settings,
)


class GradusEnv(ProblemEnv):  # type: ignore[misc]
    """One task; the first answer is graded and ends the episode. `options` are those of
    `core.settings`."""

    def __init__(
        self,
        renderer: renderers.Renderer,
        question: str,
        task: Any,
        grader: str | None = None,
        convo_prefix: list[renderers.Message] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(renderer, convo_prefix, format_coef=0.0)
        self._question = question
        self._task = task
        self._settings = settings(grader, **options)

    def get_question(self) -> str:
        return self._question

    def check_answer(self, sample_str: str) -> float:
        """Return the reward, for code that runs no step. Raises Fault."""
        return require_reward(
            grade_blocking([Completion(self._task, sample_str, self._question)], self._settings)[0]
        )

    def check_format(self, sample_str: str) -> bool:
        return True

    def get_reference_answer(self) -> str:
        return ""

    async def step(self, action: list[int], *, extra: Any = None) -> StepResult:
        """Return the step with the reward. Raises Fault."""
        message, _ = self.renderer.parse_response(action)
        text = renderers.get_text_content(message)
        [result] = await grade([Completion(self._task, text, self._question)], self._settings)
        return StepResult(
            reward=require_reward(result),
            episode_done=True,
            next_observation=tinker.ModelInput.empty(),
            next_stop_condition=self.stop_condition,
            metrics=build_metrics(result),
        )
