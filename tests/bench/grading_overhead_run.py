"""One run of `tests.bench.grading_overhead`: the demo's training at a learning rate of 0, its steps
graded in turns."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gradus.resources import configs
from tests.bench.ocaml import cpu_of_tree
from trainer.rewards import judges
from trainer.rewards.judge import Judge, Sample
from trainer.runs.progress import StepClock
from trainer.stages import rl
from trainer.train import main

KINDS = CONSTANT, GRADED, LATE = ("constant", "graded", "graded late")
"""`graded late`: everything is sent when the last completion is written, as with `reward.early:
false`."""
FIXED = [
    "--learning_rate",
    "0",
    "--warm_start",
    "null",
    "--evaluation.samples",
    "0",
    "--evaluation.greedy",
    "false",
]


class InTurns(Judge):
    """Grades as the kind of the step says; the order of kinds changes from turn to turn."""

    kinds: Sequence[str] = ()
    step = 0

    @classmethod
    def kind(cls) -> str:
        turn = cls.step // len(cls.kinds)
        return cls.kinds[(cls.step + turn) % len(cls.kinds)]

    async def compute_rewards(
        self, prompts: Sequence[Any], completions: Sequence[Any], **columns: Any
    ) -> list[float | None]:
        if self.kind() == CONSTANT:
            return [1.0] * len(completions)
        return await super().compute_rewards(prompts, completions, **columns)

    def send_ahead(self, asked: Iterable[Sample]) -> None:
        if self.kind() == GRADED:
            super().send_ahead(asked)


class CpuClock(StepClock):
    """Tells a step's kind and what CPU it took, by whom, beside its times; the next step is of the
    next kind."""

    watched: Mapping[str, Sequence[int]] = {}
    """Process numbers, by what they do."""
    _before: Mapping[str, float] = {}

    def take(self) -> dict[str, Any]:
        now = {name: sum(map(cpu_of_tree, pids)) for name, pids in self.watched.items()}
        now["trainer"] = time.process_time()
        spent = {
            f"{name}_cpu_s": cpu_s - self._before.get(name, cpu_s) for name, cpu_s in now.items()
        }
        line = {**super().take(), **spent, "kind": InTurns.kind()}
        self._before = now
        InTurns.step += 1
        return line


if __name__ == "__main__":
    kinds, watched, *overrides = sys.argv[1:]
    InTurns.kinds = kinds.split(",")
    CpuClock.watched = json.loads(watched)
    judges.Judge = InTurns  # type: ignore[misc]
    rl.StepClock = CpuClock  # type: ignore[misc]
    sys.exit(main(configs() / "train" / "demo_ocaml_vllm.yaml", [*FIXED, *overrides]))
