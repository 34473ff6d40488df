"""Stories and references -> facts: which story answers what, and whether it makes sense. Makes no reward of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

import numpy as np

from gradus.contract import Diagnostic, Severity, Stage, StoryTask
from services.facts import Senses, StoryFacts
from services.graders.story import meaning
from services.graders.story.encoder import Embedded
from services.graders.story.matching import ANSWERED, Floats, Gate, Matching, Pair, match, repeats, similarities
from services.graders.story.reading import Answer, Rejected, Story, read_story
from services.graders.story.words import content, tokens

FEWEST_WORDS, MOST_WORDS, LONGEST = 8, 45, 80
"""Words of real stories (5 to 95 of 100 have 10 to 44), and the length that is worth nothing."""


class Embeds(Protocol):
    def embed(self, texts: Sequence[str]) -> Embedded: ...


@dataclass(frozen=True, slots=True)
class Reference:
    want: str
    """Of a story its want, of a bare title the title."""
    wish: meaning.Wish


@dataclass(frozen=True, slots=True)
class Asked:
    """What a task asks for, read once."""

    references: tuple[Reference, ...]
    known: frozenset[str]
    """Stems of the task's own words: goal, references, context."""


@dataclass(frozen=True, slots=True)
class Seen:
    facts: StoryFacts
    cpu_s: float
    """Of the model."""


def asked_by(task: StoryTask) -> Asked:
    """What `task` asks for; in an order of its own, so that the order of the references cannot matter."""
    context = " ".join(_texts(task.team_context))
    return _asked(tuple(sorted(task.references)), f"{task.sprint_goal} {context}"[:100_000])


@lru_cache(maxsize=2000)
def _asked(references: tuple[str, ...], about: str) -> Asked:
    read = tuple(_reference(text) for text in references if text.strip())
    return Asked(read, frozenset(content(about)).union(*(content(text) for text in references)))


def _reference(text: str) -> Reference:
    found = read_story(" ".join(text.split()))
    want = found.want if isinstance(found, Story) else _bare_title(text)
    return Reference(want, meaning.wish(want))


def _bare_title(text: str) -> str:
    """The title without `[Design]` or `(Internal)` in front, unless that is all there is."""
    title = " ".join(text.split())
    while title[:1] in "[(" and (end := title.find("])"["[(".index(title[0])])) > 0 and title[end + 1 :].strip():
        title = title[end + 1 :].strip()
    return title


def _texts(value: Any) -> Iterator[str]:
    """All texts in a JSON value, keys left out."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list | tuple):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _texts(part)


def judged(answer: Answer, asked: Asked, gate: Gate, encoder: Embeds) -> Seen:
    """The facts of `answer`. Raises Fault when the model fails."""
    stories = tuple(sorted(answer.stories, key=lambda story: (story.want, story.text)))
    if not stories or not asked.references:
        return Seen(_nothing(answer, asked), 0.0)
    texts = [story.want for story in stories] + [reference.want for reference in asked.references]
    embedded = encoder.embed(texts)
    own, others = np.split(embedded.vectors, [len(stories)])
    wishes = [meaning.wish(story.want) for story in stories]
    gated = _agreeing(gate(similarities(own, others)), wishes, asked)
    matching = match(gated, others)
    senses = _senses(stories, wishes, asked, matching, embedded.inner[: len(stories)])
    facts = StoryFacts(
        stage=Stage.SCORE,
        lines=answer.lines,
        stories=len(stories),
        references=matching.references,
        matched=matching.total,
        answered=sum(pair.gated >= ANSWERED for pair in matching.pairs),
        benefits=_own_benefits(stories) / len(stories),
        fitting_length=sum(map(_fitting_length, stories)) / len(stories),
        repeats=repeats(own, matching.pairs),
        boilerplate=_boilerplate(stories),
        senses=senses,
        flags=_flags(answer, senses),
        diagnostics=tuple(_diagnostics(answer, stories, matching)),
    )
    return Seen(facts, embedded.cpu_s)


def _nothing(answer: Answer, asked: Asked) -> StoryFacts:
    return StoryFacts(
        stage=Stage.EXTRACT,
        lines=answer.lines,
        references=len(asked.references),
        flags=answer.flags,
        diagnostics=tuple(_diagnostics(answer, (), Matching((), 0))),
    )


def _agreeing(gated: Floats, wishes: Sequence[meaning.Wish], asked: Asked) -> Floats:
    """`gated`, less where a story wants what its reference denies."""
    made = gated.copy()
    for story, reference in np.argwhere(gated > 0):
        made[story, reference] *= meaning.agreement(wishes[story], asked.references[reference].wish)
    return made


def _senses(
    stories: Sequence[Story], wishes: Sequence[meaning.Wish], asked: Asked, matching: Matching, inner: Any
) -> Senses:
    if not matching.pairs:
        return Senses()
    fluency = meaning.probe("fluency")(inner)
    scores = [_senses_of(stories[p.story], wishes[p.story], asked, p, float(fluency[p.story])) for p in matching.pairs]
    weights = np.array([pair.gated for pair in matching.pairs])
    means = weights @ np.array(scores) / weights.sum()
    return Senses(*(round(float(mean), 6) for mean in means))


def _senses_of(
    story: Story, wish: meaning.Wish, asked: Asked, pair: Pair, fluency: float
) -> tuple[float, float, float, float]:
    reference = asked.references[pair.reference]
    return (
        min(fluency, meaning.order(wish, reference.wish)),
        1.0,
        1.0,
        1.0,
    )


def _own_benefits(stories: Sequence[Story]) -> int:
    """How many different benefits there are that are not the want again."""
    own = {
        frozenset(content(story.benefit))
        for story in stories
        if story.benefit is not None and meaning.own_benefit(story.want, story.benefit)
    }
    return len(own)


def _boilerplate(stories: Sequence[Story]) -> float:
    said = Counter(frozenset(content(story.benefit)) for story in stories if story.benefit is not None)
    return 1 - len(said) / said.total() if said else 0.0


def _fitting_length(story: Story) -> float:
    words = len(tokens(story.text))
    if words < FEWEST_WORDS:
        return words / FEWEST_WORDS
    return 1 - meaning.ramp(words, MOST_WORDS, LONGEST)


def _flags(answer: Answer, senses: Senses) -> tuple[str, ...]:
    doubts = (f"meaning:{name}" for name in ("fluency", "focus", "coherence", "role") if getattr(senses, name) < 0.5)
    own = dict.fromkeys(flag for story in answer.stories for flag in story.flags)
    return (*answer.flags, *own, *doubts)


def _diagnostics(answer: Answer, stories: Sequence[Story], matching: Matching) -> Iterator[Diagnostic]:
    """What is wrong with which line; nothing of the references."""
    matched = {pair.story for pair in matching.pairs}
    lone = [Rejected(story.line, "is not what was asked for") for at, story in enumerate(stories) if at not in matched]
    for found in sorted((*answer.rejected, *lone), key=lambda one: one.line)[:50]:
        yield Diagnostic(stage=Stage.SCORE, severity=Severity.WARNING, line=found.line, message=found.reason)
    if not answer.lines:
        yield Diagnostic(stage=Stage.EXTRACT, message="there is no text in the completion outside of its thinking")
