"""`gradus doctor`: what this machine has and lacks."""

from __future__ import annotations

import typer

from gradus.cli.application import Redis, Url, app


@app.command()
def doctor(
    redis: Redis = None,
    url: Url = None,
) -> None:
    """Look at this machine: toolchains, sandbox, Redis, service, torch; and say what to do about what is missing."""
    from gradus.doctor import examine

    raise typer.Exit(examine(redis=redis, url=url))
