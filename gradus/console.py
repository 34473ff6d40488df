"""Options, exit statuses, log lines and the progress bar of commands in several wings. Light to
import."""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Annotated, TypeVar

import typer

T = TypeVar("T")
EXIT_MISUSE = 2
EXIT_FAULT = 3

Grader = Annotated[
    str, typer.Argument(help="Name of a grader; an unknown name prints the list", metavar="GRADER")
]
Redis = Annotated[
    str | None,
    typer.Option(
        help="Redis of the queue, redis://host:6379/0; separate several URLs by spaces",
        envvar="GRADUS_REDIS_URL",
    ),
]
Url = Annotated[
    str | None,
    typer.Option(help="Grade on the Gradus service at this URL instead of on this machine"),
]
Slots = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=256,
        help="Submissions graded concurrently",
        show_default="one per CPU core; 64 for model-based graders",
    ),
]
Config = Annotated[
    Path | None, typer.Option(help="Grader configuration", show_default="the shipped one")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress bar")]


def log_line(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def show_progress(items: Iterable[T], total: int, label: str, quiet: bool) -> Iterator[T]:
    """`items`, with a progress bar on standard error if that is a terminal."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(
        console=console, disable=quiet or not console.is_terminal, transient=True
    ) as progress:
        task = progress.add_task(label, total=total)
        for item in items:
            yield item
            progress.advance(task)


@contextmanager
def show_status(label: str) -> Iterator[None]:
    """Show a label on standard error while the block runs, if that is a terminal."""
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield
        return
    with console.status(label):
        yield


def show_start(grader: str) -> AbstractContextManager[None]:
    """Show that a grader starts, which can take half a minute, and minutes when it builds."""
    return show_status(f"starting the grader {grader}, which builds what it needs once")


def escape_hidden(text: str) -> str:
    """Return the text with every character that hides or moves others spelled out, such as U+202E,
    which reverses a line."""
    return "".join(_escape_character(character) for character in text)


def _escape_character(character: str) -> str:
    category = unicodedata.category(character)
    if character in "\n\t" or (category[0] != "C" and category not in ("Zl", "Zp")):
        return character
    if ord(character) < 0x20:
        return chr(0x2400 + ord(character))
    return f"\u27e8U+{ord(character):04X}\u27e9"
