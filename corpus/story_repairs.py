"""Repairs of rows of user stories: a prompt or references where there are none, and one task for
rows that ask the same."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError

from corpus.story_task_checks import find_copied_references
from corpus.task_repairs import Repair, Values
from corpus.task_rows import extract_task
from gradus.tasks.story import SEPARATOR, StoryTask, split_references

STORIES_WANTED = (
    "Write the user stories for this sprint, one per line: As a <role>, I want <what>, so that"
    " <why>."
)
"""What a prompt without one asks for."""
VALUE_COLUMNS = ("value_propositions", "impact")
"""Columns that tell what a sprint is to bring, as one text or a list."""
FEWEST_AIMS = 2
"""From this number on, a goal is a small backlog."""
FEWEST_WORDS = 3
"""Shortest aim, and shortest impact that says what to ask for, in words."""
_CONTINUED = re.compile(r"(?:and|or|including|such as)\b", re.IGNORECASE)
"""How a part of a goal begins that belongs to the part before it."""
_LIST_MARK = re.compile(r"^\s*(?:[-*\u2022]|\d+[.)])\s+")


def split_story_lines(values: Values) -> Repair | None:
    """Take references that stand in one text, a line each, apart."""
    text = values.get("references")
    if not isinstance(text, str) or SEPARATOR in text:
        return None
    lines = [_LIST_MARK.sub("", line).strip() for line in text.splitlines()]
    references = [line for line in lines if line]
    if len(references) < 2:
        return None
    return Repair({**values, "references": references}, "take the lines of the references apart")


def take_aims_as_references(values: Values) -> Repair | None:
    """Make a goal that lists several aims the references, where there are none, and ask for them
    by what the sprint is to bring.

    A goal of one aim, or one without an impact, needs its author: nothing else says what to ask.
    """
    impact = str(values.get("impact") or "").strip()
    goal = str(values.get("sprint_goal") or "").strip()
    if values.get("references") or values.get("prompt") or len(impact.split()) < FEWEST_WORDS:
        return None
    aims = list_aims(goal)
    if len(aims) < FEWEST_AIMS:
        return None
    changed = {**values, "references": aims, "sprint_goal": impact, "stated_goal": goal}
    del changed["impact"]
    return Repair(changed, f"ask by the impact: the goal's {len(aims)} aims become the references")


def list_aims(goal: str) -> list[str]:
    """Return the aims of a goal: its parts between semicolons, else between commas. What only
    continues a part stays with it."""
    if ";" in goal:
        return [aim.strip() for aim in goal.split(";") if aim.strip()]
    aims: list[str] = []
    for part in re.split(r",\s+", goal):
        text = part.strip()
        is_continued = _CONTINUED.match(text) or len(text.split()) < FEWEST_WORDS
        if aims and is_continued:
            aims[-1] += f", {text}"
        elif text:
            aims.append(text)
    return aims


def write_sprint_prompt(values: Values) -> Repair | None:
    """Ask for the stories of a sprint by its goal and what it is to bring, or by its project, where
    there is no prompt."""
    goal = str(values.get("sprint_goal") or "").strip()
    project = str(values.get("project") or "").strip()
    if values.get("prompt") or not (goal or project):
        return None
    team = str(values.get("team") or "").strip()
    parts = [f"Sprint goal: {goal}" if goal else f"Project: {project}"]
    sources = ["sprint goal" if goal else "project"]
    if team:
        parts.insert(0, f"Team: {team}")
        sources.append("team")
    for column in VALUE_COLUMNS:
        texts = _list_texts(values.get(column))
        if texts:
            parts.append("\n".join(["What it is to bring:", *(f"- {text}" for text in texts)]))
            sources.append(column)
    prompt = "\n\n".join([*parts, STORIES_WANTED])
    return Repair({**values, "prompt": prompt}, f"write the prompt from the {', '.join(sources)}")


def _list_texts(value: Any) -> list[str]:
    """Return the texts in a column that are not empty."""
    texts = value if isinstance(value, list) else [value]
    return [text.strip() for text in texts if isinstance(text, str) and text.strip()]


def join_references(values: Values, repeats: Sequence[Values]) -> dict[str, Any]:
    """Return the fields of a task with the references of others that ask the same."""
    references: dict[str, None] = {}
    for each in (values, *repeats):
        references |= dict.fromkeys(split_references(each.get("references")) or ())
    return {**values, "references": list(references)}


def leave_out_copies(values: Values) -> Repair | None:
    """Move references that the prompt or the goal says word for word to `notes`, if most remain:
    a copy of the goal would answer them."""
    try:
        task = StoryTask.model_validate(extract_task(values, "story"))
    except ValidationError:
        return None
    copied = find_copied_references(values, task)
    if not copied or 2 * len(copied) > len(task.references):
        return None
    references: list[str] = []
    left_out: list[str] = []
    for number, reference in enumerate(task.references, 1):
        (left_out if number in copied else references).append(reference)
    notes = values.get("notes") or {}
    if not isinstance(notes, dict):
        notes = {"notes": notes}
    changed = {
        **values,
        "references": references,
        "notes": {**notes, "copied_references": left_out},
    }
    numbers = ", ".join(map(str, copied))
    return Repair(changed, f"move references that stand in the goal to `notes`: {numbers}")
