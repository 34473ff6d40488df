"""What the preference grader sees of a submission: the score that a reward model gives it."""

from __future__ import annotations

from dataclasses import dataclass

from gradus.contract import Diagnostic, Stage, TestCount


@dataclass(frozen=True, slots=True)
class PreferenceFacts:
    """What a reward model said of a completion."""

    score: float
    """As the model gives it: finite, without bounds or unit."""
    centre: float
    """The score of a text that is as good as not."""
    scale: float
    """How much more of score makes a text e times as likely to be the preferred one; positive."""
    flags: tuple[str, ...] = ()
    stage: Stage = Stage.SCORE
    diagnostics: tuple[Diagnostic, ...] = ()
    tests: TestCount | None = None

    @property
    def passed(self) -> bool:
        """Never: a score has no line beyond which a text is right."""
        return False
