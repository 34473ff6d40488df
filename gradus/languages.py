"""What evaluations know of a grader's answers beyond its description: names that do not exist,
imperative style.

It is `LANGUAGE` in a module `evaluation` beside the grader's own, so that a grader of another
package can have one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec

from gradus.wings import find_entry_points

DECLINE_INSTRUCTION = (
    "You are asked for Rust code: edition 2021, the standard library only, no `unsafe`. If what is"
    " asked can be done exactly as it stands, answer with one fenced block of code. If it cannot,"
    " answer with one line that begins with `CANNOT:` and says why, and with no code."
)
"""The instruction of `gradus eval-refusals`, whose requests are all for one language."""


@dataclass(frozen=True, slots=True)
class Language:
    """Each part may be missing; an evaluation then has no such figures."""

    names_stage: str | None = None
    """The stage whose errors report names that do not exist; None: the language has no
    `missing_name`."""
    missing_name: Callable[[str, str | None], str | None] = lambda message, code: None
    """(message, code) of an error -> the name that it reports as missing, with its owner; None for
    other errors."""
    is_imperative: Callable[[str], bool] | None = None
    """Whether an answer's code assigns or loops."""


@cache
def load_language(grader: str) -> Language:
    """Return the language of a grader, given as `name` or `name@revision`; an empty one for graders
    that have none."""
    name = grader.partition("@")[0]
    folders = (
        point.module.rpartition(".")[0]
        for point in find_entry_points("gradus.graders")
        if point.name == name
    )
    for folder in folders:
        if folder and find_spec(f"{folder}.evaluation") is not None:
            language: Language = import_module(f"{folder}.evaluation").LANGUAGE
            return language
    return Language()
