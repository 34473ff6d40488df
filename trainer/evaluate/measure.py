"""`evaluate`: completions for held-out tasks from a model in this process, graded while others are being written.

A fault is kept apart from a wrong answer: it is in no rate and is counted. It trains nothing and writes no file.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from gradus.client import RewardClient
from gradus.contract import Faulted, Graded
from gradus.descriptions import GraderDescription, description_of
from gradus.errors import Misuse
from gradus.tasks.base import Task
from trainer.evaluate.details import is_judged
from trainer.evaluate.machine import machine
from trainer.evaluate.outcome import Evaluation, Measurement, Mode, measurement_of, record_of
from trainer.prompts import Prompt, with_opening
from trainer.rewards import Record, clean

Generate = Callable[[Sequence[Prompt], int, float, int], list[list[str]]]
"""(prompts, completions per prompt, temperature, seed) -> the completions of each prompt, in order."""
OnProgress = Callable[[Mode, int, int], None]
"""(mode, completions graded so far, of how many)."""

CHUNKS_AHEAD = 3
"""Chunks that wait for their grades while the next one is written."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One held-out task with its prompt as the model reads it."""

    id: str
    prompt: Prompt
    task: Task | None
    """None where nothing is judged."""
    kind: str | None = None
    opening: str = ""
    """What the prompt has already written of each completion."""
    difficulty: str | None = None
    stub: str | None = None
    """The code that an answer starts from."""
    tools: Sequence[Mapping[str, Any]] | None = None
    """That are declared to the model, with messages."""

    @property
    def text(self) -> str:
        if isinstance(self.prompt, str):
            return self.prompt
        return "\n\n".join(f"[{message['role']}]\n{message['content']}" for message in self.prompt)


@dataclass(frozen=True, slots=True)
class Plan:
    """How to measure. Raises Misuse for numbers that make no sense."""

    grader: str
    samples: int = 4
    """Completions per task at `temperature`; 0 leaves them out."""
    temperature: float = 1.0
    greedy: bool = True
    """Also one completion per task without sampling."""
    max_new_tokens: int = 256
    rubric: str | None = None
    deadline_s: float = 300.0
    """For one chunk of completions, from when it was written."""
    seed: int = 0
    batch_size: int = 256
    """Completions written at once."""

    def __post_init__(self) -> None:
        if self.samples < 0 or self.max_new_tokens < 1 or self.batch_size < 1:
            raise Misuse("samples must be 0 or more, max_new_tokens and batch_size at least 1")
        if self.samples and not 0 < self.temperature < 100:
            raise Misuse(f"temperature must be over 0 to sample, not {self.temperature:g}; greedy is measured anyway")
        if not self.samples and not self.greedy:
            raise Misuse("samples is 0 and greedy is off: there is nothing to measure")

    @property
    def modes(self) -> tuple[tuple[Mode, float, int], ...]:
        """(mode, temperature, completions per task)."""
        sampled: tuple[tuple[Mode, float, int], ...] = (("sampled", self.temperature, self.samples),)
        return (sampled if self.samples else ()) + ((("greedy", 0.0, 1),) if self.greedy else ())


@dataclass(frozen=True, slots=True)
class Evaluated:
    evaluation: Evaluation
    records: list[Record]


def evaluate(
    generate: Generate,
    problems: Sequence[Problem],
    plan: Plan,
    client: RewardClient,
    *,
    name: str,
    model: str,
    tasks: str,
    description: GraderDescription | None = None,
    on_progress: OnProgress | None = None,
) -> Evaluated:
    """Measure a model on `problems`. `name`, `model` and `tasks` only say in the figures what was measured.

    `description` is the grader's, by default the one that this version knows.

    Raises Misuse for no problems or two with one id, and for what the contract refuses; a service that is away
    becomes faults.
    """
    if not problems or len({problem.id for problem in problems}) != len(problems):
        raise Misuse(f"{tasks}: an evaluation needs at least one task, each with an id of its own")
    started = time.monotonic()
    description = description or description_of(plan.grader)
    records, measurements = asyncio.run(_measure(generate, problems, plan, client, description, on_progress))
    evaluation = Evaluation(
        name=name,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        model=model,
        tasks=tasks,
        tasks_sha256=fingerprint(problems),
        grader=plan.grader,
        graders=seen(records, "grader"),
        rubrics=seen(records, "rubric"),
        toolchains=seen(records, "toolchain"),
        seed=plan.seed,
        max_new_tokens=plan.max_new_tokens,
        duration_s=round(time.monotonic() - started, 3),
        machine=machine(),
        measurements=tuple(measurements),
        grader_description=description,
    )
    return Evaluated(evaluation, records)


