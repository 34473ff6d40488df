"""The task of the preference grader."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import Field

from gradus.tasks.base import Task, Text, Wire


class Message(Wire):
    """One turn of a conversation."""

    role: Annotated[str, Field(pattern=r"^[a-z_]+$", max_length=32)]
    """`system`, `user`, `assistant` or whatever else the model's chat template knows."""
    content: Text


class PreferenceTask(Task):
    """Judged by a reward model, which needs nothing but the prompt."""

    STAGES = ("extract", "score")
    HEADLINE = "mean_reward"
    EXAMPLE: ClassVar[Mapping[str, Any]] = {
        "id": "a1",
        "completion": "Blue.",
        "task": {"messages": [{"role": "user", "content": "Name a colour."}]},
    }
    READS_PROMPT: ClassVar[bool] = True

    messages: Annotated[tuple[Message, ...], Field(max_length=1000)] = ()
    """The conversation that the completion answers, in place of `prompt`; the model's chat template
    writes it out."""

    def refuse_prompt(self, prompt: str) -> None:
        if prompt and self.messages:
            raise ValueError("give either `prompt`, a text, or `task.messages`, a conversation")
