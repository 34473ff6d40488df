"""Corpora of hostile answers: where a grader's corpus is, and what `gradus attack` needs of one.

The corpus is the folder `attacks` beside the module of the grader. Those of the shipped graders are
in `tests/attack/` of the checkout.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from gradus.errors import Misuse
from services.graders.base import find_installed_graders

if TYPE_CHECKING:
    from services.attacks.code import CodeCorpus
    from services.attacks.stories import StoryCorpus


class Line(NamedTuple):
    """Output of the command for one attack."""

    word: str
    """`held`, `known` for an attack that is known to pay, or `THROUGH`."""
    text: str
    problem: str | None
    """None if the outcome is as expected."""


TrialKind = Literal["honest", "wrong", "attack"]


@dataclass(frozen=True, slots=True)
class Trial:
    """A completion for the reward function of another project, with what it may earn."""

    name: str
    kind: TrialKind
    """Honest and wrong answers are controls: rewards are read between theirs."""
    group: str
    """Trials whose rewards are compared: those of one language or of one sprint."""
    prompt: str
    completion: str
    task: Mapping[str, Any]
    limit: float
    """Share of the right answer's reward that an attack stays below and an honest answer
    reaches."""
    must_not: str = ""


def corpus_folder(grader: str) -> Path:
    """Return the folder of hostile answers for a grader. Raises Misuse when there is none."""
    folders = [Path(__file__).parents[2] / "tests" / "attack" / grader]
    point = find_installed_graders().get(grader)
    if point is not None:
        package = find_spec(point.module.rpartition(".")[0])
        if package is not None:
            for place in package.submodule_search_locations or ():
                folders.append(Path(place) / "attacks")
    for folder in folders:
        if folder.is_dir():
            return folder
    raise Misuse(f"there is no corpus of attacks on the grader {grader!r}")


def load_corpus(grader: str) -> CodeCorpus | StoryCorpus:
    """Return the corpus of a grader: attacks on one task, if its folder has `corpus.yaml`, else on
    the shipped story tasks.

    Raises Misuse when there is no corpus, and for a file that cannot be read.
    """
    from services.attacks.code import FILE, CodeCorpus
    from services.attacks.stories import StoryCorpus

    folder = corpus_folder(grader)
    return CodeCorpus.read(grader, folder) if (folder / FILE).is_file() else StoryCorpus()
