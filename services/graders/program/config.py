"""The program grader's configuration: limits, and languages as data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field

from gradus.tasks.program import FileName, LanguageName
from services.graders.base.config_loader import (
    BoxLimits,
    GraderConfig,
    Positive,
    Section,
    read_settings,
)

Words = Annotated[tuple[str, ...], Field(min_length=1)]


class LanguageSettings(Section):
    """One language. In `run`, `call`, `compile` and `environment`, `{root}` is what `locate`
    printed; in `run`, `{file}` is the path of what is run; in `call`, `{driver}` that of the
    program in `call_driver`."""

    fences: Words
    """Info strings of code fences around answers, lower case."""
    source: FileName
    """Name of the source file."""
    compile: str = ""
    """Line of a shell, in a folder that has the source. It writes `output`; without an `output` it
    only checks the source, which is then what is run. Empty: nothing is checked."""
    output: FileName | None = None
    run: Words
    call: tuple[str, ...] = ()
    """Command for cases with `call`; empty: the language has none."""
    call_driver: FileName | None = None
    """Program beside the grader that calls a function of the answer and reports what it returns."""
    version: Words
    """Command that prints the version. If it is not found, the language is not installed."""
    locate: tuple[str, ...] = ()
    """Command that prints the folder of the toolchain, for one that is not below /usr."""
    see: tuple[str, ...] = ()
    """Paths of this machine that the box sees beside /usr, read-only."""
    mounts: dict[str, FileName] = {}
    """Paths at which the box sees files of this grader's folder, read-only."""
    package: str
    """What installs it, for `gradus doctor`."""
    environment: dict[str, str] = {}
    socket_pairs: bool = False
    """Its boxes allow pairs of Unix sockets: for runtimes that do not start without."""
    cpu_factor: Annotated[float, Field(ge=1, le=20)] = 1.0
    """Factor of a task's CPU limit."""
    extra_memory_mb: Annotated[int, Field(ge=0, le=16_384)] = 0
    """Address space that the runtime reserves, beside the limits of memory."""
    example: str
    """A program that reads two integers and prints their sum: it is run
    before the first answer."""


class ProgramConfig(GraderConfig):
    compile: BoxLimits
    run: BoxLimits
    checker: BoxLimits
    """A checker program's run."""
    max_cpu_s: Positive
    """Most that a task may ask for, before the language's factor."""
    max_memory_mb: Positive
    output_kb: Positive
    """Standard output of one run. Twice as much ends it."""
    languages: dict[LanguageName, LanguageSettings]


def load_config(path: Path | None = None) -> ProgramConfig:
    """Read `path`, or the shipped file. Raises Misuse naming the file and the key."""
    return read_settings(ProgramConfig, "program", path)
