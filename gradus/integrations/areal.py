"""AReaL 1.0: a reward function that raises for a fault before AReaL's own timeout makes 0 of it.

    reward_fn = "gradus.integrations.areal.reward_fn"  # in the workflow, GRADUS_GRADER=ocaml

The data set has a column `task`: the task as JSON text, as an object, or the id of a row of the
files in `GRADUS_TASKS`; a column `grader` goes before `GRADUS_GRADER`. AReaL calls the function in
a pool of processes, gives a call 15 s, retries three times, and takes 0 for a timeout of the last
try. The deadline is therefore 13 s at most, and a fault is an exception, which AReaL raises after
its last try. Each waiting call holds a process of the pool.
"""

from __future__ import annotations

from typing import Any

from gradus.integrations.core import Completion, grade_blocking, require_reward, settings

MAX_DEADLINE_S = 13.0


def reward_fn(
    prompt: Any,
    completions: str,
    prompt_ids: Any = None,
    completion_ids: Any = None,
    *,
    task: Any,
    grader: str | None = None,
    **columns: Any,
) -> float:
    """Return the reward of one completion. Raises Fault."""
    seconds = min(settings().deadline_s, MAX_DEADLINE_S)
    [result] = grade_blocking(
        [Completion(task, completions, prompt)], settings(grader, deadline_s=seconds)
    )
    return require_reward(result)
