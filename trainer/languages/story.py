"""User stories: words of reports only."""

from __future__ import annotations

from trainer.languages.language import Language

LANGUAGE = Language(rate_words={"stories": "stories were found", "complete": "every reference is answered"})
