"""Preference pairs from graded completions: of each prompt the best against the worst. Samples and trains nothing.

Rows are as TRL's DPO reads them: `prompt`, `chosen`, `rejected`, as texts or as messages. Faults and completions that
were never written are no answers, and are never used.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from gradus.errors import Misuse
from trainer.evaluate.store import stored_rows, write_lines

Form = Literal["as asked", "text", "chat"]
ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Choice:
    """What makes a pair."""

    min_margin: float = 0.05
    """Rewards must differ by at least so much."""
    max_per_task: int = 1
    """Best with worst, then the second of both, and so on."""
    passed_against_failed: bool = False
    """Only a completion that passed is chosen, only one that did not is rejected."""
    form: Form = "as asked"
    """text or chat, whatever the prompts are stored as."""

    def __post_init__(self) -> None:
        if not 0 <= self.min_margin <= 1 or self.max_per_task < 1:
            raise Misuse("min-margin must be 0 to 1 and max-per-task at least 1")


@dataclass(frozen=True, slots=True)
class Answer:
    """One graded completion of a prompt."""

    prompt_id: str
    prompt: Any
    """A text, or messages."""
    completion: str
    reward: float
    passed: bool


@dataclass(slots=True)
class Counts:
    """What became of the records."""

    read: int = 0
    unjudged: int = 0
    """Faults and generation errors."""
    duplicates: int = 0
    prompts: int = 0
    without_pair: int = 0
    pairs: int = 0


def pairs_of(answers: Iterable[Answer], choice: Choice, counts: Counts) -> Iterator[dict[str, Any]]:
    """The pairs of each prompt, prompts in the order in which they come first; `counts` is kept up to date."""
    groups: dict[str, dict[str, Answer]] = {}
    for answer in answers:
        group = groups.setdefault(json.dumps([answer.prompt_id, answer.prompt], sort_keys=True), {})
        counts.duplicates += answer.completion in group
        group.setdefault(answer.completion, answer)
    counts.prompts = len(groups)
    for group in groups.values():
        found = list(_pairs(list(group.values()), choice))
        counts.without_pair += not found
        counts.pairs += len(found)
        yield from (_row(best, worst, choice.form) for best, worst in found)


def _pairs(answers: Sequence[Answer], choice: Choice) -> Iterator[tuple[Answer, Answer]]:
    """No completion is in two pairs. What passed goes before what did not, whatever their rewards."""
    ranked = sorted(answers, key=lambda answer: (not answer.passed, -answer.reward))
    for place in range(min(choice.max_per_task, len(ranked) // 2)):
        best, worst = ranked[place], ranked[-1 - place]
        wanted = best.passed and not worst.passed if choice.passed_against_failed else True
        margin = best.reward - worst.reward
        if wanted and margin > ROUNDING and margin >= choice.min_margin - ROUNDING:
            yield best, worst


def _row(best: Answer, worst: Answer, form: Form) -> dict[str, Any]:
    is_chat = isinstance(best.prompt, list) if form == "as asked" else form == "chat"
    prompt, chosen, rejected = best.prompt, best.completion, worst.completion
    row: dict[str, Any] = {"prompt": prompt, "chosen": chosen, "rejected": rejected}
    if is_chat:
        asked = prompt if isinstance(prompt, list) else [{"role": "user", "content": prompt}]
        said = ([{"role": "assistant", "content": text}] for text in (chosen, rejected))
        row = {"prompt": asked, **dict(zip(("chosen", "rejected"), said, strict=True))}
    elif isinstance(prompt, list):
        raise Misuse(
            f"{best.prompt_id}: its prompt is messages, which only a model's template makes a text of: use chat"
        )
    return {
        **row,
        "prompt_id": best.prompt_id,
        "chosen_reward": best.reward,
        "rejected_reward": worst.reward,
        "margin": round(best.reward - worst.reward, 9),
        "chosen_passed": best.passed,
        "rejected_passed": worst.passed,
    }


# ----------------------------------------------------------------------------------------------------------- reading


def read_answers(paths: Sequence[Path], counts: Counts) -> Iterator[Answer]:
    """The graded completions of evaluations' folders, run folders and files of completions. Raises Misuse."""
    for path in paths:
        file = path / "completions.jsonl" if path.is_dir() else path
        for row in stored_rows(file):
            counts.read += 1
            answer = _answer(row.values, row.where)
            counts.unjudged += answer is None
            if answer is not None:
                yield answer


def _answer(record: Mapping[str, Any], where: str) -> Answer | None:
    """None for what has no verdict. Raises Misuse for what is no graded completion at all."""
    prompt, completion = record.get("prompt"), _text(record.get("completion"))
    if not _is_prompt(prompt) or completion is None or "reward" not in record:
        raise Misuse(f"{where}: is no graded completion: it needs prompt, completion and reward")
    reward, passed = record["reward"], record.get("passed")
    if record.get("fault") is not None or reward is None:
        return None
    if isinstance(reward, bool) or not isinstance(reward, int | float):
        raise Misuse(f"{where}: reward: is no number")
    return Answer(str(record.get("prompt_id") or ""), prompt, completion, float(reward), passed is True)


def _text(completion: Any) -> str | None:
    """A completion that is one message is that message's text, as the trainer stores chats."""
    if isinstance(completion, list) and all(isinstance(turn, Mapping) for turn in completion):
        return "".join(str(turn.get("content") or "") for turn in completion)
    return completion if isinstance(completion, str) else None


def _is_prompt(prompt: Any) -> bool:
    if isinstance(prompt, list):
        return bool(prompt) and all(
            isinstance(turn, Mapping) and isinstance(turn.get("content"), str) for turn in prompt
        )
    return isinstance(prompt, str) and bool(prompt)


# ------------------------------------------------------------------------------------------------- the command's part


def main(paths: Sequence[Path], out: Path, choice: Choice) -> int:
    """Write the pairs of graded completions to a file of JSON lines, whose path is printed last.

    Returns 1 when there is not a single pair, else 0. Raises Misuse for files that hold no graded completions.
    """
    counts = Counts()
    write_lines(out, list(pairs_of(read_answers(paths, counts), choice, counts)))
    print(
        f"{counts.pairs} pairs of {counts.prompts - counts.without_pair} prompts; "
        f"{counts.without_pair} prompts gave none. "
        f"Of {counts.read} completions {counts.unjudged} had no verdict and {counts.duplicates} were there twice"
    )
    print(out)
    return 0 if counts.pairs else 1
