"""Stories and references -> facts: which story answers what, and how well. Makes no reward of it.

Each story has a worth of its own, and worths add up: a story more never takes from another, so that
leaving one out never pays.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gradus.contract import Diagnostic, Severity, Stage
from gradus.tasks.story import StoryTask
from services.graders.story import semantic_checks
from services.graders.story.encoder import Encoder
from services.graders.story.facts import CLAUSES, ROLES, StoryFacts
from services.graders.story.judges import Judge, Judgement, Question
from services.graders.story.lexicon import extract_stems, extract_words
from services.graders.story.matching import (
    ANSWERED,
    SAME_REFERENCE,
    Floats,
    Gate,
    Matching,
    Pair,
    Vectors,
    compute_sameness,
    compute_similarities,
    match,
)
from services.graders.story.parser import Rejected, Story, StoryList, clean_line, read_story

MOST_WORDS = 45
"""Words of a long real story: 95 of 100 have at most 44."""
SPARE_STORIES = 8
"""Stories of that length that are read of an answer, beside twice as many as there are
references."""

HEDGED = 0.4
"""What a want is worth that says `maybe` or `if possible` where its reference does not."""
OPTIONAL = 0.85
"""What a want is worth that asks for the option to do what the reference asks to do."""
META = 0.3
"""What a want is worth that speaks of stories where the task does not."""
SPARE_PARTS = 1
"""Parts that a want may join beyond those of its reference."""
OMNIBUS = 0.7
"""What each further part leaves of a want's worth."""
SLIP = 0.5
"""What each slip of grammar leaves of a want or a benefit."""
TAKEN_BACK = 0.3
"""What a story is worth with a criterion that denies it."""
ROLE_RAMP = (0.2, 0.45)
"""Cosine of a role and its reference's: worth nothing, everything."""
OTHERS_ROLE = 0.2
"""The most that a role earns that is another reference's and not its own reference's."""
BENEFIT_RAMP = (0.0, 0.3)
"""Cosine of a benefit and its reference's, or the nearer want where that has none: worth nothing,
everything."""
RESTATED = 0.3
"""What a benefit earns that is the want again."""
REPEATED_BENEFIT = (1.0, 0.8, 0.4, 0.0)
"""What the first, second, third and further stories of one benefit earn."""
LAST_RANK = len(REPEATED_BENEFIT) - 1
MOST_UNMATCHED = 16
"""Stories for which it is tried whether they cost others more than they earn."""

_TITLE_TAGS = re.compile(r"^(?:(?:\[[^\]]*+\]|\([^)]*+\))\s*+(?=\S))+")
"""`[Design]` or `(Internal)` in front of a title, unless that is all there is."""


@dataclass(frozen=True, slots=True)
class Reference:
    text: str
    want: str
    """Want of a story, or the text of a bare title."""
    role: str
    """Empty of a bare title."""
    benefit: str | None

    @property
    def role_stems(self) -> frozenset[str]:
        return frozenset(extract_stems(self.role))


@dataclass(frozen=True, slots=True)
class TaskSpec:
    """What a task asks for, read once."""

    references: tuple[Reference, ...]
    known_stems: frozenset[str]
    """Stems of the task's own words: goal, references, context."""
    roles: frozenset[frozenset[str]]
    """Stems of each role that a reference has."""


class StoryMeasurement(NamedTuple):
    facts: StoryFacts
    cpu_s: float
    """CPU seconds of the model."""


class _Credits(NamedTuple):
    """What stories earn for their wants, roles and benefits, each in [0, 1]: (stories, references)
    before they are matched, then one for each matched story."""

    worths: Floats
    roles: Floats
    benefits: Floats

    @property
    def values(self) -> Floats:
        return self.worths * (1 - ROLES * (1 - self.roles) - CLAUSES * (1 - self.benefits))


def build_task_spec(task: StoryTask) -> TaskSpec:
    """Return what `task` asks for; in an order of its own, so that the order of the references
    cannot matter."""
    about = f"{task.sprint_goal} {' '.join(_iter_texts(task.team_context))}"
    return _build_spec(tuple(sorted(task.references)), about[:20_000])


