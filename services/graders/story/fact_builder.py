"""Stories and references -> facts: which story answers what, and whether it makes sense. Makes no
reward of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate, combinations
from typing import Any, NamedTuple

import numpy as np

from gradus.contract import Diagnostic, Severity, Stage
from gradus.tasks.story import StoryTask
from services.graders.story import semantic_checks
from services.graders.story.encoder import Encoder
from services.graders.story.facts import Senses, StoryFacts
from services.graders.story.lexicon import extract_stems, extract_words
from services.graders.story.matching import (
    ANSWERED,
    TIE,
    Floats,
    Gate,
    Matching,
    Pair,
    Vectors,
    compute_similarities,
    count_repeats,
    group_connected,
    match,
)
from services.graders.story.pairs import CONTRADICTED, SAME, PairModel
from services.graders.story.parser import Rejected, Story, StoryList, clean_line, read_story

MOST_WORDS = 45
"""Words of a long real story: 95 of 100 have at most 44."""
SPARE_STORIES = 8
"""Stories of that length that are read of an answer, beside twice as many as there are
references."""

SAME_BENEFIT = 0.5
"""Shared words, of all words of two benefits, from which they are one."""
OTHERS_ROLE = 0.1
"""What a role is worth that is not its reference's but another one's."""
HEDGED = 0.4
"""What a want is worth that says `maybe` where the task does not."""
META = 0.3
"""What a want is worth that speaks of stories where the task does not."""
EXPLAINED = 0.25
"""Share of a benefit's words that are the task's, the want's or usual from which nothing is asked
about it."""
SENSE = 0.15
"""What making sense by itself adds to a benefit's cosine."""
RELATED = (0.15, 0.30)
"""Cosine of a benefit and what is nearest to it, of the own want and all references, with SENSE:
worth nothing, all."""
OF_PLACE = 0.1
"""What the places of stories and references count for, all together, beside one role that is the
same."""


DENIED = (0.5, 0.85)
"""Chance that a want contradicts its reference, of this and of `the same`: up to the first all of
the similarity stays, from the second on nothing."""
CONTRADICTS = 0.6
"""Chance of a contradiction from which an answer does not pass."""
USUAL = 0.2
"""Chance that want and reference say the same of any two that belong together."""
LIFT = 0.5
"""What that chance adds to their cosine, for each that it is above USUAL."""
HARMS = (0.5, 0.95)
"""Chance that a benefit contradicts its want: from which it costs, to where it is worth nothing."""
STRAY = (0.3, 0.9)
"""Chance that a benefit has nothing to do with its want: from which it costs, to where it costs
STRAY_COST."""
STRAY_COST = 0.5
CLEARED = (0.5, 0.9)
"""Chance that a benefit says the same as the reference's: from which it harms less, to where it
does not."""
FOREIGN = (0.85, 0.97)
"""Chance that no holder of a role would want it: from which it costs, to where the role is worth
nothing."""


@dataclass(frozen=True, slots=True)
class Reference:
    want: str
    """Want of a story, or the text of a bare title."""
    role: frozenset[str]
    """Stems; empty of a bare title."""
    benefit: str | None


@dataclass(frozen=True, slots=True)
class TaskSpec:
    """What a task asks for, read once."""

    references: tuple[Reference, ...]
    known_stems: frozenset[str]
    """Stems of the task's own words: goal, references, context."""
    roles: frozenset[frozenset[str]]
    """Stems of each role that a reference has."""


@dataclass(frozen=True, slots=True)
class StoryMeasurement:
    facts: StoryFacts
    cpu_s: float
    """CPU seconds of the model."""


class _Matched(NamedTuple):
    """A story beside the reference that it answers."""

    story: Story
    reference: Reference
    vector: Vectors
    """(width,), of the want."""
    fluency: float
    """1 less what its want lacks in fluency that the reference has: where titles are jargon, jargon
    is fine."""
    gated: float


class _PendingChecks(NamedTuple):
    """Texts of a story that need a second embedding pass; most honest stories have none."""

    role: str | None
    benefit: str | None

    @property
    def texts(self) -> Iterator[str]:
        yield from (text for text in self if text is not None)


_SecondPass = dict[str, tuple[Vectors, Vectors]]
"""Text -> its vector and its inner vector."""


