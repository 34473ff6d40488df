"""Commands on files of tasks: `gradus tasks ...`."""

from __future__ import annotations

from typing import Annotated

import typer

from gradus.cli.application import Config, Quiet, Slots, load_grader, say, tasks_app, with_progress
from gradus.errors import Misuse


@tasks_app.command("validate")
def validate_tasks(
    file: Annotated[
        str, typer.Argument(help="JSONL, JSON or CSV with id, prompt, tests or references, solution, stub ...")
    ],
    grader: Annotated[str, typer.Option(help="Which grader judges these tasks")] = "ocaml",
    slots: Slots = None,
    config: Config = None,
    quiet: Quiet = False,
) -> None:
    """Check that every task can be used to train on.

    Fields and duplicates; tests parse and type-check; the reference answer gets full marks; the stub and an empty
    answer do not. For stories: the references, given as the answer, earn 0.9, a solution 0.5, stub and empty answer
    less; no reference stands in the prompt. Prints one line per problem. Exit status 0 when all are usable, 1 when
    some are not.
    """
    from gradus.contract import grader_named
    from gradus.rows import read_rows
    from services.admission import validate

    name = grader_named(grader)
    rows = list(read_rows(file))
    if not rows:
        raise Misuse(f"{file}: holds no rows")
    loaded = load_grader(name.value, config)
    loaded.prove()
    bad = 0
    for finding in with_progress(validate(rows, name, loaded, slots), len(rows), "validating", quiet):
        for problem in finding.problems:
            print(f"{finding.where}: {finding.task_id}: {problem}", flush=True)
        for warning in finding.warnings:
            say(f"{finding.where}: {finding.task_id}: warning: {warning}")
        bad += bool(finding.problems)
    print(f"{len(rows) - bad} of {len(rows)} tasks are usable")
    if bad:
        raise typer.Exit(1)