@lru_cache(maxsize=100)
def _build_spec(references: tuple[str, ...], about: str) -> TaskSpec:
    read = tuple(_parse_reference(text) for text in references if clean_line(text))
    known_stems = frozenset(extract_stems(about)).union(
        *(extract_stems(text) for text in references)
    )
    roles = frozenset(reference.role_stems for reference in read if reference.role)
    return TaskSpec(read, known_stems, roles)


def _parse_reference(text: str) -> Reference:
    text = clean_line(text)
    story = read_story(text)
    if isinstance(story, Story):
        return Reference(text, story.want, story.role, story.benefit)
    text = _TITLE_TAGS.sub("", text)
    return Reference(text, text, "", None)


def _iter_texts(value: Any) -> Iterator[str]:
    """Yield all texts in a JSON value, keys left out."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for part in value.values():
            yield from _iter_texts(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _iter_texts(part)


def measure_stories(
    answer: StoryList, spec: TaskSpec, gate: Gate, encoder: Encoder, judge: Judge | None = None
) -> StoryMeasurement:
    """Return the facts of `answer`. `judge`: None where nothing judges meaning. Raises Fault when a
    model fails."""
    answer = _drop_surplus(answer, MOST_WORDS * (2 * len(spec.references) + SPARE_STORIES))
    stories = tuple(sorted(answer.stories, key=lambda story: (story.want, story.text)))
    if not stories or not spec.references:
        nothing = StoryFacts(
            stage=Stage.EXTRACT,
            lines=answer.lines,
            references=len(spec.references),
            flags=answer.flags,
            diagnostics=tuple(_iter_diagnostics(answer, (), ())),
        )
        return StoryMeasurement(nothing, 0.0)
    texts = _collect_texts(stories, spec)
    embedded = encoder.embed(texts)
    vectors = dict(zip(texts, embedded.vectors, strict=True))
    wants = np.array([vectors[story.want] for story in stories])
    references = np.array([vectors[reference.want] for reference in spec.references])
    cosines = compute_similarities(wants, references)
    credits = _Credits(
        gate(cosines) * _compute_factors(stories, spec),
        _score_roles(stories, spec, vectors),
        _score_benefits(stories, spec, vectors),
    )
    pairing = _Pairing(stories, credits, cosines, wants, references)
    matching, repeated = pairing.choose_matching()
    judgements = _ask(judge, stories, spec, matching.pairs)
    earned = pairing.add_up(matching, judgements)
    denied = sum(_is_denial(story, spec) for story in stories)
    denied += sum(judgement.is_denied for judgement in judgements)
    flags = dict.fromkeys(flag for story in answer.stories for flag in story.flags)
    if denied:
        flags["meaning:contradicts"] = None
    facts = StoryFacts(
        stage=Stage.SCORE,
        lines=answer.lines,
        stories=len(stories),
        references=matching.references,
        twins=len(spec.references) - matching.references,
        matched=float(earned.worths.sum()),
        roles=float(earned.worths @ earned.roles),
        benefits=float(earned.worths @ earned.benefits),
        answered=int((earned.worths >= ANSWERED).sum()),
        repeats=repeated,
        contradicted=denied,
        flags=(*answer.flags, *flags),
        diagnostics=tuple(_iter_diagnostics(answer, stories, matching.pairs)),
    )
    return StoryMeasurement(facts, embedded.cpu_s)


def _drop_surplus(answer: StoryList, most_words: int) -> StoryList:
    """`answer` without the stories behind its first `most_words` words of stories: those are lines
    and no stories."""
    ends = accumulate(len(extract_words(story.text)) for story in answer.stories)
    count = sum(end <= most_words for end in ends)
    beyond = tuple(
        Rejected(story.line, "stands behind far more than was asked for")
        for story in answer.stories[count:]
    )
    rejected = (*answer.rejected, *beyond)
    return replace(answer, stories=answer.stories[:count], rejected=rejected)


def _collect_texts(stories: Sequence[Story], spec: TaskSpec) -> list[str]:
    """Return the clauses to embed, each once."""
    clauses: dict[str | None, None] = {}
    for story in stories:
        clauses.update(dict.fromkeys((story.want, story.role, story.benefit)))
    for reference in spec.references:
        clauses.update(dict.fromkeys((reference.want, reference.role, reference.benefit)))
    return [clause for clause in clauses if clause]


def _is_denial(story: Story, spec: TaskSpec) -> bool:
    return any(semantic_checks.is_denial(story.want, each.want) for each in spec.references)


def _compute_factors(stories: Sequence[Story], spec: TaskSpec) -> Floats:
    """(stories, references) in [0, 1]: what hedges, further parts and the like leave of a want's
    worth."""
    factors = np.ones((len(stories), len(spec.references)))
    asked = [each.want for each in spec.references]
    asked_parts = np.array([*map(semantic_checks.count_parts, asked)])
    asked_slips = np.array([*map(semantic_checks.count_slips, asked)])
    asked_hedged = np.array([*map(semantic_checks.is_hedged, asked)])
    asked_options = np.array([*map(semantic_checks.is_option, asked)])
    for row, story in enumerate(stories):
        excess = semantic_checks.count_parts(story.want) - asked_parts - SPARE_PARTS
        factors[row] *= OMNIBUS ** np.maximum(0, excess)
        factors[row] *= SLIP ** np.maximum(0, semantic_checks.count_slips(story.want) - asked_slips)
        if _is_denial(story, spec):
            factors[row] = 0.0
        if semantic_checks.is_hedged(story.want):
            factors[row] *= np.where(asked_hedged, 1.0, HEDGED)
        if semantic_checks.is_option(story.want):
            factors[row] *= np.where(asked_options, 1.0, OPTIONAL)
        if semantic_checks.is_about_stories(story.want, spec.known_stems):
            factors[row] *= META
        if semantic_checks.takes_back(story.children, story.want):
            factors[row] *= TAKEN_BACK
    return factors


def _score_roles(
    stories: Sequence[Story], spec: TaskSpec, vectors: Mapping[str, Vectors]
) -> Floats:
    """(stories, references): how near a role is to the reference's; 1 where that has none."""
    own = np.array([vectors[story.role] for story in stories])
    roles = np.ones((len(stories), len(spec.references)))
    stems = [frozenset(extract_stems(story.role)) for story in stories]
    for column, reference in enumerate(spec.references):
        if not reference.role:
            continue
        roles[:, column] = np.interp(own @ vectors[reference.role], ROLE_RAMP, (0.0, 1.0))
        for row, words in enumerate(stems):
            if words in spec.roles and not words & reference.role_stems:
                roles[row, column] = min(roles[row, column], OTHERS_ROLE)
    return roles


