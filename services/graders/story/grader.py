"""The story grader: read the stories, compare their wants with the references', and make a verdict
of the facts.

Runs nothing that a model wrote, so it needs no box. Many slots share one encoder, which batches
across them.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from gradus.contract import TaskSubmission
from gradus.errors import InternalFault
from gradus.tasks.story import StoryTask
from services.graders.base.config_loader import read_settings
from services.graders.base.grader import BaseGrader
from services.graders.base.self_test_cases import run_self_test_cases
from services.graders.story.backends import open_backend
from services.graders.story.config import StoryConfig
from services.graders.story.encoder import Encoder
from services.graders.story.export import open_model
from services.graders.story.fact_builder import build_task_spec, measure_stories
from services.graders.story.facts import StoryFacts
from services.graders.story.model import MODEL
from services.graders.story.pairs import PairModel
from services.graders.story.parser import read
from services.graders.story.rubric import RUBRICS
from services.graders.story.scrum import build_scrum_facts

SCRUM = "story/scrum@1"
WITHOUT_PAIRS = "no pair model: contradictions, harms and villains are not measured"


class StoryGrader(BaseGrader[StoryTask, StoryFacts]):
    name = "story"
    task = StoryTask
    shipped = RUBRICS
    waiting_slots = 64

    def __init__(self, config: Path | None = None) -> None:
        self.config = read_settings(StoryConfig, self.name, config)
        model = open_model(self.config.model)
        backend = open_backend(
            self.config.backend, self.config.precision, model, self.config.threads
        )
        self.encoder = Encoder(backend, model.tokenizer(), cache_mb=self.config.cache_mb)
        self.pairs = None
        if self.config.pairs == "shipped":
            self.pairs = PairModel(model, self.config.threads, self.config.cache_mb)
        read_by = self.pairs.name if self.pairs else WITHOUT_PAIRS
        self.identify(
            self.config,
            config,
            toolchain=f"{MODEL} {model.revision} on {backend.name}, {read_by}",
            versions=(model.revision, backend.name, read_by),
        )

    def self_test(self) -> None:
        super().self_test()
        if self.pairs:
            run_self_test_cases(self, self.task, Path(__file__).with_name("pair_cases.yaml"))

    def facts(
        self, submission: TaskSubmission[StoryTask], slot: int = 0, rubric: str = ""
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
            answer, build_task_spec(task), self.config.gate, self.encoder, self.pairs
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
        return replace(
            measurement.facts, scrum=scrum
        ), measurement.cpu_s + time.thread_time() - cpu_s
