"""Where this machine has the story grader's model, for `gradus doctor`. Loads and fetches
nothing."""

from __future__ import annotations

from gradus.errors import InternalFault

PACKAGE = "sentence_transformers"


def look() -> str:
    from services.graders.base.config_loader import read_settings
    from services.graders.story.config import StoryConfig
    from services.graders.story.sentence_model import HOW_TO_GET, find_local_weights

    config = read_settings(StoryConfig, "story")
    folder = find_local_weights(config.model)
    if folder is None:
        message = f"the weights of {config.model} are not on this machine. {HOW_TO_GET}"
        raise InternalFault(message, retryable=False)
    return f"{config.model} in {folder}, in {config.precision}; judge of meaning: {config.judge}"
