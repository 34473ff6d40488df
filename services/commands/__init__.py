"""Commands that serve and grade. Light: what a command needs is imported when it runs."""

from __future__ import annotations

import typer

from services.commands.dashboard import dashboard
from services.commands.grading import attack, grade
from services.commands.queue import queue_app
from services.commands.serving import keys_app, serve, vllm, worker


def register(app: typer.Typer) -> None:
    app.command()(serve)
    app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})(vllm)
    app.command()(worker)
    app.command()(dashboard)
    app.command()(grade)
    app.command()(attack)
    app.add_typer(keys_app, name="keys")
    app.add_typer(queue_app, name="queue")
