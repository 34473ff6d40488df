"""The story grader: read the stories, compare their wants with the references', and make a verdict of the facts.

Runs nothing that a model wrote, so it needs no box. Many slots share one encoder, which batches across them.
"""

from __future__ import annotations

import hashlib
import time
from dataclasses import replace
from pathlib import Path

from gradus.contract import Graded, GraderInfo, GraderName, StorySubmission, Submission
from gradus.errors import InternalFault
from services.graders.cases import prove_cases
from services.graders.story.backends import open_backend
from services.graders.story.config import load_config
from services.graders.story.encoder import Encoder
from services.graders.story.export import open_model
from services.graders.story.judging import Seen, asked_by, judged
from services.graders.story.reading import read
from services.graders.story.scrum import scrum_facts, scrum_texts
from services.graders.verdict import offered_rubrics, verdict

SCRUM = "story/scrum@1"


class StoryGrader:
    def __init__(self, config: Path | None = None) -> None:
        self.config = load_config(config)
        model = open_model(self.config.model)
        backend = open_backend(self.config.backend, self.config.precision, model, self.config.threads)
        self.encoder = Encoder(backend, model.tokenizer(), cache_mb=self.config.cache_mb)
        self._info = GraderInfo(
            name=GraderName.STORY,
            revision=self._revision(f"{model.revision}|{backend.name}"),
            toolchain=f"{model.about.model} {model.revision} on {backend.name}",
            rubrics=offered_rubrics(GraderName.STORY, self.config.rubric),
            sandbox="none",
        )

    def info(self) -> GraderInfo:
        return self._info

    def prove(self) -> None:
        prove_cases(self, StorySubmission, Path(__file__).parent / "cases.yaml")

    def grade(self, submission: Submission, rubric: str, slot: int) -> Graded:
        if not isinstance(submission, StorySubmission):
            raise InternalFault(f"the story grader was given a {type(submission).__name__}", retryable=False)
        self._refuse_too_many(submission)
        started = time.monotonic()
        seen = self._scrum(submission) if rubric == SCRUM else self._weighted(submission)
        return verdict(submission, seen.facts, rubric, self._info, seen.cpu_s, started)

    def _weighted(self, submission: StorySubmission) -> Seen:
        answer = read(submission.completion, self.config.limits.reading)
        return judged(answer, asked_by(submission.task), self.config.gate.gate, self.encoder)

    def _scrum(self, submission: StorySubmission) -> Seen:
        """The facts of both rubrics: `passed` and the flags mean the same under each."""
        seen = self._weighted(submission)
        limits = self.config.limits
        texts = scrum_texts(submission.completion, submission.task.references, limits.characters, limits.lines)
        cpu_s = time.thread_time()
        facts = scrum_facts(texts, self.encoder.vectors)
        return Seen(replace(seen.facts, scrum=facts), seen.cpu_s + time.thread_time() - cpu_s)

    def _refuse_too_many(self, submission: StorySubmission) -> None:
        most, given = self.config.limits.references, len(submission.task.references)
        if given > most:
            message = f"this task cannot be judged: it has {given} references, and limits.references is {most}"
            raise InternalFault(message, retryable=False)

    def _revision(self, model: str) -> str:
        """Everything that can change a verdict but rubrics, which have versions of their own."""
        folder, services = Path(__file__).parent, Path(__file__).parents[2]
        shared = (services / "facts.py", services / "graders/settings.py", services / "graders/verdict.py")
        own = sorted(path for path in folder.rglob("*") if path.suffix in (".py", ".txt", ".json"))
        digest = hashlib.sha256(model.encode())
        for path in (*own, *shared):
            digest.update(path.read_bytes())
        digest.update(self.config.model_dump_json().encode())
        return digest.hexdigest()[:12]
