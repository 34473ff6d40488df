"""What the story grader sees of a submission."""

from __future__ import annotations

from dataclasses import dataclass

from services.graders.base import Facts


@dataclass(frozen=True, slots=True)
class ScrumFacts:
    """The seven quantities that `story/scrum@1` weighs."""

    regex: float
    clause: float
    coverage: float
    """In [-1, 1]: a reference for which no line is left counts -1."""
    count: float
    length: float
    redundancy: float
    """Penalty in (-inf, 0]."""
    extraneous: float
    """Penalty, 0 or less."""


@dataclass(frozen=True, slots=True)
class Senses:
    """How much sense the matched stories make, in [0, 1]; 1 where nothing speaks against it.
    Weighted by similarity."""

    fluency: float = 1.0
    """Words stand in an order in which people write."""
    focus: float = 1.0
    """Wants speak of the task and not of stories."""
    coherence: float = 1.0
    """Benefits have to do with the want or the task."""
    role: float = 1.0
    """Roles are persons or systems that can want something."""


STORY_TAMPERED = frozenset(
    {"story:hidden_characters", "story:mixed_scripts", "story:message_to_judge"}
)
"""Flags of a text that is not what it seems, or that is written for a judge."""


@dataclass(frozen=True, slots=True)
class StoryFacts(Facts):
    """`stage` is EXTRACT when there was no story, else SCORE."""

    lines: int = 0
    """Stories and whatever stood beside them."""
    stories: int = 0
    """Well-formed ones."""
    references: int = 0
    """Different things that were asked for."""
    matched: float = 0.0
    """Sum of the gated similarities between stories and the references that they answer, one to
    one."""
    answered: int = 0
    """References that are answered past the middle of the gate."""
    benefits: float = 0.0
    """Share of the stories that name a benefit which is not the want again."""
    benefits_wanted: float = 0.0
    """Share of the references that name one."""
    repeats: float = 0.0
    """Stories that only say again what another one says."""
    boilerplate: float = 0.0
    """Share of the benefits that are another story's, in [0, 1)."""
    senses: Senses = Senses()
    contradicted: int = 0
    """Stories that contradict what they answer; 0 where no pair model reads."""
    scrum: ScrumFacts | None = None
    """None unless asked for: it costs vectors of its own."""

    @property
    def coverage(self) -> float:
        """Soft F1 of precision and recall, in [0, 1]."""
        return 2 * self.matched / (self.lines + self.references) if self.stories else 0.0

    @property
    def tampered(self) -> bool:
        return not STORY_TAMPERED.isdisjoint(self.flags)

    @property
    def passed(self) -> bool:
        """Every line is a story that makes sense, every reference is answered by one,
        none contradicts its reference, and none repeats another."""
        senses = self.senses
        sensible = min(senses.fluency, senses.focus, senses.coherence, senses.role) >= 0.5
        complete = (
            self.lines == self.stories > 0
            and self.answered >= self.references
            and self.repeats < 0.5
        )
        return complete and sensible and not self.contradicted and not self.tampered
