"""Commands on files of tasks: `gradus tasks ...`. Modules of a command are imported when it
runs."""

from __future__ import annotations

import typer

from corpus.commands.doctor import check_tasks
from corpus.commands.exporting import export_tasks
from corpus.commands.hardening import harden_tasks
from corpus.commands.importing import import_tasks, import_texts
from corpus.commands.tasks import tasks_app


def register(app: typer.Typer) -> None:
    tasks_app.command("doctor")(check_tasks)
    tasks_app.command("import")(import_tasks)
    tasks_app.command("texts")(import_texts)
    tasks_app.command("export")(export_tasks)
    tasks_app.command("harden")(harden_tasks)
    app.add_typer(tasks_app, name="tasks", rich_help_panel="Data")
