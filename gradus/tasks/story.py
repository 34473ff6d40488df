"""The task of the story grader."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field, model_validator

from gradus.tasks.base import Task, Text

SEPARATOR = "|||||"


def split_references(value: Any) -> Any:
    """Return the parts of a text between separators; any other value as it is."""
    if isinstance(value, str):
        return [part.strip() for part in value.split(SEPARATOR) if part.strip()]
    return value


class StoryTask(Task):
    """Judged by comparing the written user stories with `references`."""

    STAGES = ("extract", "score")
    HEADLINE = "mean_reward"
    RATES: ClassVar[Mapping[str, str]] = {"stories": "past:extract", "complete": "passed"}
    EXAMPLE: ClassVar[Mapping[str, Any]] = {
        "id": "a1",
        "prompt": "Write the user stories for this sprint.",
        "completion": "As a shopper, I want to save my basket, so that I can buy later.",
        "task": {
            "sprint_goal": "Shoppers keep their baskets",
            "references": [
                "As a shopper, I want my basket kept, so that I need not fill it again."
            ],
        },
    }

    sprint_goal: Text = ""
    references: Annotated[tuple[Text, ...], BeforeValidator(split_references), Field(min_length=1)]
    """Reference stories; one string with ` ||||| ` between them is accepted, also under the name
    `formatted_issues`."""
    team_context: dict[str, Any] = {}

    @model_validator(mode="before")
    @classmethod
    def _accept_formatted_issues(cls, value: Any) -> Any:
        if isinstance(value, dict) and "formatted_issues" in value and "references" not in value:
            value = dict(value)
            value["references"] = value.pop("formatted_issues")
        return value

    @classmethod
    def build_announced_schema(cls) -> dict[str, Any]:
        schema = super().build_announced_schema()
        listed = {"type": "array", "items": {"type": "string"}, "minItems": 1}
        # In one string, something must stand beside the separators.
        references = {"anyOf": [listed, {"type": "string", "pattern": r"[^|\s]"}]}
        schema["properties"] |= {"references": references, "formatted_issues": references}
        schema["oneOf"] = [{"required": ["references"]}, {"required": ["formatted_issues"]}]
        del schema["required"]
        return schema
