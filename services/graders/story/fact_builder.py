"""Stories and references -> facts: which story answers what, and how well. Makes no reward of it.

Each story has a worth of its own, and worths add up: a story more never takes from another, so that
leaving one out never pays.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from gradus.contract import Diagnostic, Severity, Stage
from gradus.tasks.story import StoryTask
from services.graders.story import semantic_checks
from services.graders.story.encoder import Encoder
from services.graders.story.facts import StoryFacts
from services.graders.story.judges import Judge, Judgement, Question
from services.graders.story.lexicon import extract_stems, extract_words
from services.graders.story.matching import (
    ANSWERED,
    Floats,
    Gate,
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
"""What a want is worth that says `maybe` or `if possible` where the task does not."""
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
OF_PLACE = 0.1
"""What the places of stories and references count for, all together, beside one role that is the
same."""


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


class _Credit(NamedTuple):
    """What a matched story earns, each in [0, 1]."""

    worth: float
    role: float
    benefit: float
    is_denied: bool = False


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
    # without `[Design]` or `(Internal)` in front, unless that is all there is
    while text[:1] in ("[", "("):
        end = text.find("])"["[(".index(text[0])])
        if end <= 0 or not text[end + 1 :].strip():
            break
        text = text[end + 1 :].strip()
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
    worths = gate(cosines) * _compute_factors(stories, spec)
    matching = match(worths, cosines, references, _compute_likeness(stories, spec))
    sameness = compute_sameness(wants, references, matching.pairs)
    credits = _score_pairs(stories, spec, matching.pairs, vectors, sameness, judge)
    denied = sum(_is_denial(story, spec) for story in stories)
    denied += sum(credit.is_denied for credit in credits)
    flags = dict.fromkeys(flag for story in answer.stories for flag in story.flags)
    if denied:
        flags["meaning:contradicts"] = None
    facts = StoryFacts(
        stage=Stage.SCORE,
        lines=answer.lines,
        stories=len(stories),
        references=matching.references,
        matched=sum(credit.worth for credit in credits),
        roles=sum(credit.worth * credit.role for credit in credits),
        benefits=sum(credit.worth * credit.benefit for credit in credits),
        answered=sum(credit.worth >= ANSWERED for credit in credits),
        repeats=float(np.triu(sameness, 1).max(0, initial=0.0).sum()),
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
    asked_parts = np.array([semantic_checks.count_parts(each.want) for each in spec.references])
    asked_slips = np.array([semantic_checks.count_slips(each.want) for each in spec.references])
    for row, story in enumerate(stories):
        excess = semantic_checks.count_parts(story.want) - asked_parts - SPARE_PARTS
        factors[row] *= OMNIBUS ** np.maximum(0, excess)
        factors[row] *= SLIP ** np.maximum(0, semantic_checks.count_slips(story.want) - asked_slips)
        if _is_denial(story, spec):
            factors[row] = 0.0
        if semantic_checks.is_hedged(story.want, spec.known_stems):
            factors[row] *= HEDGED
        if semantic_checks.is_about_stories(story.want, spec.known_stems):
            factors[row] *= META
        if semantic_checks.takes_back(story.children, story.want):
            factors[row] *= TAKEN_BACK
        for column, reference in enumerate(spec.references):
            if semantic_checks.is_option(story.want, reference.want):
                factors[row, column] *= OPTIONAL
    return factors


def _score_pairs(
    stories: Sequence[Story],
    spec: TaskSpec,
    pairs: Sequence[Pair],
    vectors: Mapping[str, Vectors],
    sameness: Floats,
    judge: Judge | None,
) -> list[_Credit]:
    """Return what each matched story earns, the best first: what says the same as a better one
    earns so much less."""
    judgements: list[Judgement | None] = [None] * len(pairs)
    if judge is not None and pairs:
        questions = [
            Question(stories[pair.story], spec.references[pair.reference].text) for pair in pairs
        ]
        judgements = [*judge.judge(questions)]
    credits = []
    earlier: list[int] = []
    by_worth = sorted(zip(pairs, judgements, strict=True), key=lambda both: -both[0].worth)
    for pair, judgement in by_worth:
        story = stories[pair.story]
        reference = spec.references[pair.reference]
        credit = _Credit(
            pair.worth * (1 - sameness[pair.story, earlier].max(initial=0.0)),
            _score_role(story, reference, spec, vectors),
            _score_benefit(story, reference, vectors),
        )
        if judgement is not None:
            credit = _apply_judgement(credit, judgement)
        credits.append(credit)
        earlier.append(pair.story)
    ranks = semantic_checks.rank_benefits([stories[at].benefit for at in earlier])
    return [
        credit._replace(benefit=credit.benefit * REPEATED_BENEFIT[min(rank, LAST_RANK)])
        for credit, rank in zip(credits, ranks, strict=True)
    ]


def _apply_judgement(credit: _Credit, judgement: Judgement) -> _Credit:
    if judgement.is_denied:
        return credit._replace(worth=0.0, is_denied=True)
    worth = max(credit.worth, judgement.same)
    if not judgement.do_criteria_agree:
        worth *= TAKEN_BACK
    return _Credit(
        worth,
        credit.role if judgement.does_role_want_it else 0.0,
        credit.benefit if judgement.does_benefit_follow else 0.0,
    )


def _score_role(
    story: Story, reference: Reference, spec: TaskSpec, vectors: Mapping[str, Vectors]
) -> float:
    if not reference.role:
        return 1.0
    near = float(np.interp(vectors[story.role] @ vectors[reference.role], ROLE_RAMP, (0.0, 1.0)))
    if semantic_checks.is_others_role(story.role, reference.role_stems, spec.roles):
        return min(near, OTHERS_ROLE)
    return near


def _score_benefit(story: Story, reference: Reference, vectors: Mapping[str, Vectors]) -> float:
    if story.benefit is None:
        return 0.0 if reference.benefit else 1.0
    if not semantic_checks.has_own_benefit(story.want, story.benefit):
        return RESTATED
    near = vectors[reference.benefit or reference.want] @ vectors[story.benefit]
    if not reference.benefit:
        near = max(near, vectors[story.want] @ vectors[story.benefit])
    fitting = float(np.interp(near, BENEFIT_RAMP, (0.0, 1.0)))
    slips = semantic_checks.count_slips(story.benefit)
    return fitting * float(SLIP**slips)


def _compute_likeness(stories: Sequence[Story], spec: TaskSpec) -> Floats | None:
    """(stories, references): 1 where the roles are the same, and a little for the first with the
    first. None where no two stories want the same. Rounding, which depends on who shares a pass,
    decides nothing among them."""
    if len({story.want for story in stories}) == len(stories):
        return None
    same = np.zeros((len(stories), len(spec.references)))
    for at, story in enumerate(stories):
        role = frozenset(extract_stems(story.role))
        same[at] = [role == reference.role_stems for reference in spec.references]
    places = np.outer(np.arange(len(stories)), np.arange(len(spec.references)))
    likeness: Floats = same + OF_PLACE * places / (same.size * min(same.shape))
    return likeness


def _iter_diagnostics(
    answer: StoryList, stories: Sequence[Story], pairs: Sequence[Pair]
) -> Iterator[Diagnostic]:
    """Yield what is wrong with which line; nothing of the references."""
    matched = {pair.story for pair in pairs}
    lone = [
        Rejected(story.line, "is not what was asked for")
        for at, story in enumerate(stories)
        if at not in matched
    ]
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
