"""Commands that serve and grade. Modules of a command are imported when it runs."""

from __future__ import annotations

import typer

from services.commands.attacking import attack
from services.commands.dashboard import dashboard
from services.commands.grading import grade
from services.commands.queue import queue_app
from services.commands.serving import keys_app, serve, vllm, worker


def register(app: typer.Typer) -> None:
    serving, grading = "Serve", "Grade"
    rest_for_vllm = {"allow_extra_args": True, "ignore_unknown_options": True}
    app.command(rich_help_panel=serving)(serve)
    app.command(context_settings=rest_for_vllm, rich_help_panel=serving)(vllm)
    app.command(rich_help_panel=serving)(worker)
    app.command(rich_help_panel=serving)(dashboard)
    app.command(rich_help_panel=grading)(grade)
    app.command(rich_help_panel=grading)(attack)
    app.add_typer(keys_app, name="keys", rich_help_panel=serving)
    app.add_typer(queue_app, name="queue", rich_help_panel=serving)
