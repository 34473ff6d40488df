"""The story grader's configuration, `configs/graders/story.yaml`. Part of the grader's revision."""

from __future__ import annotations

from typing import Literal

from services.graders.base.config_loader import GraderConfig, Positive, Section
from services.graders.story.matching import Gate
from services.graders.story.model import MODEL


class StoryLimits(Section):
    characters: Positive
    """Most characters of an answer behind its thinking; a longer one is void."""
    lines: Positive
    """Most lines of an answer that are read."""
    references: Positive
    """Most references of a task; one with more is not judged."""


class StoryConfig(GraderConfig):
    model: str = MODEL
    """An exported folder, a folder with the weights, or the name: wherever they are found."""
    backend: Literal["onnxruntime", "sentence-transformers"]
    precision: Literal["fp32", "bf16"]
    pairs: Literal["shipped", "none"] = "shipped"
    """Pair model: what looks for contradictions."""
    threads: Positive = 1
    gate: Gate
    limits: StoryLimits
    cache_mb: Positive = 64