def _score_benefits(
    stories: Sequence[Story], spec: TaskSpec, vectors: Mapping[str, Vectors]
) -> Floats:
    """(stories, references): how well a benefit fits the reference's, or where that has none, a
    want."""
    benefits = np.zeros((len(stories), len(spec.references)))
    for row, story in enumerate(stories):
        if story.benefit is None:
            benefits[row] = [reference.benefit is None for reference in spec.references]
        elif not semantic_checks.has_own_benefit(story.want, story.benefit):
            benefits[row] = RESTATED
        else:
            vector = vectors[story.benefit]
            asked = [vectors[reference.benefit or reference.want] for reference in spec.references]
            near = np.array(asked) @ vector
            for column, reference in enumerate(spec.references):
                if not reference.benefit:
                    near[column] = max(near[column], vectors[story.want] @ vector)
            slips = SLIP ** semantic_checks.count_slips(story.benefit)
            benefits[row] = slips * np.interp(near, BENEFIT_RAMP, (0.0, 1.0))
    return benefits


def _ask(
    judge: Judge | None, stories: Sequence[Story], spec: TaskSpec, pairs: Sequence[Pair]
) -> list[Judgement]:
    if judge is None or not pairs:
        return [Judgement()] * len(pairs)
    return judge.judge(
        [Question(stories[pair.story], spec.references[pair.reference].text) for pair in pairs]
    )


