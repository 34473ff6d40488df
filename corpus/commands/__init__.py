"""Commands on files of tasks: `gradus tasks ...`. Light: what a command needs is imported when it runs."""

from __future__ import annotations

import typer

from corpus.commands.importing import import_tasks
from corpus.commands.tasks import tasks_app


def register(app: typer.Typer) -> None:
    tasks_app.command("import")(import_tasks)
    app.add_typer(tasks_app, name="tasks", rich_help_panel="Data")
