"""`gradus` without a word, on a terminal: what can be done here, one or two questions, then the command that does it.

It asks and prints; the command itself is run by `gradus` anew, in this process's place. Without a terminal there is
nobody to ask, and help is shown.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from rich.console import Console
from rich.prompt import Prompt

from gradus.resources import configs

GRADERS = ("ocaml", "rust", "story")


@dataclass(frozen=True, slots=True)
class Question:
    """Something that a command needs to know."""

    text: str
    choices: Callable[[], Sequence[str]] = tuple
    """What to choose from by its number; another answer counts as well, unless `only` says no."""
    default: str | None = None
    only: bool = False
    must_exist: bool = False
    """The answer is a file or folder that is there."""


@dataclass(frozen=True, slots=True)
class Offer:
    """One thing to do."""

    name: str
    what: str
    command: Callable[[Sequence[str]], list[str]]
    """The words after `gradus` from the answers, or a whole command that begins with a program's path."""
    questions: Sequence[Question] = field(default=())


def _shipped(folder: str, skip: str = "") -> Callable[[], list[str]]:
    """The YAML files that ship with Gradus, as they are reached from here."""
    return lambda: [
        os.path.relpath(path)
        for path in sorted((configs() / folder).glob("*.yaml"))
        if not skip or not path.stem.startswith(skip)
    ]


def _demo(answers: Sequence[str]) -> list[str]:
    return [sys.executable, "-m", "trainer.demo.run"]


OFFERS = (
    Offer("demo", "train a tiny model with a real OCaml compiler as its teacher, with a report", _demo),
    Offer(
        "grade",
        "grade submissions of a file",
        lambda answers: ["grade", *answers],
        (
            Question("Which grader?", lambda: GRADERS, "ocaml", only=True),
            Question("File of submissions (JSONL)", must_exist=True),
        ),
    ),
    Offer(
        "train",
        "train a model as a file says",
        lambda answers: ["train", *answers],
        (Question("Which configuration?", _shipped("train"), must_exist=True),),
    ),
    Offer(
        "eval",
        "measure a model on tasks",
        lambda answers: ["eval", *answers],
        (
            Question("Which model? A folder, or a name on the hub"),
            Question("File of tasks (JSONL)", default="configs/tasks/ocaml.jsonl", must_exist=True),
        ),
    ),
    Offer(
        "pipeline",
        "several stages in a row, with gates",
        lambda answers: ["pipeline", "run", *answers],
        (Question("Which pipeline?", _shipped("pipelines"), must_exist=True),),
    ),
    Offer(
        "dashboard",
        "a live page of runs and graders",
        lambda answers: ["dashboard", "--runs", *answers],
        (Question("Folder of runs", default="runs"),),
    ),
    Offer("doctor", "what this machine has and lacks", lambda answers: ["doctor"]),
)


def is_wanted(arguments: Sequence[str]) -> bool:
    """Nothing was asked for, and somebody is there to be asked."""
    return not arguments and sys.stdin.isatty() and sys.stdout.isatty()


def start() -> NoReturn:
    """Ask what to do, print its command and become it. Ends with 130 at Ctrl-C and at the end of input."""
    console = Console(highlight=False)
    try:
        command = _asked(console)
    except (KeyboardInterrupt, EOFError):
        console.print()
        sys.exit(130)
    words = command if Path(command[0]).is_absolute() else ["gradus", *command]
    console.print(f"\n[bold]$ {shlex.join(words)}[/]", soft_wrap=True)
    sys.stdout.flush()
    program = command if words is command else [sys.executable, "-m", "gradus", *command]
    os.execv(program[0], program)


def _asked(console: Console) -> list[str]:
    console.print("[bold]Gradus[/] grades what language models write, and trains them on the grades.\n")
    for number, offer in enumerate(OFFERS, start=1):
        console.print(f"  {number}  {offer.name:<10} {offer.what}")
    console.print("\n`gradus --help` lists every command.\n", markup=False)
    chosen = _chosen(console, Question("What shall it be?", lambda: [offer.name for offer in OFFERS], only=True))
    offer = next(offer for offer in OFFERS if offer.name == chosen)
    return offer.command([_answer(console, question) for question in offer.questions])


def _answer(console: Console, question: Question) -> str:
    for number, choice in enumerate(question.choices(), start=1):
        console.print(f"  {number:>2}  {choice}", markup=False)
    while True:
        answer = _chosen(console, question)
        if not question.must_exist or Path(answer).exists():
            return answer
        console.print(f"there is no {answer}", markup=False)


def _chosen(console: Console, question: Question) -> str:
    """One of the choices by its number or name, or another text where that is allowed."""
    choices = list(question.choices())
    while True:
        answer = (Prompt.ask(question.text, console=console, default=question.default) or "").strip()
        if answer.isascii() and answer.isdigit() and 1 <= int(answer[:9]) <= len(choices):
            return choices[int(answer) - 1]
        if answer in choices or (answer and not question.only and not answer.startswith("-")):
            return answer
        console.print("write one of the numbers" if choices else "write a name")
