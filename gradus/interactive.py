"""`gradus` without arguments on a terminal: a menu, one or two questions, then the command that was
chosen.

The command is printed and replaces this process. Without a terminal, help is shown. Wings
contribute the menu's items (`gradus.wings`).
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import NoReturn

from rich.console import Console
from rich.prompt import Prompt

from gradus.wings import load_entry_points


@dataclass(frozen=True, slots=True)
class Question:
    text: str
    choices: Callable[[], Sequence[str]] = tuple
    """Numbered suggestions; other text is accepted unless `only` is set."""
    default: str | None = None
    only: bool = False
    must_exist: bool = False
    """The text names an existing file or folder."""


@dataclass(frozen=True, slots=True)
class MenuItem:
    place: int
    """Position among the items of all wings, ascending."""
    name: str
    summary: str
    command: Callable[[Sequence[str]], list[str]]
    """Answers to the questions -> words after `gradus`, or a whole command that begins with a
    program's path."""
    questions: Sequence[Question] = field(default=())


def load_menu() -> list[MenuItem]:
    """Return the menu: items of every installed wing, ordered by `place`."""
    doctor = MenuItem(70, "doctor", "what this machine has and lacks", lambda answers: ["doctor"])
    return sorted(chain([doctor], *load_entry_points("gradus.menu")), key=lambda offer: offer.place)


def start() -> NoReturn:
    """Ask what to do, print its command and become it. Ends with 130 at Ctrl-C and at the end of
    input."""
    console = Console(highlight=False)
    menu = load_menu()
    console.print(
        "[bold]Gradus[/] grades what language models write, and trains them on the grades.\n"
    )
    for number, offer in enumerate(menu, start=1):
        console.print(f"  {number}  {offer.name:<10} {offer.summary}")
    console.print("\n`gradus --help` lists every command.\n", markup=False)
    names = [offer.name for offer in menu]
    first = Question("What shall it be?", lambda: names, only=True)
    try:
        chosen = menu[names.index(_read_answer(console, first, listed=False))]
        command = chosen.command([_read_answer(console, question) for question in chosen.questions])
    except (KeyboardInterrupt, EOFError):
        console.print()
        sys.exit(130)
    program = words = command
    if not Path(command[0]).is_absolute():
        words = ["gradus", *command]
        program = [sys.executable, "-m", *words]
    console.print(f"\n[bold]$ {shlex.join(words)}[/]", soft_wrap=True)
    sys.stdout.flush()
    os.execv(program[0], program)


def _read_answer(console: Console, question: Question, *, listed: bool = True) -> str:
    """Return a choice, by its number or name, or another text where that is allowed. `listed`:
    print the choices first."""
    numbered = {str(number): choice for number, choice in enumerate(question.choices(), start=1)}
    if listed:
        for number, choice in numbered.items():
            console.print(f"  {number:>2}  {choice}", markup=False)
    while True:
        answer = Prompt.ask(question.text, console=console, default=question.default) or ""
        answer = numbered.get(answer.strip(), answer.strip())
        is_text = bool(answer) and not question.only and not answer.startswith("-")
        is_there = Path(answer).exists() or not question.must_exist
        if answer in numbered.values() or (is_text and is_there):
            return answer
        console.print(f"there is no {answer or 'answer'} to choose", markup=False)
