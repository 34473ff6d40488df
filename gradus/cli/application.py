"""The command line's own parts: the application that commands are registered with, and what several of them share.

Imports of services and trainer stand inside the functions, so that `gradus --help` loads neither.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from gradus.errors import Fault

T = TypeVar("T")
EXIT_MISUSE = 2
EXIT_FAULT = 3

app = typer.Typer(
    name="gradus",
    help="Grade what language models write, in sandboxes, and train them on the grades.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
tasks_app = typer.Typer(help="Make and check files of tasks.", no_args_is_help=True)
app.add_typer(tasks_app, name="tasks")
keys_app = typer.Typer(help="Make API keys.", no_args_is_help=True)
app.add_typer(keys_app, name="keys")

Grader = Annotated[str, typer.Argument(help="ocaml, rust, story or preference", metavar="GRADER")]
Redis = Annotated[str | None, typer.Option(help="Redis of the queue, redis://host:6379/0", envvar="GRADUS_REDIS_URL")]
Url = Annotated[str | None, typer.Option(help="Use the service there instead of grading here")]
Slots = Annotated[int | None, typer.Option(min=1, max=256, help="Graded at one time [default: cores; of models: 64]")]
Config = Annotated[Path | None, typer.Option(help="Grader configuration [default: the shipped one]")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar")]


def say(text: str) -> None:
    """One line on standard error."""
    print(text, file=sys.stderr, flush=True)


def load_grader(name: str, config: Path | None = None) -> Any:
    from services.graders.base import load

    return load(name, config=config)


def startable() -> list[Any]:
    """All graders whose toolchain is here; of the others it is said what they lack. Raises Fault when there is none.

    A grader that judges by what somebody has to name, and nobody did, is not missed.
    """
    from services.graders.base import NotNamed, installed

    found, lacking = [], []
    for name in installed():
        try:
            found.append(load_grader(name))
        except NotNamed:
            continue
        except Fault as fault:
            lacking.append(fault)
            say(f"gradus: serving without {name}: {fault.message}")
    if not found:
        raise lacking[0]
    return found


def with_progress(items: Iterable[T], total: int, what: str, quiet: bool) -> Iterator[T]:
    """`items`, with a progress bar on standard error when somebody is there to see it."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, disable=quiet or not console.is_terminal, transient=True) as progress:
        task = progress.add_task(what, total=total)
        for item in items:
            yield item
            progress.advance(task)
