"""OpenRLHF 0.11: a reward file that raises for a fault.

    GRADUS_GRADER=ocaml python -m openrlhf.cli.train_ppo_ray ... --data.label_key task \\
        --reward.remote_url "$(python -c \\
            'import gradus.integrations.openrlhf as m; print(m.__file__)')"

The label is the task as JSON text or the id of a row of the files in `GRADUS_TASKS`. OpenRLHF logs
the exception and gives the sample no reward; later its experience maker raises, so that a fault
ends the run and is never a number. To go on without it set `GRADUS_ON_FAULT=nan` and
`--algo.dynamic_filtering_enable`: OpenRLHF then drops the whole group of a NaN and samples another
prompt. Without the filter NaN reaches the advantages. The other way is the route `get_reward` of
`gradus serve --adapters openrlhf` (docs/integrations.md), which needs no Gradus in the trainer's
environment. `GRADUS_END_TOKENS` names further tokens that end a turn, with spaces between.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from gradus.integrations.core import (
    Completion,
    build_metrics,
    get_reward,
    grade_blocking,
    settings,
)
from gradus.integrations.openrlhf_query import extract_completion


def reward_func(
    queries: Sequence[str], prompts: Sequence[str], labels: Sequence[Any], **_: Any
) -> dict[str, Any]:
    """Rewards, scores and metrics; of one sample as numbers, of several as lists. Raises Fault."""
    ends = tuple(os.environ.get("GRADUS_END_TOKENS", "").split())
    texts = []
    for query, prompt in zip(queries, prompts, strict=True):
        texts.append(extract_completion(query, prompt, ends))
    chosen = settings()
    results = grade_blocking(list(map(Completion, labels, texts, prompts)), chosen)
    rewards = [get_reward(result, chosen) for result in results]
    passed = [build_metrics(result)["passed"] for result in results]
    cached = [build_metrics(result)["cached"] for result in results]
    if len(results) == 1:
        logs = {"passed": passed[0], "cached": cached[0]}
        return {"rewards": rewards[0], "scores": rewards[0], "extra_logs": logs}
    extra = {"passed": passed, "cached": cached}
    return {"rewards": rewards, "scores": rewards, "extra_logs": extra}
