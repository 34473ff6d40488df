"""`python -m tests.attack.story_judgements [--config FILE]`: what the story grader tells apart, as the table of
docs/stories.md.

Every answer is one story, its task one reference. Beside honest answers in other words (`paraphrase`) stand answers of
a kind that is worse; the table gives the mean reward of a kind, the chance that an answer of it earns less than a
paraphrase of the same source (AUC; ties count half), and the share below half of the honest mean.
"""

from __future__ import annotations

import argparse
import json
import os
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import NamedTuple

from gradus.contract import Graded, StorySubmission
from gradus.resources import configs
from services.attacks.stories import story_rows
from services.graders.story.grader import StoryGrader
from services.graders.story.parser import Story, read_story
from services.local_grading import grade_in_order
from tests.attack.story_benchmark import SAMPLE

SHARED = Path(__file__).parents[3] / "shared"
DENIALS = (
    "make it impossible to {}",
    "forbid everyone to {}",
    "rule out that anyone can {}",
    "get rid of every way to {}",
)
UNSEEN_DENIALS = (
    "abolish the possibility to {}",
    "thwart whoever tries to {}",
    "have attempts to {} outlawed",
    "scrap what lets us {}",
)
"""In words that no training text has."""
ORDER = (
    "reference",
    "paraphrase",
    "denied",
    "denied paraphrase",
    "denied unseen",
    "contradiction",
    "wrong detail",
    "vague",
    "half",
    "wrong role",
    "harmful benefit",
    "keywords",
)
_THING = re.compile(r"(?:an?|the|no|files|messages)\b", re.IGNORECASE)


class Case(NamedTuple):
    source: str
    kind: str
    reference: str
    answer: str


def _told(role: str, want: str, benefit: str | None) -> str:
    plain = want if _THING.match(want) else f"to {want.removeprefix('to ')}"
    return f"As a {role}, I want {plain}{f', so that {benefit}' if benefit else ''}."


def _of(source: str, reference: Story, wants: Mapping[str, str], benefit: str | None) -> Iterator[Case]:
    """Cases by what the want says; `paraphrase` among `wants`."""
    same = wants["paraphrase"]
    deed = {name: f"have {want}" if _THING.match(want) else want for name, want in (("", reference.want), ("p", same))}
    number = len(reference.text)
    made = {
        **wants,
        "denied": DENIALS[number % 4].format(deed[""]),
        "denied paraphrase": DENIALS[(number + 1) % 4].format(deed["p"]),
        "denied unseen": UNSEEN_DENIALS[number % 4].format(deed["p"]),
        "half": " ".join(same.split()[: (len(same.split()) + 1) // 2]),
        "keywords": " ".join(sorted(word for word in re.findall(r"\w+", same) if len(word) > 3)),
    }
    yield Case(source, "reference", reference.text, reference.text)
    for kind, want in made.items():
        yield Case(source, kind, reference.text, _told(reference.role, want, benefit))


def _backlogs() -> Iterator[Case]:
    rows = map(json.loads, (SHARED / "data/stories_dalpiaz_backlogs.jsonl").read_text().splitlines())
    backlogs = {row["project"]: row["stories"] for row in rows}
    for line in Path(__file__).with_name("story_judgements.txt").read_text().splitlines():
        if line.startswith("#"):
            continue
        place, same, contradiction, detail, vague, harm, role = line.split(" | ")
        project, number = place.split()
        reference = read_story(backlogs[project][int(number)])
        assert isinstance(reference, Story), line
        wants = {"paraphrase": same, "contradiction": contradiction, "wrong detail": detail, "vague": vague}
        yield from _of("backlogs", reference, wants, reference.benefit)
        yield Case("backlogs", "wrong role", reference.text, _told(role, same, reference.benefit))
        yield Case("backlogs", "harmful benefit", reference.text, _told(reference.role, same, harm))


def _tasks() -> Iterator[Case]:
    """Of shipped tasks that the pair model did not learn from: the solutions are the paraphrases."""
    for row in list(story_rows().values())[SAMPLE]:
        honest = row["solution"].splitlines()
        for text, other in zip(row["references"], honest, strict=False):
            reference, same = read_story(text), read_story(other)
            if len(honest) == len(row["references"]) and isinstance(reference, Story) and isinstance(same, Story):
                yield from _of("shipped tasks", reference, {"paraphrase": same.want}, same.benefit)


def _domains() -> Iterator[Case]:
    """The shared cases of five other domains, each answer cut into its stories."""
    rows = [json.loads(line) for line in (SHARED / "cases/story_turn2.jsonl").read_text().splitlines()]
    kinds = {
        "plain": "reference",
        "impossible": "denied",
        "criminal": "wrong role",
        "harm": "harmful benefit",
        "wrong_detail": "wrong detail",
    }
    for row in rows:
        domain, _, kind = row["id"].partition("/")
        if not domain.startswith("domain-"):
            continue
        references, lines = row["task"]["references"], [line for line in row["completion"].splitlines() if line.strip()]
        if kind.startswith("single_"):
            yield Case("other domains", "paraphrase", references[0], row["completion"])
        elif kind in kinds and len(lines) == len(references):
            for reference, line in zip(references, lines, strict=True):
                yield Case("other domains", kinds[kind], reference, line)


def auc(better: Sequence[float], worse: Sequence[float]) -> float:
    """The chance that one of `better` is above one of `worse`."""
    wins = sum((one > other) + (one == other) / 2 for one in better for other in worse)
    return wins / (len(better) * len(worse))


def measured(grader: StoryGrader, cases: Sequence[Case]) -> dict[tuple[str, str], list[float]]:
    """Rewards by source and kind."""
    asked = [
        StorySubmission.model_validate(
            {"id": str(at), "completion": one.answer, "task": {"references": [one.reference]}}
        )
        for at, one in zip(count(), cases, strict=False)
    ]
    found = defaultdict(list)
    for case, result in zip(cases, grade_in_order(grader, asked, "story/weighted@1", 8), strict=True):
        assert isinstance(result, Graded), result
        found[case.source, case.kind].append(result.reward)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", type=Path, default=configs() / "graders" / "story.yaml")
    grader = StoryGrader(parser.parse_args().config)
    cases = [*_backlogs(), *_tasks(), *_domains()]
    found = measured(grader, cases)
    print(f"{grader.info().toolchain}\n\n| source | kind | n | mean | AUC | below half |\n|---|---|--:|--:|--:|--:|")
    for source in dict.fromkeys(case.source for case in cases):
        honest = found[source, "paraphrase"]
        for kind in ORDER:
            if rewards := found.get((source, kind)):
                mean = sum(rewards) / len(rewards)
                below = sum(one < sum(honest) / len(honest) / 2 for one in rewards) / len(rewards)
                print(f"| {source} | {kind} | {len(rewards)} | {mean:.3f} | {auc(honest, rewards):.3f} | {below:.2f} |")
    os._exit(0)


if __name__ == "__main__":
    main()