def _run_second_pass(texts: Sequence[str], encoder: Encoder) -> tuple[_SecondPass, float]:
    """Return the embeddings of the texts in `_PendingChecks`, and the CPU seconds of the model."""
    if not texts:
        return {}, 0.0
    embedded = encoder.embed(texts)
    return dict(
        zip(texts, zip(embedded.vectors, embedded.inner, strict=True), strict=True)
    ), embedded.cpu_s


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
    return TaskSpec(
        read, known_stems, frozenset(reference.role for reference in read if reference.role)
    )


def _parse_reference(text: str) -> Reference:
    text = clean_line(text)
    story = read_story(text)
    if isinstance(story, Story):
        role = frozenset(extract_stems(story.role))
        return Reference(story.want, role, story.benefit)
    title = (
        text  # a bare one, without `[Design]` or `(Internal)` in front, unless that is all there is
    )
    while (
        title[:1] in "[("
        and (end := title.find("])"["[(".index(title[0])])) > 0
        and title[end + 1 :].strip()
    ):
        title = title[end + 1 :].strip()
    return Reference(title, frozenset(), None)


def _iter_texts(value: Any) -> Iterator[str]:
    """Yield all texts in a JSON value, keys left out."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list | tuple):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _iter_texts(part)


class _Read(NamedTuple):
    """What the pair model says of matched stories, in their order; all but `lift` in [0, 1], 1
    without one."""

    lift: list[float]
    """What is added to the cosine of want and reference; 0 without a pair model."""
    agreement: list[float]
    """What a contradiction leaves of their similarity."""
    contradicted: int
    """Number of wants that contradict their references."""
    benefit: list[float]
    role: list[float]
    cpu_s: float


def measure_stories(
    answer: StoryList,
    spec: TaskSpec,
    gate: Gate,
    encoder: Encoder,
    reader: PairModel | None = None,
) -> StoryMeasurement:
    """Return the facts of `answer`. `reader`: None where nothing looks for contradictions. Raises
    Fault when a model fails."""
    answer = _drop_surplus(answer, MOST_WORDS * (2 * len(spec.references) + SPARE_STORIES))
    stories = tuple(sorted(answer.stories, key=lambda story: (story.want, story.text)))
    if not stories or not spec.references:
        nothing = StoryFacts(
            stage=Stage.EXTRACT,
            lines=answer.lines,
            references=len(spec.references),
            flags=answer.flags,
            diagnostics=tuple(_iter_diagnostics(answer, (), Matching((), 0))),
        )
        return StoryMeasurement(nothing, 0.0)
    embedded = encoder.embed(
        [story.want for story in stories] + [reference.want for reference in spec.references]
    )
    story_vectors, reference_vectors = np.split(embedded.vectors, [len(stories)])
    hedged = [semantic_checks.is_hedged(story.want, spec.known_stems) for story in stories]
    cosines = compute_similarities(story_vectors, reference_vectors)
    gated = gate(cosines) * np.array([[HEDGED if is_hedged else 1.0] for is_hedged in hedged])
    matching = match(gated, cosines, reference_vectors, _compute_likeness(stories, spec))
    fluency = semantic_checks.load_probe("fluency")(embedded.inner)
    read = _read(stories, spec, matching.pairs, reader)
    pairs = tuple(
        pair._replace(
            gated=float(gate(cosines[pair.story, pair.reference] + lift))
            * agreement
            * (HEDGED if hedged[pair.story] else 1.0)
        )
        for pair, lift, agreement in zip(matching.pairs, read.lift, read.agreement, strict=True)
    )
    matching = replace(matching, pairs=pairs)
    matched = [
        _Matched(
            stories[pair.story],
            spec.references[pair.reference],
            story_vectors[pair.story],
            1.0 - max(0.0, float(fluency[len(stories) + pair.reference] - fluency[pair.story])),
            pair.gated,
        )
        for pair in pairs
    ]
    senses, more_cpu_s = _measure_senses(matched, read, spec, reference_vectors, encoder)
    repeated = count_repeats(story_vectors, reference_vectors, pairs)
    facts = _build_facts(answer, stories, spec, matching, repeated, senses, read.contradicted)
    return StoryMeasurement(facts, embedded.cpu_s + read.cpu_s + more_cpu_s)


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


def _read(
    stories: Sequence[Story], spec: TaskSpec, pairs: Sequence[Pair], reader: PairModel | None
) -> _Read:
    """Make one call of `reader` for wants, roles and benefits, and one for the benefits that are
    in doubt then: what says the same as the benefit of the reference neither harms nor strays."""
    ones = [1.0] * len(pairs)
    if reader is None or not pairs:
        return _Read([0.0] * len(pairs), ones, 0, ones, ones, 0.0)
    texts: list[tuple[str, str]] = []
    for pair in pairs:
        want = stories[pair.story].want
        reference_want = spec.references[pair.reference].want
        texts += [(reference_want, want), (want, reference_want)]
    foreign = [
        at
        for at, pair in enumerate(pairs)
        if not _has_reference_role(stories[pair.story], spec.references[pair.reference])
    ]
    texts += [
        (f"as {stories[pairs[at].story].role}", stories[pairs[at].story].want) for at in foreign
    ]
    with_benefit = [at for at, pair in enumerate(pairs) if stories[pair.story].benefit is not None]
    texts += [
        (stories[pairs[at].story].want, f"so that {stories[pairs[at].story].benefit}")
        for at in with_benefit
    ]
    chances, cpu_s = reader.compute_chances(texts)
    number = len(pairs)
    apply_ramps = semantic_checks.apply_ramps
    wants = chances[: 2 * number].reshape(number, 2, 3).mean(1)
    wants[[stories[pair.story].want == spec.references[pair.reference].want for pair in pairs]] = (
        1.0,
        0.0,
        0.0,
    )
    roles, benefits = np.split(chances[2 * number :], [len(foreign)])
    denied = wants[:, CONTRADICTED] / (wants[:, SAME] + wants[:, CONTRADICTED])
    lift = LIFT * (wants[:, SAME] - USUAL)
    agreement = 1 - apply_ramps(denied, *DENIED)
    harms = benefits[:, CONTRADICTED]
    strays = 1 - benefits[:, SAME] - harms
    doubted: dict[int, tuple[str, str]] = {}
    for place, at in enumerate(with_benefit):
        reference_benefit = spec.references[pairs[at].reference].benefit
        story_benefit = stories[pairs[at].story].benefit
        if (
            reference_benefit
            and story_benefit
            and (harms[place] > HARMS[0] or strays[place] > STRAY[0])
        ):
            doubted[place] = reference_benefit, story_benefit
    if doubted:
        again, more_cpu_s = reader.compute_chances([*doubted.values()])
        cpu_s += more_cpu_s
        harms[[*doubted]] *= 1 - apply_ramps(again[:, SAME], *CLEARED)
        strays[[*doubted]] *= 1 - again[:, SAME]
    sound = np.ones(number)
    fitting = np.ones(number)
    sound[with_benefit] = (1 - apply_ramps(harms, *HARMS)) * (
        1 - STRAY_COST * apply_ramps(strays, *STRAY)
    )
    fitting[foreign] = 1 - apply_ramps(roles[:, CONTRADICTED], *FOREIGN)
    contradicted = int((denied >= CONTRADICTS).sum())
    return _Read(
        lift.tolist(), agreement.tolist(), contradicted, sound.tolist(), fitting.tolist(), cpu_s
    )


def _has_reference_role(story: Story, reference: Reference) -> bool:
    role_stems = extract_stems(story.role)
    return bool(role_stems) and reference.role.issuperset(role_stems)


def _build_facts(
    answer: StoryList,
    stories: Sequence[Story],
    spec: TaskSpec,
    matching: Matching,
    repeated: float,
    senses: Senses,
    contradicted: int,
) -> StoryFacts:
    own_flags = dict.fromkeys(flag for story in answer.stories for flag in story.flags)
    doubts = (
        f"meaning:{name}"
        for name in ("fluency", "focus", "coherence", "role")
        if getattr(senses, name) < 0.5
    )
    return StoryFacts(
        stage=Stage.SCORE,
        lines=answer.lines,
        stories=len(stories),
        references=matching.references,
        matched=matching.total,
        answered=sum(pair.gated >= ANSWERED for pair in matching.pairs),
        benefits=sum(
            story.benefit is not None and semantic_checks.has_own_benefit(story.want, story.benefit)
            for story in stories
        )
        / len(stories),
        benefits_wanted=sum(reference.benefit is not None for reference in spec.references)
        / len(spec.references),
        boilerplate=_measure_boilerplate(stories),
        repeats=repeated,
        senses=senses,
        contradicted=contradicted,
        flags=(
            *answer.flags,
            *own_flags,
            *doubts,
            *(["meaning:contradicts"] if contradicted else []),
        ),
        diagnostics=tuple(_iter_diagnostics(answer, stories, matching)),
    )


def _compute_likeness(stories: Sequence[Story], spec: TaskSpec) -> Floats | None:
    """(stories, references): 1 where the roles are the same, and a little for the first with the
    first. None where no two stories want the same. Rounding, which depends on who shares a pass,
    decides nothing among them."""
    if len({story.want for story in stories}) == len(stories):
        return None
    same = np.zeros((len(stories), len(spec.references)))
    for at, story in enumerate(stories):
        role = frozenset(extract_stems(story.role))
        same[at] = [role == reference.role for reference in spec.references]
    places = np.outer(np.arange(len(stories)), np.arange(len(spec.references))) / (
        same.size * min(same.shape)
    )
    likeness: Floats = same + OF_PLACE * places
    return likeness


def _measure_senses(
    pairs: Sequence[_Matched], read: _Read, spec: TaskSpec, references: Vectors, encoder: Encoder
) -> tuple[Senses, float]:
    """Return how much sense the matched stories make, and the CPU seconds of the model for what had
    to be looked at again."""
    if not pairs:
        return Senses(), 0.0
    doubts = [_find_pending_checks(matched, spec) for matched in pairs]
    again, cpu_s = _run_second_pass([text for doubt in doubts for text in doubt.texts], encoder)
    scores = [
        (
            matched.fluency,
            META if semantic_checks.is_about_stories(matched.story.want, spec.known_stems) else 1.0,
            min(harmless, _score_coherence(matched, doubt, again, references)),
            min(fitting, _score_role(matched, doubt, spec, again)),
        )
        for matched, doubt, harmless, fitting in zip(
            pairs, doubts, read.benefit, read.role, strict=True
        )
    ]
    weights = np.array([matched.gated for matched in pairs]) + TIE
    means = weights @ np.array(scores) / weights.sum()
    return Senses(*(round(float(mean), 6) for mean in means)), cpu_s


def _find_pending_checks(matched: _Matched, spec: TaskSpec) -> _PendingChecks:
    """Return what the words alone do not clear."""
    story = matched.story
    known_stems = spec.known_stems
    benefit = story.benefit
    if (
        benefit is not None
        and semantic_checks.compute_explained_share(benefit, known_stems, extract_stems(story.want))
        >= EXPLAINED
    ):
        benefit = None
    return _PendingChecks(
        role=None if semantic_checks.is_known_role(story.role, known_stems) else story.role,
        benefit=benefit,
    )


def _score_coherence(
    matched: _Matched, doubt: _PendingChecks, again: _SecondPass, references: Vectors
) -> float:
    if doubt.benefit is None:
        return 1.0
    vector, inner = again[doubt.benefit]
    related = max(float((references @ vector).max()), float(matched.vector @ vector))
    sense = float(semantic_checks.load_probe("sense")(inner[None])[0])
    return float(semantic_checks.apply_ramps(np.array(related + SENSE * sense), *RELATED))


def _score_role(
    matched: _Matched, doubt: _PendingChecks, spec: TaskSpec, again: _SecondPass
) -> float:
    party = 1.0
    if doubt.role is not None:
        _, inner = again[doubt.role]
        party = float(semantic_checks.load_probe("party")(inner[None])[0])
    is_other_role = semantic_checks.is_others_role(
        matched.story.role, matched.reference.role, spec.roles
    )
    return min(party, OTHERS_ROLE) if is_other_role else party


def _measure_boilerplate(stories: Sequence[Story]) -> float:
    """Return share of the benefits that are, but for few words, another story's."""
    benefits = [
        frozenset(extract_stems(story.benefit)) for story in stories if story.benefit is not None
    ]
    kinds = list(dict.fromkeys(benefits))
    alike = []
    for first, second in combinations(range(len(kinds)), 2):
        shared = len(kinds[first] & kinds[second])
        if (
            shared > 0
            and shared / (len(kinds[first]) + len(kinds[second]) - shared) >= SAME_BENEFIT
        ):
            alike.append((first, second))
    return 1 - len(group_connected(len(kinds), alike)) / len(benefits) if benefits else 0.0


def _iter_diagnostics(
    answer: StoryList, stories: Sequence[Story], matching: Matching
) -> Iterator[Diagnostic]:
    """Yield what is wrong with which line; nothing of the references."""
    matched = {pair.story for pair in matching.pairs}
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
