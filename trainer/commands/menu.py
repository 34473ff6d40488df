"""Items of the menu that `gradus` without arguments shows."""

from __future__ import annotations

import os
import sys

from gradus.interactive import MenuItem, Question
from gradus.resources import configs
from trainer.config.presets import PRESETS


def _list_shipped_files(folder: str) -> list[str]:
    """Return the YAML files that ship with Gradus, as paths relative to the current folder."""
    return list(map(os.path.relpath, sorted((configs() / folder).glob("*.yaml"))))


MODEL = Question("Which model? A folder, or a name on the hub")

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
        (Question("Which configuration?", lambda: _list_shipped_files("train"), must_exist=True),),
    ),
    MenuItem(
        35,
        "quick",
        "train a model on rows of your own, without a file",
        lambda answers: [
            "train",
            answers[0],
            "--model",
            answers[1],
            "--dataset",
            answers[2],
            "--preset",
            answers[3],
        ],
        (
            Question("How?", lambda: ("sft", "dpo", "reward"), only=True),
            MODEL,
            Question("Which rows? A file, or a dataset's name on the hub"),
            Question(
                "How much of them? quick: 500 rows once; standard: all, 3 times",
                lambda: tuple(PRESETS),
                only=True,
            ),
        ),
    ),
    MenuItem(
        40,
        "eval",
        "measure a model on tasks",
        lambda answers: ["eval", *answers],
        (
            MODEL,
            Question("File of tasks (JSONL)", default="configs/tasks/ocaml.jsonl", must_exist=True),
        ),
    ),
    MenuItem(
        42,
        "sample",
        "write completions of prompts, and measure how varied they are",
        lambda answers: ["sample", *answers, "--metrics"],
        (MODEL, Question("File of prompts (JSONL)", must_exist=True)),
    ),
    MenuItem(
        44,
        "chat",
        "talk to a model",
        lambda answers: ["chat", *answers],
        (MODEL,),
    ),
    MenuItem(
        46,
        "merge",
        "put an adapter into its base model",
        lambda answers: ["merge", *answers],
        (Question("Which adapter? Its folder, or that of its run", must_exist=True),),
    ),
    MenuItem(
        50,
        "pipeline",
        "several stages in a row, with gates",
        lambda answers: ["pipeline", "run", *answers],
        (Question("Which pipeline?", lambda: _list_shipped_files("pipelines"), must_exist=True),),
    ),
)
