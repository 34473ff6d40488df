"""What a run that cannot go on for want of verdicts says: what went wrong, where, and what to
start."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from trainer.config.run import RewardConfig


def advice(config: RewardConfig, faults: Sequence[Mapping[str, Any]]) -> str:
    """Numbers of faults by kind, the last message, `start_hint`. `faults`: one or more, with `kind`
    and `message`."""
    kinds = Counter(fault["kind"] for fault in faults)
    counts = ", ".join(f"{count} x {kind}" for kind, count in kinds.most_common())
    return f"Faults: {counts}; the last: {faults[-1]['message']}\n{start_hint(config)}"


def start_hint(config: RewardConfig) -> str:
    if not config.urls:
        return "The reward model runs in this process. Train another one with: gradus train reward"
    return (
        f"Graders were asked for at {', '.join(config.urls)}. If nothing runs there, start `gradus"
        f" serve`; if it runs without workers of its own, start `gradus worker {config.judge}"
        " --redis redis://HOST:6379` on its Redis; if it is only slow, raise reward.deadline_s"
        f" ({config.deadline_s:g} s) or start more workers."
    )
