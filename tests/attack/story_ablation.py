"""`python -m tests.attack.story_ablation`: what each rule of the story grader earns (decision
0018).

A rule is switched off, everything is graded anew, and each kind of worse answer is compared with
honest ones: twists by machine (`story_perturbations.py`) of the 13 shipped tasks that the pair
model did not learn from with honest halves of the same tasks, single stories
(`story_judgements.py`) with paraphrases of the same source. A rule earns what the AUC of a kind
falls without it; the table names the kinds for which that is most. The last columns are by how much
the mean reward of honest answers rises without the rule, and how many attacks by hand are held
then.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

from services.attacks.stories import compute_outcomes, iter_submissions, load_sprints
from services.graders.story import fact_builder, parser, rubric, semantic_checks
from services.graders.story.grader import StoryGrader
from services.graders.story.lexicon import load_word_list
from services.local_grading import grade_in_order
from tests.attack.story_benchmark import RUBRIC, SAMPLE, SOURCES
from tests.attack.story_benchmark import measured as tasks_of
from tests.attack.story_judgements import _backlogs, _domains, _tasks, auc, measured

RULES: dict[str, Sequence[tuple[Any, str, Any]]] = {
    "fluency (probe)": [(rubric, "FLUENCY", 0.0)],
    "focus: wants about stories (`meta_words`)": [
        (semantic_checks, "is_about_stories", lambda want, known: False)
    ],
    "`maybe` (`hedges`)": [(semantic_checks, "is_hedged", lambda want, known: False)],
    "coherence: cosine and probe of a benefit": [
        (semantic_checks, "compute_explained_share", lambda *given: 1.0)
    ],
    "coherence: the probe": [(fact_builder, "SENSE", 0.0)],
    "coherence: usual words (`common_words`)": [(semantic_checks, "_load_usual_stems", frozenset)],
    "pair model: strays": [(fact_builder, "STRAY", (2.0, 3.0))],
    "pair model: lift of the cosine": [(fact_builder, "LIFT", 0.0)],
    "role: a party or not": [(semantic_checks, "is_known_role", lambda role, known: True)],
    "role: another reference's": [(semantic_checks, "is_others_role", lambda *given: False)],
    "a benefit that is the want again": [
        (semantic_checks, "has_own_benefit", lambda want, benefit: True)
    ],
    "benefits that are missing": [(rubric, "BENEFITS", 0.0)],
    "boilerplate": [(rubric, "BOILERPLATE", 0.0)],
    "redundancy": [(rubric, "REDUNDANCY", 0.0)],
    "tampering": [(rubric, "TAMPERING", 0.0)],
    "words that only name a slot (`slot_words`)": [
        (
            parser,
            "load_word_list",
            lambda name: frozenset() if name == "slot_words" else load_word_list(name),
        )
    ],
    "clauses, a part of the reward": [(rubric.MEASURES, "clauses", rubric.MEASURES["format"])],
    "count, a part of the reward": [(rubric.MEASURES, "count", rubric.MEASURES["format"])],
    "pair model: denials": [(fact_builder, "DENIED", (2.0, 3.0))],
    "pair model: harms": [(fact_builder, "HARMS", (2.0, 3.0))],
    "pair model: villains": [(fact_builder, "FOREIGN", (2.0, 3.0))],
}
Found = dict[tuple[str, str], list[float]]


def twisted(grader: StoryGrader) -> Found:
    """Rewards by source and kind, of the sampled tasks; `honest` are the halves."""
    found: Found = {}
    for source in SOURCES:
        field = tasks_of(grader, source, SAMPLE)
        name = f"twisted {source}"
        found[name, "honest"] = list(field.half)
        found.update({(name, kind): list(rewards) for kind, rewards in field.attacks.items()})
    return found


def held(grader: StoryGrader) -> int:
    """Number of attacks by hand that earn less than half of an honest answer."""
    sprints = load_sprints()
    results = grade_in_order(grader, iter_submissions(sprints), RUBRIC, 16)
    return sum(one.is_held for one in compute_outcomes(sprints, results))


def aucs(grader: StoryGrader) -> tuple[dict[tuple[str, str], float], float]:
    """AUC by source and kind, and the mean reward of honest answers."""
    found = {**twisted(grader), **measured(grader, [*_backlogs(), *_tasks(), *_domains()])}
    honest = {
        source: found.get((source, "honest")) or found[source, "paraphrase"] for source, _ in found
    }
    whole = [reward for rewards in honest.values() for reward in rewards]
    return {key: auc(honest[key[0]], rewards) for key, rewards in found.items()}, sum(whole) / len(
        whole
    )


def main() -> None:
    grader = StoryGrader()
    aucs(grader)  # what is measured first pays for vectors that are not kept yet
    base, honest = aucs(grader)
    print(f"All rules: {held(grader)} attacks by hand are held.\n")
    print(
        "| without | AUC falls by | of | AUC rises by | of | honest | held"
        " |\n|---|--:|---|--:|---|--:|--:|"
    )
    for rule, changes in RULES.items():
        with ExitStack() as stack:
            for place, name, value in changes:
                stack.enter_context(
                    patch.dict(place, {name: value})
                    if isinstance(place, dict)
                    else patch.object(place, name, value)
                )
            without, paid = aucs(grader)
            number = held(grader)
        earned = sorted(
            (base[key] - without[key], key)
            for key in base
            if key[1] not in ("honest", "paraphrase")
        )
        least = earned[0]
        most = [one for one in earned[-3:][::-1] if one[0] >= 0.02] or earned[-1:]
        names = "; ".join(f"{kind} ({source}) {gain:.3f}" for gain, (source, kind) in most)
        lost = f"{-least[0]:.3f} | {least[1][1]} ({least[1][0]})" if least[0] < 0 else "0 | -"
        print(
            f"| {rule} | {max(0.0, most[0][0]):.3f} | {names} | {lost} | {paid - honest:+.3f} |"
            f" {number} |",
            flush=True,
        )
    os._exit(0)


if __name__ == "__main__":
    main()
