"""Where this machine has the story grader's model, for `gradus doctor`. Exports nothing."""

from __future__ import annotations

PACKAGE = "onnxruntime"


def look() -> str:
    from services.graders.story.config import load_config
    from services.graders.story.export import whereabouts

    config = load_config()
    return f"{whereabouts(config.model)}; run by {config.backend} in {config.precision}"
