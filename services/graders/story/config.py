"""The story grader's configuration, `configs/graders/story.yaml`. Part of the grader's revision."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from services.graders.base.config_loader import GraderConfig, Positive, Section
from services.graders.story.matching import Gate
from services.graders.story.model import MODEL

Cosine = Annotated[float, Field(ge=-1, le=1, allow_inf_nan=False)]


class GateConfig(Section):
    low: Cosine
    knee: Cosine
    high: Cosine

    @model_validator(mode="after")
    def _opens(self) -> GateConfig:
        if not self.low < self.knee < self.high:
            raise ValueError("`low` must be less than `knee`, and `knee` less than `high`")
        return self

    @property
    def gate(self) -> Gate:
        return Gate(self.low, self.knee, self.high)


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
    backend: str
    precision: str
    pairs: Literal["shipped", "none"] = "shipped"
    """Pair model: what looks for contradictions."""
    threads: Positive = 1
    gate: GateConfig
    limits: StoryLimits
    cache_mb: Positive = 64
