"""The task of the Python grader: calls of what the answer defines, and the values that they must
return."""

import ast
from typing import Annotated

from gradus.tasks.base import Task, Text, Wire
from pydantic import AfterValidator, Field, JsonValue


def _expression(text: str) -> str:
    try:
        ast.parse(text, mode="eval")
    except (SyntaxError, RecursionError, MemoryError):
        raise ValueError("is not a Python expression") from None
    return text


class Case(Wire):
    call: Annotated[Text, Field(min_length=1, max_length=1000), AfterValidator(_expression)]
    """A Python expression, for example `double(2)`. The answer can see it."""
    equals: JsonValue
    """The value that it must return, as JSON: tuples are lists; 1, 1.0 and true differ. The answer
    cannot see it."""


class PythonTask(Task):
    STAGES = ("extract", "compile", "tests")
    RATES = {"compile": "past:compile", "tests": "passed"}
    FENCES = ("python", "py", "python3")
    EXAMPLE = {
        "id": "a1",
        "prompt": "Write double(x), which doubles a number.",
        "completion": "```python\ndef double(x):\n    return 2 * x\n```",
        "task": {"cases": [{"call": "double(2)", "equals": 4}]},
    }

    cases: Annotated[tuple[Case, ...], Field(min_length=1, max_length=100)]
