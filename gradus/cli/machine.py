"""`gradus doctor`: what this machine has and lacks."""

from __future__ import annotations

from typing import Annotated

import typer

from gradus.cli.application import Redis, Url, app


@app.command()
def doctor(
    redis: Redis = None,
    url: Url = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object, for programs")] = False,
) -> None:
    """Look at this machine: CPU, GPU, memory, disk, toolchains, sandbox, packages; and say what to do about what is
    missing. Exit status 1 when something is missing that everything needs.
    """
    from gradus.doctor import examine

    raise typer.Exit(examine(redis=redis, url=url, as_json=as_json))
