"""What evaluations know of one grader's answers beyond the grader's description, by the name of the grader."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from trainer.languages import ocaml, rust

__all__ = ["DECLINE_INSTRUCTION", "LANGUAGES", "Language", "language_of"]


@dataclass(frozen=True, slots=True)
class Language:
    """Each part may be missing; an evaluation then has no such figures."""

    names_stage: str | None = None
    """The stage whose errors report names that do not exist; None: the language has no `missing_name`."""
    missing_name: Callable[[str, str | None], str | None] = lambda message, code: None
    """(message, code) of an error -> the name that it reports as missing, with its owner; None for other errors."""
    is_imperative: Callable[[str], bool] | None = None
    """Whether an answer's code assigns or loops."""


LANGUAGES: Mapping[str, Language] = {
    "ocaml": Language("types", ocaml.missing_name, ocaml.is_imperative),
    "rust": Language("check", rust.missing_name),
}
DECLINE_INSTRUCTION = rust.DECLINE_INSTRUCTION
"""The instruction of `gradus eval-refusals`, whose requests are all for one language."""


def language_of(grader: str) -> Language:
    """The language of a grader, given as `name` or `name@revision`; an empty one for graders that have none."""
    return LANGUAGES.get(grader.partition("@")[0], Language())
