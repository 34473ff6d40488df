"""`Language`: what evaluations know of one grader's answers beyond the grader's description."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Language:
    """Each part may be missing; an evaluation then has no such figures, and reports show names as they are."""

    rate_words: Mapping[str, str] = field(default_factory=dict)
    """Name of a rate -> what it says of an answer: `type-checks`."""
    stage_words: Mapping[str, str] = field(default_factory=dict)
    """Name of a stage -> what is known of an answer that got past it: `it type-checks`."""
    names_stage: str | None = None
    """The stage whose errors report names that do not exist; None: the language has no `missing_name`."""
    missing_name: Callable[[str, str | None], str | None] = lambda message, code: None
    """(message, code) of an error -> the name that it reports as missing, with its owner; None for other errors."""
    is_imperative: Callable[[str], bool] | None = None
    """Whether an answer's code assigns or loops."""
