"""Judges of meaning: does a story ask for what its reference asks for? `none` is no judge."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from services.graders.story.parser import Story


class Question(NamedTuple):
    """A story beside the reference that it answers."""

    story: Story
    reference: str


class Judgement(NamedTuple):
    """What a judge found."""

    is_denied: bool = False
    """Whether the story asks for something else or the opposite: it counts as missing."""
    same: float = 0.0
    """How surely both ask for the same, in [0, 1]; 0 leaves the similarity of the vectors."""
    does_role_want_it: bool = True
    does_benefit_follow: bool = True
    do_criteria_agree: bool = True


class Judge(Protocol):
    """May be called from many threads at once."""

    name: str
    """Model and version of the questions: part of the grader's revision."""

    def judge(self, questions: Sequence[Question]) -> list[Judgement]:
        """Return a judgement for each question. Blocks. Raises Fault where the judge fails."""
        ...
