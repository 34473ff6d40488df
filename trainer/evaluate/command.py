"""`gradus eval`: asks a model for completions of tasks, has them judged, and leaves a folder with
figures and a report.

The model is one in this process or one that a server has; `setup` says how it is asked. The
options are the CLI's.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from rich.console import Console

from gradus import tasks as shipped
from gradus.descriptions import GraderDescription, description_of
from gradus.whole_file import write_text
from gradus.wings import write_page
from trainer.evaluate.collect import (
    collect,
    collect_turns,
    progress_bar,
    refuse_turns,
    say_troubles,
)
from trainer.evaluate.completion_store import COMPLETIONS, TASKS, TURNS, opened, write_tasks
from trainer.evaluate.exports import table_of
from trainer.evaluate.grader_backend import Judge
from trainer.evaluate.plan import problems_of
from trainer.evaluate.results import described, evaluation_of
from trainer.evaluate.setup import (
    SamplingOptions,
    config_of,
    examples_of,
    plan_of,
    prompt_config,
    rubric_of,
    source_of,
    with_model,
)
from trainer.evaluate.verdicts import rate_test
from trainer.rewards.judge import Record

EXIT_GRADED, EXIT_FAULTED = 0, 3


def main(
    asked: SamplingOptions,
    tasks: Path,
    grader: str,
    judge: Judge,
    out: Path,
    rubric: str | None = None,
) -> int:
    """Measure a model on a task file; the figures are printed, and the path of their JSON file
    last.

    Returns 0 when all was written and graded, else 3. Raises Misuse, and QueueFault when model or
    graders are away; what was written until then is kept in `out`, and the same call resumes from
    there.
    """
    started = time.monotonic()
    name = asyncio.run(judge.known(grader))
    asked = asyncio.run(with_model(asked))
    trained_with = config_of(asked)
    prompt = prompt_config(asked, trained_with)
    problems = problems_of(examples_of(tasks, name, asked, trained_with), prompt)
    rubric = rubric or rubric_of(trained_with, name)
    plan = plan_of(asked, tasks.name, problems, prompt, grader=name, rubric=rubric)
    if name in shipped.TASKS:  # before a service is waited for
        refuse_turns(description_of(name), plan.turns)
    console = Console(stderr=True)

    async def collected() -> tuple[GraderDescription, list[Record], list[Record]]:
        """The grader's description, the first answers, and those of later turns."""
        await judge.info()  # who is away is said before a model is loaded
        description = await judge.description()
        refuse_turns(description, plan.turns)
        for rule in description.rates.values():
            rate_test(rule, description.stages)  # refused before anything is asked
        source = source_of(asked, plan, trained_with)
        records = await collect(source, judge, problems, plan, store, on_progress)
        if plan.turns == 1:
            return description, records, []
        with opened(out / TURNS, plan, fresh=asked.fresh) as turns:
            later = await collect_turns(source, judge, problems, records, plan, turns, on_progress)
            return description, records, later

    with (
        opened(out / COMPLETIONS, plan, fresh=asked.fresh) as store,
        progress_bar(console) as on_progress,
    ):
        write_tasks(out / TASKS, problems)
        description, records, later = asyncio.run(collected())
    took_s = time.monotonic() - started
    evaluation = evaluation_of(
        records, plan, description, name=out.resolve().name, duration_s=took_s, later=later
    )
    results = out / "results.json"
    write_text(out / "results.csv", table_of(records, description))
    write_text(results, evaluation.model_dump_json(by_alias=True, indent=1) + "\n")
    write_page(out / "report.html", [out])  # made of the other files
    for line in described(evaluation):
        print(line)
    say_troubles(console, [*records, *later])
    print(results)
    return (
        EXIT_FAULTED
        if evaluation.faulted or evaluation.unwritten or evaluation.broken
        else EXIT_GRADED
    )
