"""The judge `nli`: a cross-encoder for natural-language inference, by sentence-transformers.

It reads want and reference in both directions. A contradiction counts as missing; what follows both
ways is the same.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradus.errors import InternalFault, wrap_exceptions
from services.graders.story.config import NliJudgeSettings
from services.graders.story.judges import Judgement, Question
from services.graders.story.parser import Story, read_story
from services.graders.story.sentence_model import compute_revision, find_weights

LABELS = ("entailment", "neutral", "contradiction")


class NliJudge:
    """May be called from many threads at once: one of them runs the model at a time."""

    def __init__(self, settings: NliJudgeSettings) -> None:
        """Raise InternalFault when the model is missing or has other labels."""
        folder = find_weights(settings.model)
        from sentence_transformers import CrossEncoder

        with wrap_exceptions(InternalFault, f"sentence-transformers cannot load {folder}"):
            self._model: Any = CrossEncoder(str(folder), local_files_only=True)
        labels = {}
        for column, label in self._model.config.id2label.items():
            labels[str(label).lower()] = int(column)
        if sorted(labels) != sorted(LABELS):
            message = f"nli.model: {settings.model} has the labels {sorted(labels)}, not {LABELS}"
            raise InternalFault(message, retryable=False)
        self._columns = [labels[label] for label in LABELS]
        self._contradiction = settings.contradiction
        self._lock = threading.Lock()
        self.name = f"judge nli {Path(settings.model).name} {compute_revision(folder)}"

    def judge(self, questions: Sequence[Question]) -> list[Judgement]:
        pairs = []
        for question in questions:
            reference = read_story(question.reference)
            asked = reference.want if isinstance(reference, Story) else question.reference
            pairs += [(asked, question.story.want), (question.story.want, asked)]
        chances = self._compute_chances(pairs).reshape(len(questions), 2, len(LABELS))
        judgements = []
        for both in chances:
            judgements.append(
                Judgement(
                    is_denied=bool(both[:, 2].mean() >= self._contradiction),
                    same=float(both[:, 0].min()),
                )
            )
        return judgements

    def _compute_chances(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float64]:
        with self._lock, wrap_exceptions(InternalFault, "the judge nli failed"):
            logits = np.asarray(self._model.predict(list(pairs), show_progress_bar=False), float)
        if not np.isfinite(logits).all():
            raise InternalFault("the judge nli gave no usable numbers")
        odds = np.exp(logits - logits.max(1, keepdims=True))
        chances: NDArray[np.float64] = odds[:, self._columns] / odds.sum(1, keepdims=True)
        return chances
