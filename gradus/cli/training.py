"""Commands around models: `gradus train`, `gradus eval`, `gradus report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gradus.cli.application import app
from gradus.errors import Misuse


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def train(
    context: typer.Context,
    config: Annotated[Path, typer.Argument(help="For example configs/train/demo_ocaml.yaml")],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check and print the resolved config; train nothing")
    ] = False,
    resume: Annotated[str, typer.Option(help="auto, never, or the path of a checkpoint")] = "auto",
) -> None:
    """Train with GRPO on true rewards. Options after the config override it.

    \b
    gradus train configs/train/demo_ocaml.yaml --dry-run
    gradus train my.yaml --learning_rate 1e-6 --reward.deadline_s 30
    """
    from trainer.train import main as train_main

    raise typer.Exit(train_main(config, list(context.args), dry_run=dry_run, resume=resume))


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


@app.command()
def report(
    run: Annotated[Path, typer.Argument(help="Folder of a run, for example runs/demo")],
    out: Annotated[Path | None, typer.Option(help="File to write [default: report.html in the folder]")] = None,
) -> None:
    """Write the report of a run: one HTML file that needs no network."""
    from trainer.evaluate.report import write_report

    if not run.is_dir():
        raise Misuse(f"{run}: is no folder of a run")
    target = out or run / "report.html"
    write_report(run, target)
    print(target)
