"""What the story grader sees of a submission."""

from __future__ import annotations

from dataclasses import dataclass

from services.graders.base import Facts

ROLES, CLAUSES, FORMAT = 0.30, 0.15, 0.10
"""Shares of a story's reward for its role, its benefit, and that all lines are stories."""
SURPLUS = 0.2
"""What a line beyond the number of references costs, in references."""


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
    twins: int = 0
    """References beyond those: they ask for what another one asks for, and were not answered."""
    matched: float = 0.0
    """Sum of the worths of the stories that answer a reference, one to one, each in [0, 1]."""
    roles: float = 0.0
    """The same sum, each worth times how near its role is to the reference's."""
    benefits: float = 0.0
    """The same sum, each worth times how well its benefit fits."""
    answered: int = 0
    """References that are answered by a story of at least half the full worth."""
    repeats: float = 0.0
    """Stories that only say again what another one says."""
    contradicted: int = 0
    """Stories that the judge, or their own words, show to deny what they answer."""
    scrum: ScrumFacts | None = None
    """None unless asked for: it costs vectors of its own."""

    @property
    def surplus(self) -> int:
        """Number of lines beyond what was asked for."""
        return max(0, self.lines - self.references - self.twins)

    def share(self, total: float) -> float:
        """Return a sum over the references as a share of them, in [0, 1], less what surplus lines
        cost. Adding a story that answers a reference never lowers it."""
        if self.references:
            return total / (self.references + SURPLUS * self.surplus)
        return 0.0

    @property
    def coverage(self) -> float:
        return self.share(self.matched)

    @property
    def tampered(self) -> bool:
        return not STORY_TAMPERED.isdisjoint(self.flags)

    @property
    def passed(self) -> bool:
        """Every line is a story, every reference is answered by one, most roles fit, nothing is
        contradicted, repeated or hidden."""
        complete = (
            self.lines == self.stories > 0
            and self.answered >= self.references
            and self.repeats < 0.5
        )
        return (
            complete
            and 2 * self.roles >= self.matched
            and not self.contradicted
            and not self.tampered
        )
