"""`python -m tests.attack.story_table`: what honest answers and attacks earn, as tables.

With `--exceptions` it prints, behind the tables, the attacks that pay as entries of
`story/exceptions.yaml`, with the reasons that are given there. Changes no file.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator

from services.attacks.stories import (
    compute_outcomes,
    iter_submissions,
    load_exceptions,
    load_sprints,
)
from services.graders.story.grader import StoryGrader
from services.local_grading import grade_in_order
from tests.attack.story_benchmark import RUBRIC, SOURCES, Field, measured
from tests.attack.story_perturbations import ATTACKS


def main() -> None:
    grader = StoryGrader()
    fields = [measured(grader, source) for source in SOURCES]
    sprints = load_sprints()
    found = list(
        compute_outcomes(sprints, grade_in_order(grader, iter_submissions(sprints), RUBRIC, 16))
    )
    print("\n".join([*honest(fields), "", *by_machine(fields)]))
    by_class = defaultdict(list)
    for one in found:
        by_class[one.attack.kind].append((one.reward, one.half))
    print("\n| by hand | earns | half of an honest answer |\n|---|---|---|")
    for kind, pairs in sorted(
        by_class.items(), key=lambda item: -sum(r - h for r, h in item[1]) / len(item[1])
    ):
        reward, half = (sum(column) / len(pairs) for column in zip(*pairs, strict=True))
        print(f"| {kind} | {_marked(reward, half)} | {half:.2f} |")
    if "--exceptions" in sys.argv:
        listed = load_exceptions()
        paying = [
            (one.sprint.name, one.attack.kind, one.reward, one.half)
            for one in found
            if not one.is_held
        ]
        paying += [
            (field.source, kind, field.mean_of(field.attacks[kind]), field.mean_of(field.half))
            for field in fields
            for kind in ATTACKS
            if field.mean_of(field.attacks[kind]) >= field.mean_of(field.half)
        ]
        for file, kind, reward, half in paying:
            reason = known.reason if (known := listed.get((file, kind))) else ""
            print(
                f"- file: {file}\n  class: '{kind}'\n  reward: {reward:.2f}\n  half: {half:.2f}\n "
                f" reason: '{reason}'"
            )


def honest(fields: list[Field]) -> Iterator[str]:
    yield f"| honest | {' | '.join(SOURCES)} |\n|---|---|---|"
    for what in ("full", "two_foreign", "one_missing", "half", "one_story", "foreign"):
        means = [f"{field.mean_of(getattr(field, what)):.2f}" for field in fields]
        yield f"| {what.replace('_', ' ')} | {' | '.join(means)} |"


def by_machine(fields: list[Field]) -> Iterator[str]:
    yield f"| by machine | {' | '.join(SOURCES)} | tasks on which it pays |\n|---|---|---|---|"
    for kind in sorted(
        ATTACKS, key=lambda kind: -sum(field.mean_of(field.attacks[kind]) for field in fields)
    ):
        means = [
            _marked(field.mean_of(field.attacks[kind]), field.mean_of(field.half))
            for field in fields
        ]
        pays = " + ".join(str(field.paying(kind)) for field in fields)
        yield (
            f"| {kind} | {' | '.join(means)} | {pays} of"
            f" {' + '.join(str(len(field.names)) for field in fields)} |"
        )


def _marked(reward: float, half: float) -> str:
    return f"**{reward:.2f}**" if reward >= half else f"{reward:.2f}"


if __name__ == "__main__":
    main()
