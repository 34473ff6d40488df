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

from gradus.descriptions import GraderDescription, description_of
from gradus.tasks import TASKS
from trainer.config import TrainConfig
from trainer.evaluate.again import collect_turns, refuse_turns
from trainer.evaluate.asking import Plan, Source, asks_of
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
from trainer.evaluate.stages import rate_test
from trainer.evaluate.store import Completions, opened
from trainer.evaluate.turns import turns_of
from trainer.rewards import Record

EXIT_GRADED, EXIT_FAULTED = 0, 3


def main(asked: Asked, tasks: Path, grader: str, judge: Judge, out: Path, rubric: str | None = None) -> int:
    """Measure a model on a task file; the figures are printed, and the path of their JSON file last.

    Returns 0 when all was written and graded, else 3. Raises Misuse, and QueueFault when model or graders are away;
    what was written until then is kept in `out`, and the same call goes on from there.
    """
    started = time.monotonic()
    name = asyncio.run(judge.known(grader))
    asked = asyncio.run(with_model(asked))
    trained_with = config_of(asked)
    prompt = prompt_config(asked, trained_with)
    problems = problems_of(examples_of(tasks, name, asked, trained_with), prompt)
    if rubric is None and isinstance(trained_with, TrainConfig) and trained_with.reward.grader == name:
        rubric = trained_with.reward.rubric
    plan = plan_of(asked, tasks.name, problems, prompt, grader=name, rubric=rubric)
    if name in TASKS:  # before a service is waited for
        refuse_turns(description_of(name), plan.turns)
    folder = EvalFolder(out)
    console = Console(stderr=True)
    with opened(folder.completions, plan, fresh=asked.fresh) as store, progress_bar(console) as on_progress:
        write_tasks(folder.tasks, problems)
        source = source_of(asked, plan, trained_with)
        description, records, later = asyncio.run(
            _collected(source, judge, problems, plan, store, folder, on_progress, asked.fresh)
        )
    took_s = time.monotonic() - started
    evaluation = evaluation_of(records, plan, description, name=out.resolve().name, duration_s=took_s, later=later)
    write_results(folder, evaluation, records, later)
    Console().print(table_for_terminal(evaluation))
    for line in troubles([*records, *later]):
        console.print(f"gradus: {line}", highlight=False, markup=False, soft_wrap=True)
    print(folder.results)
    return EXIT_FAULTED if evaluation.faulted or evaluation.unwritten or evaluation.broken else EXIT_GRADED


async def _collected(
    source: Source,
    judge: Judge,
    problems: Sequence[Problem],
    plan: Plan,
    store: Completions,
    folder: EvalFolder,
    on_progress: OnProgress,
    fresh: bool,
) -> tuple[GraderDescription, list[Record], list[Record]]:
    """The grader's description, the first answers, and those of later turns."""
    await judge.info()  # who is away is said before a model is loaded
    description = await judge.description()
    refuse_turns(description, plan.turns)
    for rule in description.rates.values():
        rate_test(rule, description.stages)  # a rule that cannot be applied is refused before anything is asked
    records = await collect(source, judge, problems, plan, store, on_progress)
    if plan.turns == 1:
        return description, records, []
    with opened(folder.turns, plan, fresh=fresh) as turns:
        firsts = list(zip(asks_of(problems, plan), records, strict=True))
        return description, records, await collect_turns(source, judge, firsts, plan, turns, on_progress)


# ------------------------------------------------------------------------------------------------------ what is left


def evaluation_of(
    records: Sequence[Record],
    plan: Plan,
    description: GraderDescription | None = None,
    *,
    name: str,
    duration_s: float,
    later: Sequence[Record] = (),
) -> Evaluation:
    """The figures of a plan's records; `later` are those of turns after the first.

    `description` is the grader's, by default the one that this version knows.
    """
    assert plan.grader is not None
    description = description or description_of(plan.grader)
    judged = [*records, *later]
    return Evaluation(
        name=name,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        model=plan.model,
        tasks=plan.tasks,
        tasks_sha256=plan.tasks_sha256,
        grader=plan.grader,
        graders=seen(judged, "grader"),
        rubrics=seen(judged, "rubric"),
        toolchains=seen(judged, "toolchain"),
        seed=plan.seed,
        max_new_tokens=plan.max_new_tokens,
        duration_s=round(duration_s, 3),
        machine=machine(),
        measurements=tuple(
            measurement_of(
                _of(mode, records),
                mode=mode,
                temperature=temperature,
                samples=samples,
                seed=plan.seed,
                turns=turns_of(_of(mode, records), _of(mode, later), plan.turns, description, seed=plan.seed)
                if plan.turns > 1
                else None,
                description=description,
            )
            for mode, temperature, samples in plan.modes
        ),
        served=plan.served,
        asked_as=plan.asked_as,
        top_p=plan.top_p,
        grader_description=description,
    )


def _of(mode: str, records: Sequence[Record]) -> list[Record]:
    return [record for record in records if record["mode"] == mode]


def write_results(
    folder: EvalFolder, evaluation: Evaluation, records: Sequence[Record], later: Sequence[Record] = ()
) -> None:
    """Write everything that is made of the completions; the figures appear last."""
    write_text(folder.table, table_of(records))
    write_text(folder.junit, junit_of(evaluation, records))
    write_evaluation_report(evaluation, records, folder.report, later)
    write_text(folder.results, evaluation.model_dump_json(by_alias=True, indent=1) + "\n")
