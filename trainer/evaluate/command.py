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
from gradus.descriptions import GraderDescription, describe_offline
from gradus.whole_file import write_text
from gradus.wings import write_page
from trainer.evaluate.collect import (
    collect,
    collect_turns,
    refuse_turns,
    report_troubles,
    show_progress_bar,
)
from trainer.evaluate.completion_store import COMPLETIONS, TASKS, TURNS, open_store, write_tasks
from trainer.evaluate.exports import render_csv
from trainer.evaluate.grader_backend import Judge
from trainer.evaluate.plan import build_problems
from trainer.evaluate.results import build_evaluation, describe_evaluation
from trainer.evaluate.setup import (
    SamplingOptions,
    build_plan,
    create_source,
    get_rubric,
    load_examples,
    resolve_config,
    resolve_model,
    resolve_prompt_config,
)
from trainer.evaluate.verdicts import build_rate_test
from trainer.rewards.judge import Record

EXIT_GRADED, EXIT_FAULTED = 0, 3


def main(
    options: SamplingOptions,
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
    options = asyncio.run(resolve_model(options))
    trained_with = resolve_config(options)
    prompt = resolve_prompt_config(options, trained_with)
    problems = build_problems(load_examples(tasks, name, options, trained_with), prompt)
    rubric = rubric or get_rubric(trained_with, name)
    plan = build_plan(options, tasks.name, problems, prompt, grader=name, rubric=rubric)
    if name in shipped.TASKS:  # before a service is waited for
        refuse_turns(describe_offline(name), plan.turns)
    console = Console(stderr=True)

    async def collect_answers() -> tuple[GraderDescription, list[Record], list[Record]]:
        """Return the grader's description, the first answers, and those of later turns."""
        await judge.info()  # who is away is said before a model is loaded
        description = await judge.description()
        refuse_turns(description, plan.turns)
        for rule in description.rates.values():
            build_rate_test(rule, description.stages)  # refused before anything is asked
        source = create_source(options, plan, trained_with)
        records = await collect(source, judge, problems, plan, store, on_progress)
        if plan.turns == 1:
            return description, records, []
        with open_store(out / TURNS, plan, fresh=options.fresh) as turns:
            later = await collect_turns(source, judge, problems, records, plan, turns, on_progress)
            return description, records, later

    with (
        open_store(out / COMPLETIONS, plan, fresh=options.fresh) as store,
        show_progress_bar(console) as on_progress,
    ):
        write_tasks(out / TASKS, problems)
        description, records, later = asyncio.run(collect_answers())
    took_s = time.monotonic() - started
    evaluation = build_evaluation(
        records, plan, description, name=out.resolve().name, duration_s=took_s, later=later
    )
    results = out / "results.json"
    write_text(out / "results.csv", render_csv(records, description))
    write_text(results, evaluation.model_dump_json(by_alias=True, indent=1) + "\n")
    write_page(out / "report.html", [out])  # made of the other files
    for line in describe_evaluation(evaluation):
        print(line)
    report_troubles(console, [*records, *later])
    print(results)
    if evaluation.faulted or evaluation.unwritten or evaluation.broken:
        return EXIT_FAULTED
    return EXIT_GRADED
