"""What one completion costs the story grader, in shuffled rounds: the bare sentence model on the
same texts, and the whole path of a worker's slots.

`make bench-full` runs it. One thread. Every round begins with empty caches of texts.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = "1"  # read when torch is loaded

import argparse
import random
import statistics
import time
from collections.abc import Callable
from concurrent.futures import Future

from gradus.contract import StorySubmission
from services.graders.base.batching import Queued, make_passes
from services.graders.story.encoder import MAX_PASS_TOKENS, Encoder
from services.graders.story.fact_builder import _collect_texts, build_task_spec
from services.graders.story.grader import StoryGrader
from services.graders.story.parser import read
from services.graders.story.sentence_model import SentenceModel
from services.local_grading import grade_in_order
from tests.bench.story_answers import G, groups

SLOTS = 16
RUBRIC = "story/weighted@1"
__all__ = ["G", "Floor", "SentenceModel", "StoryGrader", "grade", "groups", "measure"]


class Floor:
    """The sentence model on the different texts, tokens ready, in passes like the encoder's."""

    def __init__(self, model: SentenceModel, completions: list[StorySubmission]) -> None:
        texts: dict[str, None] = {}
        for one in completions:
            stories = read(one.completion, 32_000, 256).stories
            texts.update(dict.fromkeys(_collect_texts(stories, build_task_spec(one.task))))
        self.texts = list(texts)
        queued: list[Queued[None]] = [Queued(ids, Future()) for ids in model.ids(self.texts)]
        self._passes = make_passes(queued, MAX_PASS_TOKENS)
        self._model = model

    def __call__(self) -> None:
        for one in self._passes:
            self._model.encode([queued.ids for queued in one])


def grade(grader: StoryGrader, model: SentenceModel, completions: list[StorySubmission]) -> None:
    """Grade with empty caches of texts."""
    grader.encoder.close()
    grader.encoder = Encoder(model)
    list(grade_in_order(grader, completions, RUBRIC, SLOTS))


def measure(contestant: Callable[[], None], completions: int) -> float:
    """Return milliseconds of CPU per completion."""
    cpu_s = time.process_time()
    contestant()
    return (time.process_time() - cpu_s) * 1e3 / completions


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--groups", type=int, default=16)
    chosen = parser.parse_args()
    grader = StoryGrader()
    model = SentenceModel()
    completions = [one for group in groups(chosen.groups) for one in group]
    floor = Floor(model, completions)
    contestants: dict[str, Callable[[], None]] = {
        "bare model": floor,
        "story grader": lambda: grade(grader, model, completions),
    }
    taken: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(chosen.rounds):
        for name in random.sample(sorted(contestants), len(contestants)):
            taken[name].append(measure(contestants[name], len(completions)))
    print(f"{len(completions)} completions, {len(floor.texts)} different texts")
    for name, each in taken.items():
        print(f"{name}: {statistics.median(each):.1f} ms of CPU per completion")
    pairs = zip(taken["story grader"], taken["bare model"], strict=True)
    ratios = [ours / bare for ours, bare in pairs]
    print(f"ratio: {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")


if __name__ == "__main__":
    main()
