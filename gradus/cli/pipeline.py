"""`gradus pipeline run` and `gradus gate`: several commands in a row, and whether what comes out is good enough."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from gradus.cli.application import app
from gradus.errors import Misuse

pipeline_app = typer.Typer(help="Run several commands in a row, with gates between them.", no_args_is_help=True)
app.add_typer(pipeline_app, name="pipeline")


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
    """Run a pipeline, or go on with one: what is done is not done again, after SIGKILL neither.

    A stage whose settings or inputs have changed runs anew, with all after it. Exit status 0 when every stage is done,
    1 when a gate refused, 2 for misuse, 3 when a stage was faulted, 4 when one failed otherwise.

    \b
    gradus pipeline run configs/pipelines/demo.yaml
    gradus pipeline run configs/pipelines/ocaml.yaml --dry-run
    gradus pipeline run my.yaml --from grpo --set stages.grpo.set.learning_rate=1e-6
    """
    from trainer.pipeline.run import main

    raise typer.Exit(main(config, change or (), start, check_words, dry_run=dry_run))


@app.command()
def gate(
    gates: Annotated[Path, typer.Argument(help="YAML or JSON with gates, and the model that they are for")],
    out: Annotated[Path | None, typer.Option(help="Record to write [default: promotion.json beside the file]")] = None,
) -> None:
    """Hold figures against gates: on the worse end of their confidence intervals, several p-values corrected by Holm.

    Exit status 0 when all gates passed, 1 when one did not. What is missing or not finite fails its gate. The last line
    is the path of the record.
    """
    from trainer.pipeline.promotion import main

    raise typer.Exit(main(gates, out))


USAGE_ERROR: type[Any] = typer.BadParameter.__mro__[1]
"""The class above it, which also an unknown option and a missing argument are of; typer has no name for it."""


def check_words(words: Sequence[str]) -> None:
    """Whether the command line understands these words; runs nothing. Raises Misuse."""
    command, name, rest = typer.main.get_command(app), "gradus", list(words)
    while (inner := getattr(command, "commands", None)) is not None:
        if not rest or rest[0] not in inner:
            raise Misuse(f"{name}: there is no command {rest[0] if rest else ''}")
        command, name, rest = inner[rest[0]], f"{name} {rest[0]}", rest[1:]
    try:
        command.make_context(name, rest)
    except typer.Exit:
        return
    except USAGE_ERROR as error:
        raise Misuse(f"{name}: {error.format_message()}") from None
