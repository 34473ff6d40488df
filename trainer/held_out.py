"""Measures a model on the held-out tasks during a run, as `gradus eval` does; the figures stay in the run folder.

Trains nothing; the figures and their intervals are `trainer.evaluate`'s.
"""

from __future__ import annotations

import asyncio
from typing import Any

from transformers import TrainerCallback

from trainer.config import TrainConfig
from trainer.data import Tasks
from trainer.evaluate.judging import announced
from trainer.evaluate.measure import Evaluated, Plan, Problem, evaluate, local_model
from trainer.evaluate.outcome import Evaluation, figures_path, write_outcome
from trainer.judges import client_of
from trainer.prompts import render
from trainer.ranks import is_leader
from trainer.rewards import GradingStopped, advice
from trainer.run import RunContext

BEFORE, AFTER = "before", "after"


class HeldOut(TrainerCallback):  # type: ignore[misc]
    """Measures before the first step, every so many steps, and after the last."""

    def __init__(self, run: RunContext[TrainConfig, Tasks], tokenizer: Any, max_new_tokens: int) -> None:
        config = run.config
        self._run = run
        self._problems = [
            Problem(
                example.id, render(config.prompt, example), example.judged_task, example.kind, config.prompt.opening
            )
            for example in run.data.held_out[: config.evaluation.limit]
        ]
        self._tokenizer = tokenizer
        self._max_new_tokens = max_new_tokens

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        every = self._run.config.evaluation.every_steps
        if every and state.global_step % every == 0 and state.global_step < state.max_steps:
            self.measure(model, f"step-{state.global_step}")

    def measure(self, model: Any, name: str) -> None:
        """Measure and write `eval/<name>.json`, unless it is there. Raises GradingStopped when nothing was graded."""
        asked, folder = self._run.config.evaluation, self._run.folder
        wanted = bool(self._problems) and (asked.samples > 0 or asked.greedy)
        if not wanted or not is_leader() or figures_path(folder.path, name).exists():
            return
        found = self._evaluated(model, name)
        if all(measurement.graded == 0 for measurement in found.evaluation.measurements):
            raise GradingStopped(
                f"measuring held-out tasks: none of {len(found.records)} samples could be graded. "
                + advice(self._run.config.reward, [record["fault"] for record in found.records])
            )
        write_outcome(folder.path, found.evaluation, found.records)
        self._run.say(f"held-out tasks, {name}: {_described(found.evaluation)}")

    def _evaluated(self, model: Any, name: str) -> Evaluated:
        config, client = self._run.config, client_of(self._run.config.reward)
        plan = Plan(
            grader=config.reward.judge,
            samples=config.evaluation.samples,
            temperature=config.evaluation.temperature,
            greedy=config.evaluation.greedy,
            max_new_tokens=self._max_new_tokens,
            rubric=config.reward.rubric,
            deadline_s=config.reward.deadline_s,
            seed=config.seed,
            batch_size=config.evaluation.batch_size,
        )
        return evaluate(
            local_model(model, self._tokenizer, self._max_new_tokens, config.evaluation.batch_size),
            self._problems,
            plan,
            client,
            name=name,
            model=config.model.name,
            tasks=config.data.eval_dataset or config.data.dataset,
            description=asyncio.run(announced(client, plan.grader)),
        )


def _described(evaluation: Evaluation) -> str:
    parts = []
    for found in evaluation.measurements:
        how = "greedy" if found.mode == "greedy" else f"at temperature {found.temperature:g}"
        rate = found.pass_at.get(1)
        faults = f", {found.faulted} faulted" if found.faulted else ""
        if rate is not None:
            parts.append(f"pass@1 {how} {rate.value:.1%} [{rate.low:.1%}, {rate.high:.1%}]{faults}")
    return "; ".join(parts)
