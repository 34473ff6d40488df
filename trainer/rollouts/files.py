"""Lines of completions.jsonl and turns.jsonl for chains."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from trainer.rewards.judge import Record, outcome_of
from trainer.rollouts.chain import Chain


def records_of_turns(
    step: int, chains: Sequence[Chain], advantages_BK: Sequence[Sequence[float]]
) -> list[Record]:
    """A line per answer, in the order of the chains; `sample` counts within the group of one task.

    `said` is the user's message before the answer, null for the first. `stopped` stands in the last
    line of a chain.
    """
    return [
        {
            **where,
            "turn": number,
            "said": turn.said,
            "completion": turn.text,
            "tokens": turn.end - turn.start,
            **outcome_of(turn.result),
            "advantage": advantages[number - 1],
            "stopped": chain.stopped if number == len(chain.turns) else None,
        }
        for where, chain, advantages in _placed(step, chains, advantages_BK)
        for number, turn in enumerate(chain.turns, start=1)
    ]


def records_of_chains(
    step: int, chains: Sequence[Chain], advantages_BK: Sequence[Sequence[float]]
) -> list[Record]:
    """A line per chain with its last answer, in the form of a run of single turns, and the number
    of its turns."""
    return [
        {
            **where,
            "prompt": chain.prompt,
            "completion": chain.turns[-1].text,
            **outcome_of(chain.turns[-1].result),
            "turns": len(chain.turns),
            "stopped": chain.stopped,
            "advantage": advantages[len(chain.turns) - 1],
        }
        for where, chain, advantages in _placed(step, chains, advantages_BK)
    ]


def _placed(
    step: int, chains: Sequence[Chain], advantages_BK: Sequence[Sequence[float]]
) -> Iterator[tuple[Record, Chain, Sequence[float]]]:
    counts: Counter[str] = Counter()
    for chain, advantages in zip(chains, advantages_BK, strict=True):
        yield (
            {"step": step, "prompt_id": chain.task, "sample": counts[chain.task]},
            chain,
            advantages,
        )
        counts[chain.task] += 1
