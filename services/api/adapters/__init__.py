"""Routes for the protocols of other trainers. Off unless `GRADUS_API_ADAPTERS` or `--adapters`
names them.

One module per protocol, each with a `router`. No module is imported unless it is named.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from fastapi import FastAPI

from gradus.errors import Misuse
from services.api.adapters.task_files import TaskFiles

ADAPTERS = ("nemo_gym", "openenv", "openrlhf", "sandbox_fusion", "slime")


def install(app: FastAPI, names: Sequence[str], task_files: Sequence[tuple[str, Path]]) -> None:
    """Add the routes of the named adapters. Raises Misuse for an unknown name and for tasks that
    cannot be read."""
    require_known(names)
    app.state.tasks = TaskFiles(task_files)
    for name in names:
        app.router.routes.extend(import_module(f"{__name__}.{name}").router.routes)


def require_known(names: Sequence[str]) -> None:
    """Raise Misuse for a name that no adapter has."""
    for name in names:
        if name not in ADAPTERS:
            raise Misuse(f"there is no adapter {name!r}; there are: {', '.join(ADAPTERS)}")
