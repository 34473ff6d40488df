"""The story grader: read the stories, compare their wants with the references', and make a verdict
of the facts.

Runs nothing that a model wrote, so it needs no box. Many slots share one encoder, which batches
across them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from gradus.contract import TaskSubmission
from gradus.errors import InternalFault
from gradus.tasks.story import StoryTask
from services.graders.base.config_loader import read_settings
from services.graders.base.grader import BaseGrader
from services.graders.story.config import StoryConfig
from services.graders.story.encoder import Encoder
from services.graders.story.fact_builder import build_task_spec, measure_stories
from services.graders.story.facts import StoryFacts
from services.graders.story.judges import Judge
from services.graders.story.parser import read
from services.graders.story.rubric import RUBRICS
from services.graders.story.scrum import build_scrum_facts
from services.graders.story.sentence_model import SentenceModel
from services.sandbox.cancellation import CANCELLED, current_token

SCRUM = "story/scrum@1"
LARGE_CHARS = 4000
"""A longer text is large: large ones are graded one after the other, so that small ones beside them
get the model (docs/decisions/0058)."""
LOOK_S = 0.5
"""Seconds between checks that an attempt which waits for its turn is not cancelled."""
WITHOUT_JUDGE = "no judge: coverage and form are measured, meaning is not"


class StoryGrader(BaseGrader[StoryTask, StoryFacts]):
    name = "story"
    task = StoryTask
    shipped = RUBRICS
    waiting_slots = 64

    def __init__(self, config: Path | None = None) -> None:
        self.config = read_settings(StoryConfig, self.name, config)
        model = SentenceModel(
            self.config.model, precision=self.config.precision, threads=self.config.threads
        )
        self.encoder = Encoder(model, cache_mb=self.config.cache_mb)
        self.judge = open_judge(self.config)
        self._large_turn = threading.Lock()
        judged_by = self.judge.name if self.judge else WITHOUT_JUDGE
        self.identify(
            self.config,
            config,
            toolchain=f"{model.name}, {judged_by}",
            versions=(model.name, judged_by),
        )

    def facts(
        self, submission: TaskSubmission[StoryTask], slot: int = 0, rubric: str = ""
    ) -> tuple[StoryFacts, float]:
        # A judge over HTTP is waited for: its texts need many slots.
        if len(submission.completion) <= LARGE_CHARS or self.config.judge == "openai":
            return self._measure(submission, rubric)
        with self._take_large_turn():
            return self._measure(submission, rubric)

    @contextmanager
    def _take_large_turn(self) -> Iterator[None]:
        """Wait until no other large text is graded. Raises InternalFault when the attempt is
        cancelled meanwhile."""
        token = current_token()
        while not self._large_turn.acquire(timeout=LOOK_S):
            if token is not None and token.is_cancelled:
                raise InternalFault(CANCELLED)
        try:
            yield
        finally:
            self._large_turn.release()

    def _measure(
        self, submission: TaskSubmission[StoryTask], rubric: str
    ) -> tuple[StoryFacts, float]:
        task = submission.task
        limits = self.config.limits
        if len(task.references) > limits.references:
            message = (
                f"it has {len(task.references)} references, and limits.references is"
                f" {limits.references}"
            )
            raise InternalFault(f"this task cannot be judged: {message}", retryable=False)
        answer = read(submission.completion, limits.characters, limits.lines)
        measurement = measure_stories(
            answer, build_task_spec(task), self.config.gate, self.encoder, self.judge
        )
        if rubric != SCRUM:
            return measurement.facts, measurement.cpu_s
        # The facts of both rubrics: `passed` and the flags mean the same under each.
        cpu_s = time.thread_time()
        scrum = build_scrum_facts(
            submission.completion,
            task.references,
            self.encoder.vectors,
            max_characters=limits.characters,
            max_lines=limits.lines,
        )
        facts = replace(measurement.facts, scrum=scrum)
        return facts, measurement.cpu_s + time.thread_time() - cpu_s


def open_judge(config: StoryConfig) -> Judge | None:
    """Return the judge that `config` names; None for `none`. Raises InternalFault that says what is
    missing."""
    if config.judge == "openai":
        from services.graders.story.openai_judge import OpenAiJudge

        return OpenAiJudge(config.openai)
    if config.judge == "nli":
        from services.graders.story.nli_judge import NliJudge

        return NliJudge(config.nli)
    return None
