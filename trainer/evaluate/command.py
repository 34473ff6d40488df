"""`gradus eval`: asks a model for completions of tasks, has them judged, and leaves a folder with figures and a report.

The model is one in this process or one that a server has; `preparing` says how it is asked. The options are the CLI's.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console

from gradus.contract import grader_named
from trainer.config import RunConfig, TrainConfig
from trainer.evaluate.asking import Plan
from trainer.evaluate.collect import OnProgress, collect
from trainer.evaluate.console import progress_bar, table_for_terminal, troubles
from trainer.evaluate.exports import junit_of, table_of
from trainer.evaluate.folder import EvalFolder, write_tasks, write_text
from trainer.evaluate.judging import Judge
from trainer.evaluate.machine import machine
from trainer.evaluate.measure import Problem, seen
from trainer.evaluate.outcome import Evaluation, measurement_of
from trainer.evaluate.preparing import (
    Asked,
    config_of,
    examples_of,
    plan_of,
    problems_of,
    prompt_config,
    source_of,
    with_model,
)
from trainer.evaluate.report.evaluated import write_evaluation_report
from trainer.evaluate.store import Completions, opened
from trainer.rewards import Record

EXIT_GRADED, EXIT_FAULTED = 0, 3


def main(asked: Asked, tasks: Path, grader: str, judge: Judge, out: Path, rubric: str | None = None) -> int:
    """Measure a model on a task file; the figures are printed, and the path of their JSON file last.

    Returns 0 when all was written and graded, else 3. Raises Misuse, and QueueFault when model or graders are away;
    what was written until then is kept in `out`, and the same call goes on from there.
    """
    started = time.monotonic()
    name = grader_named(grader)
    asked = asyncio.run(with_model(asked))
    trained_with = config_of(asked)
    prompt = prompt_config(asked, trained_with)
    problems = problems_of(examples_of(tasks, name, asked, trained_with), prompt)
    if rubric is None and isinstance(trained_with, TrainConfig) and trained_with.reward.grader is name:
        rubric = trained_with.reward.rubric
    plan = plan_of(asked, tasks.name, problems, prompt, grader=name.value, rubric=rubric)
    folder = EvalFolder(out)
    console = Console(stderr=True)
    with opened(folder.completions, plan, fresh=asked.fresh) as store, progress_bar(console) as on_progress:
        write_tasks(folder.tasks, problems)
        records = asyncio.run(_collected(asked, trained_with, judge, problems, plan, store, on_progress))
    evaluation = evaluation_of(records, plan, name=out.resolve().name, duration_s=time.monotonic() - started)
    write_results(folder, evaluation, records)
    Console().print(table_for_terminal(evaluation))
    for line in troubles(records):
        console.print(f"gradus: {line}", highlight=False, markup=False, soft_wrap=True)
    print(folder.results)
    return EXIT_FAULTED if evaluation.faulted or evaluation.unwritten else EXIT_GRADED


async def _collected(
    asked: Asked,
    trained_with: RunConfig | None,
    judge: Judge | None,
    problems: Sequence[Problem],
    plan: Plan,
    store: Completions,
    on_progress: OnProgress,
) -> list[Record]:
    if judge is not None:
        await judge.info()  # who is away is said before a model is loaded
    return await collect(source_of(asked, plan, trained_with), judge, problems, plan, store, on_progress)


# ------------------------------------------------------------------------------------------------------ what is left


def evaluation_of(records: Sequence[Record], plan: Plan, *, name: str, duration_s: float) -> Evaluation:
    """The figures of a plan's records."""
    assert plan.grader is not None
    return Evaluation(
        name=name,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        model=plan.model,
        tasks=plan.tasks,
        tasks_sha256=plan.tasks_sha256,
        grader=plan.grader,
        graders=seen(records, "grader"),
        rubrics=seen(records, "rubric"),
        toolchains=seen(records, "toolchain"),
        seed=plan.seed,
        max_new_tokens=plan.max_new_tokens,
        duration_s=round(duration_s, 3),
        machine=machine(),
        measurements=tuple(
            measurement_of(
                [record for record in records if record["mode"] == mode],
                mode=mode,
                temperature=temperature,
                samples=samples,
                seed=plan.seed,
            )
            for mode, temperature, samples in plan.modes
        ),
        served=plan.served,
        asked_as=plan.asked_as,
        top_p=plan.top_p,
    )


def write_results(folder: EvalFolder, evaluation: Evaluation, records: Sequence[Record]) -> None:
    """Write everything that is made of the completions; the figures appear last."""
    write_text(folder.table, table_of(records))
    write_text(folder.junit, junit_of(evaluation, records))
    write_evaluation_report(evaluation, records, folder.report)
    write_text(folder.results, evaluation.model_dump_json(by_alias=True, indent=1) + "\n")
