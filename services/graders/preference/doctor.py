"""What this machine has for the preference grader, for `gradus doctor`: loads the model, where one
is named."""

from __future__ import annotations

from services.graders.preference.grader import PreferenceGrader


def look() -> str:
    grader = PreferenceGrader()
    grader.scorer.close()
    return (
        f"{grader.info().toolchain}; reads {grader.model.limit or 'any number of'} tokens of a text"
    )
