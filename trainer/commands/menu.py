"""Items of the menu that `gradus` without arguments shows."""

from __future__ import annotations

import os
import sys

from gradus.interactive import MenuItem, Question
from gradus.resources import configs


def _shipped(folder: str) -> list[str]:
    """The YAML files that ship with Gradus, as paths relative to the current folder."""
    return [os.path.relpath(path) for path in sorted((configs() / folder).glob("*.yaml"))]


OFFERS = (
    MenuItem(
        10,
        "demo",
        "train a tiny model with a real OCaml compiler as its teacher, with a report",
        lambda answers: [sys.executable, "-m", "trainer.demo.run"],
    ),
    MenuItem(
        30,
        "train",
        "train a model as a file says",
        lambda answers: ["train", *answers],
        (Question("Which configuration?", lambda: _shipped("train"), must_exist=True),),
    ),
    MenuItem(
        40,
        "eval",
        "measure a model on tasks",
        lambda answers: ["eval", *answers],
        (
            Question("Which model? A folder, or a name on the hub"),
            Question("File of tasks (JSONL)", default="configs/tasks/ocaml.jsonl", must_exist=True),
        ),
    ),
    MenuItem(
        50,
        "pipeline",
        "several stages in a row, with gates",
        lambda answers: ["pipeline", "run", *answers],
        (Question("Which pipeline?", lambda: _shipped("pipelines"), must_exist=True),),
    ),
)
