"""What the tasks of graders of code share: tests that the model may read."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from gradus.tasks.base import Task, Text

PublicTest = Annotated[Text, Field(min_length=1, max_length=2000)]


class CodeTask(Task):
    """A task whose answers are compiled and tested."""

    public_tests: Annotated[tuple[PublicTest, ...], Field(max_length=16)] = ()
    """Tests that the model may read, each in the form of `tests` and complete by itself. Results
    quote those that fail. They never count for the reward, nor for `passed`."""
