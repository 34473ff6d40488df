"""AReaL 1.0: a reward function that raises for a fault before AReaL's own timeout makes 0 of it.

    reward_fn = "gradus.integrations.areal.reward_fn"  # in the workflow, GRADUS_GRADER=ocaml

The data set has a column `task`: the task as JSON text, as an object, or the id of a row of the
files in `GRADUS_TASKS`; a column `grader` goes before `GRADUS_GRADER`. AReaL calls the function in
a pool of processes, gives a call 15 s, retries three times, and takes 0 for a timeout of the last
try. The deadline is therefore 13 s at most, and a fault is an exception, which AReaL raises after
its last try. Each waiting call holds a process of the pool.

To go on without the groups that have a fault, set `GRADUS_ON_FAULT=nan` and pass
`dynamic_filter_fn="gradus.integrations.areal.has_no_fault"` to the trainer's `train`. AReaL takes
groups apart by their size, so that a group must leave as a whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gradus.integrations.core import Completion, get_reward, grade_blocking, settings

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
    """Return the reward of one completion. Raises Fault, or returns NaN, as `GRADUS_ON_FAULT`
    says."""
    seconds = min(settings().deadline_s, MAX_DEADLINE_S)
    chosen = settings(grader, deadline_s=seconds)
    [result] = grade_blocking([Completion(task, completions, prompt)], chosen)
    return get_reward(result, chosen)


def has_no_fault(trajectory: Mapping[str, Any]) -> bool:
    """Return whether every reward of a trajectory, or of a group of them, is a number."""
    return not trajectory["rewards"].isnan().any().item()
