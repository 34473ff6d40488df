"""Short training runs in two processes, in each of which one process meets one error at one place.
Both print a line of JSON for each run: how it ended there.

Usage: torchrun --nproc_per_node 2 -m tests.failing_ranks CONFIG OUTPUT_DIR
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import trl

from gradus.errors import Misuse, QueueFault
from trainer.evaluate.local import LocalModel
from trainer.rewards.judge import CompletionsFile, GradingStopped, Judge
from trainer.rollouts.rollout import Rollout
from trainer.train import main as train

TURNS = ("--turns.max", "2", "--prompt.style", "chat")
MEASURED = (
    *("--data.held_out", "0.25", "--evaluation.samples", "2"),
    *("--evaluation.every_steps", "2", "--evaluation.batch_size", "1"),
)
PLACES: dict[str, tuple[type[Any], str, tuple[str, ...]]] = {
    "grading": (Judge, "collect_results", ()),
    "generation": (trl.GRPOTrainer, "_generate_single_turn", ()),
    "completions": (CompletionsFile, "write_round", ()),
    "measuring": (LocalModel, "write_batch", MEASURED),
    "turns": (Rollout, "_grade", TURNS),
}
"""Where a process works by itself: the method that fails there, and options that lead there."""
WHOLE_CALLS = {"measuring": 3}
"""So many calls succeed, 2 where nothing is said: two steps, and what is measured before them."""
ERRORS: dict[str, Callable[[], Exception]] = {
    "misuse": lambda: Misuse("the key is not accepted"),
    "fault": lambda: QueueFault("the queue is away"),
    "stopped": lambda: GradingStopped("nothing was graded"),
    "disk": lambda: OSError(28, "No space left on device"),
    "defect": lambda: KeyError("verdict"),
}


@contextmanager
def failing(
    kind: type[Any], name: str, error: Callable[[], Exception], calls: int
) -> Iterator[None]:
    """Inside the block, that method fails from its call number `calls` + 1 on."""
    original = getattr(kind, name)
    done = 0

    def fail(self: Any, *arguments: Any, **options: Any) -> Any:
        nonlocal done
        done += 1
        if done > calls:
            raise error()
        return original(self, *arguments, **options)

    setattr(kind, name, fail)
    try:
        yield
    finally:
        setattr(kind, name, original)


def run(config: Path, folder: Path, place: str, failure: str, rank: int) -> dict[str, Any]:
    """Train until the failure, and return how it ended in this process."""
    kind, name, overrides = PLACES[place]
    output_dir = folder / f"{place}-{failure}-{rank}"
    options = ("--output_dir", str(output_dir), "--max_steps", "6", *overrides)
    mine = rank == int(os.environ["RANK"])
    message = ""
    status: int | None = None
    with failing(kind, name, ERRORS[failure], WHOLE_CALLS.get(place, 2) if mine else sys.maxsize):
        try:
            status = train(config, options)
        except Exception as error:  # noqa: BLE001 - what it is, is what the test asks
            message = f"{type(error).__name__}: {error}"
    checkpoints = sorted(path.name for path in output_dir.glob("checkpoint-*"))
    return {
        "run": output_dir.name,
        "status": status,
        "message": message,
        "checkpoints": checkpoints,
    }


if __name__ == "__main__":
    for place in PLACES:
        for failure in ERRORS:
            for rank in (0, 1):
                line = run(Path(sys.argv[1]), Path(sys.argv[2]), place, failure, rank)
                print(json.dumps(line) + "\n", end="", flush=True)
