"""Where this machine has the story grader's model, for `gradus doctor`. Exports nothing."""

from __future__ import annotations

PACKAGE = "onnxruntime"


def look() -> str:
    from services.graders.base.config_loader import read_settings
    from services.graders.story.config import StoryConfig
    from services.graders.story.export import describe_location

    config = read_settings(StoryConfig, "story")
    return (
        f"{describe_location(config.model)}; run by {config.backend} in {config.precision}; pair"
        f" model: {config.pairs}"
    )
