"""The story grader's configuration, `configs/graders/story.yaml`. Part of the grader's revision."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from services.graders.base.config_loader import GraderConfig, Positive, Section
from services.graders.story.matching import Gate
from services.graders.story.sentence_model import MODEL


class StoryLimits(Section):
    characters: Positive
    """Most characters of an answer behind its thinking; a longer one is void."""
    lines: Positive
    """Most lines of an answer that are read."""
    references: Positive
    """Most references of a task; one with more is not judged."""


class OpenAiJudgeSettings(Section):
    """An endpoint of OpenAI's protocol. Its key stands in the environment,
    GRADUS_STORY_JUDGE_KEY."""

    url: Annotated[str, Field(pattern=r"^https?://")] = "http://127.0.0.1:8000/v1"
    model: str = ""
    """Name that the endpoint serves; empty: the first one that it lists."""
    batch: Annotated[int, Field(gt=0, le=64)] = 8
    """Pairs of one request."""
    timeout_s: Annotated[float, Field(gt=0, le=600, allow_inf_nan=False)] = 60.0
    retries: Annotated[int, Field(ge=0, le=10)] = 3
    cache: Positive = 20_000
    """Judgements to keep."""


class NliJudgeSettings(Section):
    model: str = "cross-encoder/nli-deberta-v3-base"
    """A cross-encoder with the labels entailment, neutral and contradiction: a name on the hub, or
    a folder."""
    contradiction: Annotated[float, Field(gt=0, lt=1)] = 0.5
    """Probability from which a want counts as missing."""


class StoryConfig(GraderConfig):
    model: str = MODEL
    """A name on the hub, or a folder with weights."""
    precision: Literal["fp32", "bf16"] = "fp32"
    judge: Literal["none", "openai", "nli"] = "none"
    """What judges meaning."""
    openai: OpenAiJudgeSettings = OpenAiJudgeSettings()
    nli: NliJudgeSettings = NliJudgeSettings()
    threads: Positive = 1
    gate: Gate
    limits: StoryLimits
    cache_mb: Positive = 64
