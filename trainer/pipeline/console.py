"""What one sees of a pipeline while it runs: a line for each stage and, on a terminal, what it does
right now."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape

WIDTH = 14


class Screen:
    """Writes to standard error; standard output is for what programs read."""

    def __init__(self, name: str) -> None:
        self._console = Console(stderr=True, highlight=False, soft_wrap=True)
        self._name = name

    def say(self, text: str) -> None:
        self._console.print(f"{self._name}: {text}", markup=False)

    def note(self, text: str) -> None:
        self._console.print(f"        {text}", markup=False, style="dim")

    def line(self, name: str, text: str) -> None:
        self._console.print(f"  {name:<{WIDTH}} {text}", markup=False)

    @contextmanager
    def stage(self, name: str, text: str) -> Iterator[Callable[[str], None]]:
        """A line at the beginning and one at the end; in between the block says what there is to
        see."""
        self.line(name, text)
        began = time.monotonic()
        with self._console.status("") as status:

            def on_line(line: str) -> None:
                shown = escape(line[: max(20, self._console.width - 30)])
                status.update(f"{duration(time.monotonic() - began)}  [dim]{shown}[/]")

            yield on_line
        self.note(duration(time.monotonic() - began))


def duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02} min"
    return f"{minutes} min {rest:02} s" if minutes else f"{rest} s"
