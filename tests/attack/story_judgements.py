"""`python -m tests.attack.story_judgements [FILE...]`: what the story grader tells apart, as a
table that docs/stories.md sums up. FILE: configurations in place of the shipped one and the same
without a pair model.

Every answer is one story, its task one reference. Beside honest answers in other words
(`paraphrase`; where there are none, the references) stand answers of a kind that is worse; the
table gives the mean reward of a kind, the chance that an answer of it earns less than an honest one
of the same source (AUC; ties count half), the same chance beside the honest answer to its own
reference (in group), and the share below half of the honest mean.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from gradus.contract import Graded, StorySubmission
from gradus.resources import configs
from services.attacks.stories import read_story_rows
from services.graders.story.grader import StoryGrader
from services.graders.story.parser import Story, clean_line, read_story
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
USUAL_BENEFITS = (
    "I can plan ahead",
    "the day goes well",
    "I need less time",
    "it is worth the effort",
)
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
    "rotated benefit",
    "usual benefit",
    "keywords",
    "shuffled",
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


def _of(
    source: str, reference: Story, wants: Mapping[str, str], benefit: str | None
) -> Iterator[Case]:
    """Cases by what the want says; `paraphrase` among `wants`."""
    same = wants["paraphrase"]
    deed = {
        name: f"have {want}" if _THING.match(want) else want
        for name, want in (("", reference.want), ("p", same))
    }
    number = len(reference.text)
    made = {
        **wants,
        "denied": DENIALS[number % 4].format(deed[""]),
        "denied paraphrase": DENIALS[(number + 1) % 4].format(deed["p"]),
        "denied unseen": UNSEEN_DENIALS[number % 4].format(deed["p"]),
        "half": " ".join(same.split()[: (len(same.split()) + 1) // 2]),
        "keywords": " ".join(sorted(word for word in re.findall(r"\w+", same) if len(word) > 3)),
        "shuffled": " ".join(random.Random(number).sample(same.split(), len(same.split()))),
    }
    yield Case(source, "reference", reference.text, reference.text)
    for kind, want in made.items():
        yield Case(source, kind, reference.text, _told(reference.role, want, benefit))
    if benefit:
        usual = USUAL_BENEFITS[number % len(USUAL_BENEFITS)]
        yield Case(source, "usual benefit", reference.text, _told(reference.role, same, usual))


def _rotated(source: str, said: Sequence[tuple[str, Story]]) -> Iterator[Case]:
    """Honest answers with the benefit of the one before. `said`: references, and the stories that
    answer them."""
    for (text, story), (_, other) in zip(said, [*said[-1:], *said[:-1]], strict=True):
        if story.benefit and other.benefit:
            yield Case(
                source, "rotated benefit", text, _told(story.role, story.want, other.benefit)
            )


def _backlogs() -> Iterator[Case]:
    rows = map(
        json.loads, (SHARED / "data/stories_dalpiaz_backlogs.jsonl").read_text().splitlines()
    )
    backlogs = {row["project"]: row["stories"] for row in rows}
    said = []
    for line in Path(__file__).with_name("story_judgements.txt").read_text().splitlines():
        if line.startswith("#"):
            continue
        place, same, contradiction, detail, vague, harm, role = line.split(" | ")
        project, number = place.split()
        reference = read_story(backlogs[project][int(number)])
        assert isinstance(reference, Story), line
        wants = {
            "paraphrase": same,
            "contradiction": contradiction,
            "wrong detail": detail,
            "vague": vague,
        }
        yield from _of("backlogs", reference, wants, reference.benefit)
        yield Case("backlogs", "wrong role", reference.text, _told(role, same, reference.benefit))
        yield Case("backlogs", "harmful benefit", reference.text, _told(reference.role, same, harm))
        said.append((reference.text, replace(reference, want=same)))
    yield from _rotated("backlogs", said)


def _sprints() -> Iterator[Case]:
    """Items of a team's sprints that are stories; their references stand for paraphrases."""
    rows = map(json.loads, (SHARED / "data/stories_tanf_sprints.jsonl").read_text().splitlines())
    items = dict.fromkeys(item for row in rows for item in row["formatted_issues"].split(" ||||| "))
    answers = [read_story(clean_line(item)) for item in items]
    stories = [answer for answer in answers if isinstance(answer, Story)]
    for story in stories[:: max(1, len(stories) // 40)]:
        cases = _of("sprints", story, {"paraphrase": story.want}, story.benefit)
        yield from (one for one in cases if one.kind not in ("paraphrase", "denied paraphrase"))


def _tasks() -> Iterator[Case]:
    """Of shipped tasks that the pair model did not learn from: the solutions are the
    paraphrases."""
    for row in list(read_story_rows().values())[SAMPLE]:
        honest = row["solution"].splitlines()
        said = []
        for text, other in zip(row["references"], honest, strict=False):
            reference, same = read_story(text), read_story(other)
            if (
                len(honest) == len(row["references"])
                and isinstance(reference, Story)
                and isinstance(same, Story)
            ):
                yield from _of("shipped tasks", reference, {"paraphrase": same.want}, same.benefit)
                said.append((reference.text, same))
        yield from _rotated("shipped tasks", said)


def _domains() -> Iterator[Case]:
    """The shared cases of five other domains, each answer cut into its stories."""
    rows = [
        json.loads(line) for line in (SHARED / "cases/story_turn2.jsonl").read_text().splitlines()
    ]
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
        references = row["task"]["references"]
        lines = [line for line in row["completion"].splitlines() if line.strip()]
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
    for case, result in zip(
        cases, grade_in_order(grader, asked, "story/weighted@1", 8), strict=True
    ):
        assert isinstance(result, Graded), result
        found[case.source, case.kind].append(result.reward)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("configs", nargs="*", type=Path)
    chosen: list[Path] = parser.parse_args().configs
    cases = [*_backlogs(), *_sprints(), *_tasks(), *_domains()]
    with TemporaryDirectory() as folder:
        shipped = configs() / "graders" / "story.yaml"
        without = Path(folder) / "story.yaml"
        without.write_text(shipped.read_text().replace("pairs: shipped", "pairs: none"))
        graders = [StoryGrader(path) for path in chosen or [shipped, without]]
    tables = [measured(grader, cases) for grader in graders]
    print(*[grader.info().toolchain for grader in graders], sep="\n")
    references = defaultdict(list)
    for case in cases:
        references[case.source, case.kind].append(case.reference)
    print(f"\n| source | kind | n |{' mean | AUC | in group | below half |' * len(tables)}")
    print(f"|---|---|--:|{'--:|--:|--:|--:|' * len(tables)}")
    for source in dict.fromkeys(case.source for case in cases):
        for kind in ORDER:
            if (source, kind) in tables[0]:
                cells = [_figures(found, references, source, kind) for found in tables]
                print(
                    f"| {source} | {kind} | {len(tables[0][source, kind])} | {' | '.join(cells)} |"
                )
    os._exit(0)


def _figures(
    found: Mapping[tuple[str, str], Sequence[float]],
    references: Mapping[tuple[str, str], Sequence[str]],
    source: str,
    kind: str,
) -> str:
    honest = found.get((source, "paraphrase")) or found[source, "reference"]
    rewards = found[source, kind]
    own: dict[str, float] = {}
    for better in ("reference", "paraphrase"):
        own.update(zip(references[source, better], found.get((source, better), ()), strict=True))
    beside = zip(references[source, kind], rewards, strict=True)
    wins = [auc([own[reference]], [reward]) for reference, reward in beside]
    below = sum(one < sum(honest) / len(honest) / 2 for one in rewards) / len(rewards)
    means = sum(rewards) / len(rewards), auc(honest, rewards), sum(wins) / len(wins)
    return f"{' | '.join(f'{one:.3f}' for one in means)} | {below:.2f}"


if __name__ == "__main__":
    main()
