"""SkyRL-gym 0.4: an environment of one turn that raises for a fault.

    from skyrl_gym.envs.registration import register
    register(id="gradus", entry_point="gradus.integrations.skyrl:GradusEnv")

Rows name `env_class: gradus`; `reward_spec.ground_truth` is the task as JSON text or the id of a
row of the files in `GRADUS_TASKS`, and `extra_info.grader` goes before `GRADUS_GRADER`. The keys of
the environment's configuration (`environment.skyrl_gym.gradus`) are the options of
`gradus.integrations.core.settings`. SkyRL has no value for a missing reward. An exception of `step`
ends the run, so give a long `GRADUS_DEADLINE_S`. To go on without the samples that have a fault,
call `gradus.integrations.skyrl_advantage.register()` before the trainer starts, and set
`on_fault: nan` and `trainer.algorithm.advantage_estimator=gradus_grpo`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from skyrl_gym.envs.base_text_env import BaseTextEnv, BaseTextEnvStepOutput

from gradus.integrations.core import (
    Completion,
    build_metrics,
    get_reward,
    grade_blocking,
    settings,
)


class GradusEnv(BaseTextEnv):  # type: ignore[misc]
    """One task; the first step is graded and ends the episode."""

    def __init__(
        self, env_config: Mapping[str, Any] | None = None, extras: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__()
        row = extras or {}
        self._task = row["reward_spec"]["ground_truth"]
        named = (row.get("extra_info") or {}).get("grader")
        self._settings = settings(
            **{**dict(env_config or {}), **({"grader": named} if named else {})}
        )

    def step(self, action: str) -> BaseTextEnvStepOutput:
        """Return the reward of the model's text. Raises Fault, or NaN with `on_fault: nan`."""
        [result] = grade_blocking([Completion(self._task, action)], self._settings)
        return BaseTextEnvStepOutput(
            observations=[],
            reward=get_reward(result, self._settings),
            done=True,
            metadata=build_metrics(result),
        )
