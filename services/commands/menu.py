"""Items of the menu that `gradus` without arguments shows."""

from __future__ import annotations

from gradus.interactive import MenuItem, Question
from services.graders.base import find_installed_graders

GRADERS = tuple(find_installed_graders())
OFFERS = (
    MenuItem(
        20,
        "grade",
        "grade submissions of a file",
        lambda answers: ["grade", *answers],
        (
            Question("Which grader?", lambda: GRADERS, next(iter(GRADERS), None), only=True),
            Question("File of submissions (JSONL)", must_exist=True),
        ),
    ),
    MenuItem(
        60,
        "dashboard",
        "a live page of runs and evaluations",
        lambda answers: ["dashboard", "--runs", *answers],
        (Question("Folder of runs", default="runs"),),
    ),
)