def local_model(model: Any, tokenizer: Any, max_new_tokens: int, batch_size: int) -> Generate:
    """`Generate` from a model and a tokenizer in this process."""
    from trainer.sample import sample

    def generate(prompts: Sequence[Prompt], k: int, temperature: float, seed: int) -> list[list[str]]:
        return sample(model, tokenizer, prompts, k, temperature, max_new_tokens, batch_size=batch_size, seed=seed)

    return generate


# -------------------------------------------------------------------------------------------------------- one round


async def _measure(
    generate: Generate,
    problems: Sequence[Problem],
    plan: Plan,
    client: RewardClient,
    description: GraderDescription,
    on_progress: OnProgress | None,
) -> tuple[list[Record], list[Measurement]]:
    records: list[Record] = []
    measurements = []
    async with client:
        for mode, temperature, k in plan.modes:
            found = await _Round(generate, plan, client, mode, temperature, k, len(problems) * k, on_progress).run(
                problems
            )
            measurements.append(
                measurement_of(
                    found, mode=mode, temperature=temperature, samples=k, seed=plan.seed, description=description
                )
            )
            records += found
    return records, measurements


@dataclass(slots=True)
class _Round:
    """All problems in one mode."""

    generate: Generate
    plan: Plan
    client: RewardClient
    mode: Mode
    temperature: float
    k: int
    total: int
    on_progress: OnProgress | None
    done: int = 0

    async def run(self, problems: Sequence[Problem]) -> list[Record]:
        """The records in the order of the problems. A chunk is graded while the next ones are written."""
        slots = asyncio.Semaphore(CHUNKS_AHEAD)
        grading: list[asyncio.Task[list[Record]]] = []
        try:
            size = max(1, self.plan.batch_size // self.k)
            for start in range(0, len(problems), size):
                chunk = problems[start : start + size]
                await slots.acquire()
                prompts = [problem.prompt for problem in chunk]
                seed = self.plan.seed + start
                written = await asyncio.to_thread(self.generate, prompts, self.k, self.temperature, seed)
                grading.append(asyncio.create_task(self._grade(chunk, written, slots)))
            return [record for found in await asyncio.gather(*grading) for record in found]
        finally:
            for task in grading:
                task.cancel()

    async def _grade(
        self, chunk: Sequence[Problem], written: list[list[str]], slots: asyncio.Semaphore
    ) -> list[Record]:
        asked = [
            (problem, index, clean(completion))
            for problem, completions in zip(chunk, written, strict=True)
            for index, completion in enumerate(completions)
        ]
        submissions = [
            {
                "id": f"{n}",
                "prompt": problem.text,
                "completion": clean(with_opening(problem.opening, completion)),
                "task": problem.task,
            }
            for n, (problem, _, completion) in enumerate(asked)
        ]
        try:
            results = await self.client.grade(
                self.plan.grader,
                submissions,
                rubric=self.plan.rubric,
                deadline_s=self.plan.deadline_s,
                on_result=self._count,
            )
        finally:
            slots.release()
        return [
            record_of(
                result,
                mode=self.mode,
                task_id=problem.id,
                kind=problem.kind,
                sample=index,
                prompt=problem.text,
                completion=completion,
            )
            for (problem, index, completion), result in zip(asked, results, strict=True)
        ]

    def _count(self, _: int, __: Graded | Faulted) -> None:
        self.done += 1
        if self.on_progress is not None:
            self.on_progress(self.mode, self.done, self.total)


def seen(records: Sequence[Record], column: str) -> tuple[str, ...]:
    """What verdicts have in a column, such as the graders that made them."""
    return tuple(sorted({record[column] for record in records if is_judged(record)}))


def fingerprint(problems: Sequence[Problem]) -> str:
    """Of tasks as they are asked, prompts and tests."""
    content = [
        [problem.id, problem.text, problem.task.model_dump(mode="json") if problem.task else None]
        for problem in problems
    ]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
