"""verl 0.9: an async reward function that raises for a fault.

    reward.custom_reward_function.path=pkg://gradus.integrations.verl
    reward.custom_reward_function.name=compute_score
    +reward.custom_reward_function.reward_kwargs.deadline_s=1800
    reward.reward_manager.name=naive

`ground_truth` is the task as JSON text or the id of a row of the files in `GRADUS_TASKS`. The
grader is `reward_kwargs.grader`, else `extra_info.grader`, else the NAME of a data source
`gradus/NAME`, else `GRADUS_GRADER`. verl has no value for a missing reward. Under the manager
`naive` the exception ends the run, so give a long `deadline_s`: the client waits that long for a
service that is away. The manager `limited` makes 0.0 of exceptions and of its own timeout: do not
use it.

To go on without the samples that have a fault, use all of

    VERL_USE_EXTERNAL_MODULES=gradus.integrations.verl_advantage
    +reward.custom_reward_function.reward_kwargs.on_fault=nan
    algorithm.adv_estimator=gradus_grpo
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gradus.integrations.core import Completion, build_metrics, get_reward, grade, settings


async def compute_score(
    data_source: Any,
    solution_str: str,
    ground_truth: Any,
    extra_info: Mapping[str, Any] | None = None,
    *,
    reward_router_address: str | None = None,
    reward_model_tokenizer: Any = None,
    grader: str | None = None,
    **options: Any,
) -> dict[str, float]:
    """`score` and metrics of one completion, with the same names for each. Raises Fault, or returns
    NaN as `score` with `on_fault="nan"`.

    `options` are those of `core.settings`. The arguments about a reward model are verl's and are
    ignored.
    """
    prefix, _, name = str(data_source).rpartition("/")
    named = grader or (extra_info or {}).get("grader") or (name if prefix == "gradus" else None)
    chosen = settings(named, **options)
    [result] = await grade([Completion(ground_truth, solution_str)], chosen)
    return {"score": get_reward(result, chosen), **build_metrics(result)}
