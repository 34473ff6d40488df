"""slime and miles: a reward function that raises for a fault, and one that takes the sample out of
the loss.

    GRADUS_GRADER=ocaml python train.py ... --label-key task --custom-rm-path
    gradus.integrations.slime.reward

The label is the task as JSON text or the id of a row of the files in `GRADUS_TASKS`;
`metadata.grader` of a sample goes before `GRADUS_GRADER`. `reward` raises for a fault, which ends
the run: give a long `GRADUS_DEADLINE_S`, because the client waits that long for a service that is
away. To go on without the samples that have a fault, use both of

    --custom-rm-path gradus.integrations.slime.masking_reward
    --custom-reward-post-process-path gradus.integrations.slime.post_process

Both reward functions take one sample, or a group with `--group-rm`. The other way is the route of
`gradus serve --adapters slime` for `--rm-type remote_rm` (docs/integrations.md), which needs no
Gradus in the trainer's environment.
"""

from __future__ import annotations

import asyncio
import math
import statistics
from collections import defaultdict
from typing import Any

from gradus.contract import Faulted, Graded
from gradus.integrations.core import Completion, grade, require_reward, settings


async def reward(args: Any, sample: Any, **_: Any) -> Any:
    """Return the reward of one sample, or the rewards of a group. Raises Fault."""
    if isinstance(sample, list):
        return await asyncio.gather(*(reward(args, member) for member in sample))
    return require_reward(await _grade_sample(sample))


async def masking_reward(args: Any, sample: Any, **_: Any) -> Any:
    """`reward`, but for a fault NaN, and then the sample has `remove_sample`. Needs
    `post_process`."""
    if isinstance(sample, list):
        return await asyncio.gather(*(masking_reward(args, member) for member in sample))
    result = await _grade_sample(sample)
    if isinstance(result, Graded):
        return result.reward
    sample.remove_sample = True
    return math.nan


def post_process(args: Any, samples: list[Any]) -> tuple[list[float], list[float]]:
    """Return raw rewards, and rewards normalized by group as slime does, over the samples that were
    not removed.

    Removed samples get 0, which their loss mask multiplies by 0.
    """
    raw = [float(sample.get_reward_value(args)) for sample in samples]
    groups: dict[Any, list[float]] = defaultdict(list)
    for sample, value in zip(samples, raw, strict=True):
        if not sample.remove_sample:
            groups[sample.group_index].append(value)
    in_groups = args.advantage_estimator in (
        "grpo",
        "gspo",
        "cispo",
        "reinforce_plus_plus_baseline",
    )
    by_std = args.advantage_estimator in ("grpo", "gspo", "cispo") and args.grpo_std_normalization

    def normalize(sample: Any, value: float) -> float:
        if sample.remove_sample:
            return 0.0
        if not (in_groups and args.rewards_normalization):
            return value
        group = groups[sample.group_index]
        centred = value - statistics.fmean(group)
        if by_std and len(group) > 1:
            return centred / (statistics.stdev(group) + 1e-6)
        return centred

    return raw, list(map(normalize, samples, raw))


async def _grade_sample(sample: Any) -> Graded | Faulted:
    named = (sample.metadata or {}).get("grader")
    [result] = await grade(
        [Completion(sample.label, sample.response, sample.prompt)], settings(named)
    )
    return result
