"""Languages by the name of their grader. Figures that need more than the grader's description are taken from here."""

from __future__ import annotations

from collections.abc import Mapping

from trainer.languages import ocaml, rust, story
from trainer.languages.language import Language

__all__ = ["DECLINE_INSTRUCTION", "LANGUAGES", "Language", "language_of"]

LANGUAGES: Mapping[str, Language] = {"ocaml": ocaml.LANGUAGE, "rust": rust.LANGUAGE, "story": story.LANGUAGE}
DECLINE_INSTRUCTION = rust.DECLINE_INSTRUCTION
"""The instruction of `gradus eval-refusals`, whose requests are all for one language."""

_NONE = Language()


def language_of(grader: str) -> Language:
    """The language of a grader, given as `name` or `name@revision`; an empty one for graders that have none."""
    return LANGUAGES.get(grader.partition("@")[0], _NONE)
