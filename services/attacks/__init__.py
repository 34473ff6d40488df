"""Corpora of hostile answers: where a grader's corpus is, and what `gradus attack` needs of one.

The corpus is the folder `attacks` beside the module of the grader. Those of the shipped graders are
in `tests/attack/` of the checkout.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from gradus.errors import Misuse
from services.graders.base import find_installed_graders

if TYPE_CHECKING:
    from services.attacks.code import CodeCorpus
    from services.attacks.stories import StoryCorpus


class Line(NamedTuple):
    """What the command prints of one attack."""

    word: str
    """`held`, `known` for an attack that is known to pay, or `THROUGH`."""
    text: str
    problem: str | None
    """None where all is as it should be."""


def corpus_folder(grader: str) -> Path:
    """Return the folder of hostile answers for a grader. Raises Misuse when there is none."""
    folders = [Path(__file__).parents[2] / "tests" / "attack" / grader]
    if point := find_installed_graders().get(grader):
        package = find_spec(point.module.rpartition(".")[0])
        folders += [
            Path(place) / "attacks"
            for place in (package and package.submodule_search_locations) or ()
        ]
    for folder in folders:
        if folder.is_dir():
            return folder
    raise Misuse(f"there is no corpus of attacks on the grader {grader!r}")


def load_corpus(grader: str) -> CodeCorpus | StoryCorpus:
    """Return a folder with `corpus.yaml` holds attacks on one task, any other one attacks on the
    shipped story tasks.

    Raises Misuse when there is no corpus, and for a file that cannot be read.
    """
    from services.attacks.code import FILE, CodeCorpus
    from services.attacks.stories import StoryCorpus

    folder = corpus_folder(grader)
    return CodeCorpus.read(grader, folder) if (folder / FILE).is_file() else StoryCorpus()
