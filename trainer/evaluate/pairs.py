"""Preference pairs from graded completions: of each prompt the best against the worst. Samples and
trains nothing.

Rows are as TRL's DPO reads them: `prompt`, `chosen`, `rejected`, as texts or as messages. Faults
and completions that were never written are no answers, and are never used.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from gradus.errors import Misuse
from gradus.row_reader import stored_rows
from trainer.evaluate.completion_store import is_chat, write_lines
from trainer.rewards.judge import text_of

Form = Literal["as asked", "text", "chat"]
ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class PairingRules:
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


def pairs_of(
    answers: Iterable[Answer], choice: PairingRules, counts: Counts
) -> Iterator[dict[str, Any]]:
    """The pairs of each prompt, prompts in the order in which they come first; `counts` is kept up
    to date."""
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


def _pairs(answers: Sequence[Answer], choice: PairingRules) -> Iterator[tuple[Answer, Answer]]:
    """No completion is in two pairs. What passed goes before what did not, whatever their
    rewards."""
    ranked = sorted(answers, key=lambda answer: (not answer.passed, -answer.reward))
    for place in range(min(choice.max_per_task, len(ranked) // 2)):
        best, worst = ranked[place], ranked[-1 - place]
        is_wanted = not choice.passed_against_failed or (best.passed and not worst.passed)
        margin = best.reward - worst.reward
        if is_wanted and margin > ROUNDING and margin >= choice.min_margin - ROUNDING:
            yield best, worst


def _row(best: Answer, worst: Answer, form: Form) -> dict[str, Any]:
    prompt, has_messages = best.prompt, isinstance(best.prompt, list)
    texts: dict[str, Any] = {"chosen": best.completion, "rejected": worst.completion}
    if form == "chat" or (form == "as asked" and has_messages):
        prompt = prompt if has_messages else [{"role": "user", "content": prompt}]
        texts = {name: [{"role": "assistant", "content": text}] for name, text in texts.items()}
    elif has_messages:
        raise Misuse(
            f"{best.prompt_id}: its prompt is messages, which only a model's template makes a text"
            " of: use chat"
        )
    return {
        "prompt": prompt,
        **texts,
        "prompt_id": best.prompt_id,
        "chosen_reward": best.reward,
        "rejected_reward": worst.reward,
        "margin": round(best.reward - worst.reward, 9),
        "chosen_passed": best.passed,
        "rejected_passed": worst.passed,
    }


def read_answers(paths: Sequence[Path], counts: Counts) -> Iterator[Answer]:
    """The graded completions of evaluations' folders, run folders and files of completions.

    Raises Misuse for a row that is no graded completion; one without a verdict is counted and left
    out.
    """
    for path in paths:
        for row in stored_rows(path / "completions.jsonl" if path.is_dir() else path):
            counts.read += 1
            record = row.values
            prompt, completion = record.get("prompt"), record.get("completion")
            if is_chat(completion):  # as the trainer stores chats
                completion = text_of(completion)
            is_prompt = bool(prompt) and (isinstance(prompt, str) or is_chat(prompt))
            if not is_prompt or not isinstance(completion, str) or "reward" not in record:
                raise Misuse(
                    f"{row.where}: is no graded completion: it needs prompt, completion and reward"
                )
            reward = record["reward"]
            if record.get("fault") is not None or reward is None:
                counts.unjudged += 1
                continue
            if isinstance(reward, bool) or not isinstance(reward, int | float):
                raise Misuse(f"{row.where}: reward: is no number")
            prompt_id, is_passed = str(record.get("prompt_id") or ""), record.get("passed") is True
            yield Answer(prompt_id, prompt, completion, float(reward), is_passed)


def main(paths: Sequence[Path], out: Path, choice: PairingRules) -> int:
    """Write the pairs of graded completions to a file of JSON lines, whose path is printed last.

    Returns 1 when there is not a single pair, else 0. Raises Misuse for files that hold no graded
    completions.
    """
    counts = Counts()
    write_lines(out, list(pairs_of(read_answers(paths, counts), choice, counts)))
    print(
        f"{counts.pairs} pairs of {counts.prompts - counts.without_pair} prompts;"
        f" {counts.without_pair} prompts gave none. Of {counts.read} completions {counts.unjudged}"
        f" had no verdict and {counts.duplicates} were there twice"
    )
    print(out)
    return 0 if counts.pairs else 1
