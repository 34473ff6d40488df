"""Real stories beside this project, in shared/data: backlogs by role (Dalpiaz 2018) and sprints
(HHS TANF).

Reads them as tasks of the story grader. What is asked for is what people wrote; nobody wrote
answers to it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from gradus.contract import Graded, StorySubmission
from services.graders.story.grader import StoryGrader
from services.graders.story.parser import Rejected, clean_line, read_story

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
BACKLOGS, BY_ROLE, SPRINTS = (
    DATA / f"stories_{name}.jsonl"
    for name in ("dalpiaz_backlogs", "dalpiaz_by_role", "tanf_sprints")
)


@dataclass(frozen=True, slots=True)
class Group:
    """Stories of one role, or of one sprint."""

    name: str
    project: str
    goal: str
    stories: tuple[str, ...]


def groups(path: Path) -> list[Group]:
    """Groups with two different stories at least; of sprints only the items that are stories."""
    found = []
    for record in _records(path):
        items = dict.fromkeys(item.strip() for item in record["formatted_issues"].split("|||||"))
        stories = tuple(
            item
            for item in items
            if item and (path != SPRINTS or not isinstance(read_story(clean_line(item)), Rejected))
        )
        if len(stories) > 1:
            found.append(Group(record["id"], record["project"], record["sprint_goal"], stories))
    return found


def backlog_items() -> list[str]:
    return [story for record in _records(BACKLOGS) for story in record["stories"]]


def sprint_items() -> list[str]:
    """Different ones, in the order of the alphabet."""
    return sorted(
        {
            item.strip()
            for record in _records(SPRINTS)
            for item in record["formatted_issues"].split("|||||")
        }
    )


def _records(path: Path) -> Iterator[dict[str, str]]:
    for line in path.read_text().splitlines():
        yield json.loads(line)


def graded(grader: StoryGrader, group: Group, answer: Sequence[str]) -> Graded:
    task = {"references": group.stories, "sprint_goal": group.goal}
    submission = StorySubmission.model_validate(
        {"id": group.name, "completion": "\n".join(answer), "task": task}
    )
    return grader.grade(submission, grader.info().rubrics[0], 0)


def strangers(group: Group, others: Sequence[Group]) -> Group:
    """A group without a story of this one: of another project, or of another sprint where there is
    only one project."""
    place = next(number for number, other in enumerate(others) if other.name == group.name)
    turned = [*others[place + 1 :], *others[:place]]
    apart = [other for other in turned if other.project != group.project]
    return (apart or [other for other in turned if not set(other.stories) & set(group.stories)])[0]
