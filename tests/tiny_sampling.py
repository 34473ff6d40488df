"""Runs of a tiny model with `task_sampling`, whose grader is a function of task and text.

Usage: torchrun ... -m tests.tiny_sampling MODEL FOLDER. Each process writes its last weights to
FOLDER/weights-RANK.pt and the tasks of its rounds to FOLDER/tasks-RANK.jsonl.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from gradus.contract import Faulted, Graded, Submission
from tests.tiny_turns import ALL_TASKS, tiny_trainer, verdict

EASY = ALL_TASKS[::2]
"""Every answer to these earns the same."""


def verdict_by_task(one: Submission) -> Graded | Faulted:
    found = verdict(one)
    easy = isinstance(found, Graded) and one.prompt in EASY
    return found.model_copy(update={"reward": 1.0, "passed": True}) if easy else found


def sampling_trainer(model: Path, output: Path, *, refill: int, **options: Any) -> Any:
    """GRPO on two groups of four completions per process and step, with what reaches the loss in
    `seen_inputs`."""
    trainer = tiny_trainer(model, output, None, verdict=verdict_by_task, tasks=ALL_TASKS, **options)
    trainer.refill_rounds = refill
    trainer.seen_inputs = []
    trainer.rounds = []
    loss_of, rewards_of = trainer._compute_loss, trainer._calculate_rewards

    def watched_loss(model: Any, inputs: Any) -> Any:
        trainer.seen_inputs.append(inputs)
        return loss_of(model, inputs)

    def watched_rewards(inputs: Any, *others: Any) -> Any:
        names = [row["prompt_id"] for row in inputs[:: trainer.num_generations]]
        trainer.rounds.append({"step": trainer.state.global_step + 1, "tasks": names})
        return rewards_of(inputs, *others)

    trainer._compute_loss = watched_loss
    trainer._calculate_rewards = watched_rewards
    return trainer


def main(model: Path, output: Path) -> None:
    import torch
    from accelerate.state import PartialState

    from trainer.runs.folder import append_lines

    torch.set_num_threads(1)
    trainer = sampling_trainer(model, output, refill=2, max_steps=3, save_strategy="no")
    trainer.train()
    rank = trainer.accelerator.process_index
    torch.save(trainer.model.state_dict(), output / f"weights-{rank}.pt")
    append_lines(output / f"tasks-{rank}.jsonl", trainer.rounds)
    PartialState().wait_for_everyone()
    os._exit(0)  # at times torch aborts while it ends the threads of gloo


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
