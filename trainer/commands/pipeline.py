"""`gradus pipeline run` and `gradus gate`: several commands in a row, and whether what comes out is good enough."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

pipeline_app = typer.Typer(help="Run several commands in a row, with gates between them.", no_args_is_help=True)


@pipeline_app.command("run")
def run(
    config: Annotated[Path, typer.Argument(help="For example configs/pipelines/demo.yaml")],
    start: Annotated[str | None, typer.Option("--from", help="Run this stage and all after it anew")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check every stage's settings and say what would run; run nothing")
    ] = False,
    change: Annotated[
        list[str] | None, typer.Option("--set", help="a.b=value in place of what the file says; may be given again")
    ] = None,
) -> None:
    """Run or resume a pipeline. Completed stages are skipped, even after the process was killed.

    A stage whose settings or inputs have changed runs anew, with all after it. Exit status 0 when every stage is done,
    1 when a gate refused, 2 for misuse, 3 when a stage was faulted, 4 when one failed otherwise.

    \b
    gradus pipeline run configs/pipelines/demo.yaml
    gradus pipeline run configs/pipelines/ocaml.yaml --dry-run
    gradus pipeline run my.yaml --from grpo --set stages.grpo.set.learning_rate=1e-6
    """
    from gradus.cli import check_words
    from trainer.pipeline.run import main

    raise typer.Exit(main(config, change or (), start, check_words, dry_run=dry_run))


def gate(
    gates: Annotated[Path, typer.Argument(help="YAML or JSON with gates, and the model that they are for")],
    out: Annotated[Path | None, typer.Option(help="Record to write [default: promotion.json beside the file]")] = None,
) -> None:
    """Check evaluation metrics against thresholds.

    A metric passes if the worse bound of its confidence interval passes; several p-values are Holm-corrected.

    Exit status 0 when all gates passed, 1 when one did not. What is missing or not finite fails its gate. The last line
    is the path of the record.
    """
    from trainer.pipeline.gate_command import main

    raise typer.Exit(main(gates, out))
