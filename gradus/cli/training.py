"""Commands around models: `gradus train`, `gradus report`."""

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
