"""A hill climber on the story grader: word edits in roles, wants and benefits, kept when the reward
rises. It knows the goal, the context and words of the field, never the references.

`python -m tests.attack.story_climber` prints what four starts reach.
"""

from __future__ import annotations

import copy
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gradus.contract import Graded
from services.attacks.stories import Sprint, build_sprint, read_story_rows, split_halves
from services.graders.story.grader import StoryGrader

EDITS = 800
STARTS = (
    "story-015-tax-letters",
    "story-026-bike-share",
    "story-042-food-bank",
    "story-053-elder-visits",
)
BOUND = 0.88
"""What a climb may reach without a judge: far above half of an honest answer, since meaning is not
told (docs/decisions/0057)."""
RUBRIC = "story/weighted@1"
COMMON = frozenset(
    ("see", "get", "show", "list", "find", "send", "choose", "change", "plan", "tell", "know")
    + ("time", "day", "all", "new", "own", "first", "more", "before", "after", "with", "without")
    + ("for", "by", "the", "a", "of", "to", "and", "or", "not", "never")
)
_STORY = re.compile(r"As an? (.*?), I (?:want|would like) (.*?), so that (.*?)\.?$")
Clauses = list[list[str]]


@dataclass(frozen=True)
class Climb:
    start: float
    end: float
    half: float
    """What half of an honest answer earns."""
    text: str
    passed: bool


def climb(grader: StoryGrader, name: str, edits: int = EDITS, seed: int = 1) -> Climb:
    """Climb from stories that were made of the goal alone, by the reward alone."""
    sprint = build_sprint(name, read_story_rows()[name])

    def grade(text: str) -> Graded:
        return grader.grade(sprint.build_submission(text), RUBRIC, 0)

    stories = _start(sprint)
    best = grade(_join(stories))
    start = best.reward
    draw = random.Random(seed)
    words = _words_of_the_field(sprint)
    for _ in range(edits):
        edited = copy.deepcopy(stories)
        _edit(draw.choice(edited), words, draw)
        found = grade(_join(edited))
        if found.reward > best.reward + 1e-6:
            stories = edited
            best = found
    halves = [grade(text).reward for text in split_halves(sprint.honest)]
    return Climb(start, best.reward, sum(halves) / 2, _join(stories), best.passed)


def _start(sprint: Sprint) -> list[Clauses]:
    """As many stories as the honest answer has, of its roles and the goal's words."""
    goal = re.findall(r"[a-z]{4,}", sprint.task.sprint_goal.lower())
    stories = []
    for at, story in enumerate(sprint.honest):
        role = _clauses(story)[0]
        topic = [goal[at % len(goal)], goal[(at + 2) % len(goal)]]
        want = ["to", "see", "the", topic[0], "of", "my", topic[1]]
        stories.append([role, want, ["I", "can", "plan", "the", topic[0]]])
    return stories


def _words_of_the_field(sprint: Sprint) -> list[str]:
    """Words of goal, context and honest solution, which a model that knows the field has too."""
    known = " ".join(
        [sprint.task.sprint_goal, *map(str, sprint.task.team_context.values()), *sprint.honest]
    )
    return sorted({*re.findall(r"[a-z][a-z'-]+", known.lower()), *COMMON})


def _clauses(story: str) -> Clauses:
    found = _STORY.match(story)
    assert found, story
    return [clause.split() for clause in found.groups()]


def _join(stories: Sequence[Clauses]) -> str:
    lines = []
    for story in stories:
        role, want, benefit = (" ".join(clause) for clause in story)
        lines.append(f"As a {role}, I want {want}, so that {benefit}.")
    return "\n".join(lines)


def _edit(story: Clauses, words: Sequence[str], draw: random.Random) -> None:
    """Change a word, put one in, take one out, or swap two."""
    clause = story[draw.choices((0, 1, 2), (1, 6, 3))[0]]
    at = draw.randrange(len(clause))
    kind = draw.random()
    if kind < 0.45:
        clause[at] = draw.choice(words)
    elif kind < 0.75:
        clause.insert(at + (draw.random() < 0.5), draw.choice(words))
    elif kind < 0.9 and len(clause) > 1:
        del clause[at]
    elif len(clause) > 1:
        other = draw.randrange(len(clause))
        clause[at], clause[other] = clause[other], clause[at]


def main(show: Callable[[str], None] = print) -> None:
    grader = StoryGrader()
    for name in STARTS:
        found = climb(grader, name)
        show(f"{name}: {found.start:.2f} -> {found.end:.2f}, half {found.half:.2f}, {found.passed}")
        show(found.text)


if __name__ == "__main__":
    main()
