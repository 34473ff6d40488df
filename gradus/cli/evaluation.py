"""Commands that measure models: `gradus eval`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gradus.cli.application import app


@app.command("eval")
def evaluate(
    model: Annotated[str, typer.Argument(help="Folder or name of a model")],
    tasks: Annotated[Path, typer.Argument(help="File of tasks, for example configs/tasks/ocaml.jsonl")],
    out: Annotated[Path, typer.Option(help="Folder to write to")] = Path("runs/eval"),
    name: Annotated[str, typer.Option(help="Name of this evaluation in the folder")] = "eval",
    grader: Annotated[str, typer.Option(help="Which grader judges")] = "ocaml",
    url: Annotated[str, typer.Option(help="The grading service")] = "http://127.0.0.1:8000",
    samples: Annotated[int, typer.Option(min=1, max=1000, help="Completions per task")] = 1,
    temperature: Annotated[float, typer.Option(min=0.0, max=10.0, help="0 is greedy")] = 1.0,
    max_new_tokens: Annotated[int, typer.Option(min=1)] = 512,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first N tasks")] = None,
) -> None:
    """Sample a model on tasks, grade the samples, and write rates with confidence intervals."""
    from trainer.evaluate import main as evaluate_main

    status = evaluate_main(
        model,
        tasks,
        out=out,
        samples=samples,
        temperature=temperature,
        max_new_tokens=max_new_tokens,
        urls=[url],
        grader=grader,
        name=name,
        limit=limit,
    )
    raise typer.Exit(status)
