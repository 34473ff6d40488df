"""Preference pairs from graded completions: of each prompt the best against the worst. Samples and
trains nothing.

Rows are as TRL's DPO reads them: `prompt`, `chosen`, `rejected`, as texts or as messages. Faults
and completions that were never written are no answers, and are never used.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from gradus.errors import Misuse
from gradus.row_reader import read_stored_rows
from trainer.evaluate.completion_store import COMPLETIONS, is_chat, write_lines
from trainer.evaluate.verdicts import is_passed
from trainer.rewards.judge import Record, get_completion_text

ROUNDING = 1e-9


def build_preference_pairs(
    answers: Iterable[Record], min_margin: float, max_per_task: int
) -> Iterator[dict[str, Any]]:
    """Yield the pairs of each prompt: best with worst, then the second of both, and so on.

    No completion is in two pairs. What passed goes before what did not, whatever their rewards.
    """
    groups: dict[str, dict[str, Record]] = {}
    for answer in answers:
        prompt = json.dumps([answer["prompt_id"], answer["prompt"]], sort_keys=True)
        groups.setdefault(prompt, {}).setdefault(answer["completion"], answer)
    for group in groups.values():
        ranked = sorted(
            group.values(), key=lambda record: (not record["passed"], -record["reward"])
        )
        for place in range(min(max_per_task, len(ranked) // 2)):
            row = _build_row(ranked[place], ranked[-1 - place])
            if row["margin"] > ROUNDING and row["margin"] >= min_margin - ROUNDING:
                yield row


def _build_row(best: Record, worst: Record) -> dict[str, Any]:
    texts: dict[str, Any] = {"chosen": best["completion"], "rejected": worst["completion"]}
    if isinstance(best["prompt"], list):
        texts = {name: [{"role": "assistant", "content": text}] for name, text in texts.items()}
    return {
        "prompt": best["prompt"],
        **texts,
        "prompt_id": best["prompt_id"],
        "chosen_reward": best["reward"],
        "rejected_reward": worst["reward"],
        "margin": round(best["reward"] - worst["reward"], 9),
        "chosen_passed": best["passed"],
        "rejected_passed": worst["passed"],
    }


def read_answers(paths: Sequence[Path]) -> Iterator[Record]:
    """Yield the graded completions of evaluations' folders, run folders and files of completions.

    Raises Misuse for a row that is no graded completion; one without a verdict is left out.
    """
    for path in paths:
        for row in read_stored_rows(path / COMPLETIONS if path.is_dir() else path):
            record = row.values
            prompt = record.get("prompt")
            completion = record.get("completion")
            if is_chat(completion):  # as the trainer stores chats
                completion = get_completion_text(completion)
            is_prompt = bool(prompt) and (isinstance(prompt, str) or is_chat(prompt))
            if not is_prompt or not isinstance(completion, str) or "reward" not in record:
                raise Misuse(
                    f"{row.where}: is no graded completion: it needs prompt, completion and reward"
                )
            reward = record["reward"]
            if record.get("fault") is not None or reward is None:
                continue
            if isinstance(reward, bool) or not isinstance(reward, int | float):
                raise Misuse(f"{row.where}: reward: is no number")
            yield {
                "prompt_id": str(record.get("prompt_id") or ""),
                "prompt": prompt,
                "completion": completion,
                "reward": reward,
                "passed": is_passed(record),
            }


def main(paths: Sequence[Path], out: Path, min_margin: float, max_per_task: int) -> int:
    """Write the pairs of graded completions to a file of JSON lines, whose path is printed last.

    Returns 1 when there is not a single pair, else 0. Raises Misuse for files that hold no graded
    completions.
    """
    if not 0 <= min_margin <= 1:
        raise Misuse("min-margin must be 0 to 1")
    answers = list(read_answers(paths))
    pairs = list(build_preference_pairs(answers, min_margin, max_per_task))
    write_lines(out, pairs)
    print(f"{len(pairs)} pairs of {len(answers)} completions with a verdict")
    print(out)
    return 0 if pairs else 1