@dataclass(frozen=True, slots=True)
class _Pairing:
    """Stories beside references: which answers which, and what it earns there."""

    stories: Sequence[Story]
    credits: _Credits
    cosines: Floats
    wants: Vectors
    references: Vectors

    def choose_matching(self) -> tuple[Matching, float]:
        """Return the matching that earns most, and how many stories repeat others.

        A story that says the same as others can cost them more than it earns, and so can a weak
        one for a reference that is asked for twice. Such a story is left unmatched where that
        pays, so that leaving it out does not.
        """
        best = self._match(())
        most = self._sum_up(best)
        sameness = compute_sameness(self.wants, self.references, best.pairs)
        costly: NDArray[np.bool_] = np.any(sameness, axis=1)
        twins = (compute_similarities(self.references, self.references) >= SAME_REFERENCE).sum(0)
        for story, reference, _ in best.pairs:
            costly[story] |= twins[reference] > 1
        candidates = costly.nonzero()[0][:MOST_UNMATCHED].tolist()
        unmatched: list[int] = []
        while candidates:
            tried = [self._match([*unmatched, story]) for story in candidates]
            totals = [self._sum_up(matching) for matching in tried]
            at = int(np.argmax(totals))
            if totals[at] <= most:
                break
            best = tried[at]
            most = totals[at]
            unmatched.append(candidates.pop(at))
        return best, float(np.triu(sameness, 1).max(0, initial=0.0).sum())

    def _match(self, unmatched: Sequence[int]) -> Matching:
        values = self.credits.values
        values[list(unmatched)] = 0
        return match(values, self.cosines, self.references)

    def _sum_up(self, matching: Matching) -> float:
        neutral = [Judgement()] * len(matching.pairs)
        return float(self.add_up(matching, neutral).values.sum()) / matching.references

    def add_up(self, matching: Matching, judgements: Sequence[Judgement]) -> _Credits:
        """Return what each matched story earns, the best first: what says the same as a better one
        earns so much less, and so does a benefit that a better one has."""
        pairs = matching.pairs
        sameness = compute_sameness(self.wants, self.references, pairs)
        order = sorted(range(len(pairs)), key=lambda at: -pairs[at].worth)
        earned = _Credits(np.zeros(len(pairs)), np.zeros(len(pairs)), np.zeros(len(pairs)))
        chosen = [pairs[at].story for at in order]
        ranks = semantic_checks.rank_benefits([self.stories[at].benefit for at in chosen])
        for place, at in enumerate(order):
            story, reference, _ = pairs[at]
            judgement = judgements[at]
            worth = max(float(self.credits.worths[story, reference]), judgement.same)
            if judgement.is_denied:
                worth = 0.0
            elif not judgement.do_criteria_agree:
                worth *= TAKEN_BACK
            new = 1 - sameness[story, chosen[:place]].max(initial=0.0)
            earned.worths[place] = worth * new
            if judgement.does_role_want_it:
                earned.roles[place] = self.credits.roles[story, reference]
            if judgement.does_benefit_follow:
                repeated = REPEATED_BENEFIT[min(ranks[place], LAST_RANK)]
                earned.benefits[place] = self.credits.benefits[story, reference] * repeated
        return earned


def _iter_diagnostics(
    answer: StoryList, stories: Sequence[Story], pairs: Sequence[Pair]
) -> Iterator[Diagnostic]:
    """Yield what is wrong with which line; nothing of the references."""
    matched = {pair.story for pair in pairs}
    lone = []
    for at, story in enumerate(stories):
        if at not in matched:
            lone.append(Rejected(story.line, "is not what was asked for"))
    for rejected in sorted((*answer.rejected, *lone), key=lambda item: item.line)[:50]:
        yield Diagnostic(
            stage=Stage.SCORE,
            severity=Severity.WARNING,
            line=rejected.line,
            message=rejected.reason,
        )
    if not answer.lines:
        yield Diagnostic(
            stage=Stage.EXTRACT,
            message="there is no text in the completion outside of its thinking",
        )
