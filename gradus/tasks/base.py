"""What the task classes of all graders share: texts, paths, limits, and `Task` itself. pydantic and
nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core.core_schema import DictSchema

MAX_TEXT_CHARS = 1_000_000
"""Longest text in any field. A longer one is refused (413): no language model writes one, and
graders would choke."""
TOO_LONG = f"longer than {MAX_TEXT_CHARS} characters"


def check_text(text: str) -> str:
    """`text` itself. Raises ValueError for NUL, a lone surrogate, and more than `MAX_TEXT_CHARS`
    characters."""
    if len(text) > MAX_TEXT_CHARS:
        raise ValueError(TOO_LONG)
    if "\0" in text:
        raise ValueError(
            "contains a NUL character (U+0000), which no compiler or tokenizer accepts; remove it"
        )
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("is not valid Unicode (a lone surrogate)") from None
    return text


def clean_text(text: str) -> str:
    """`text` as the contract takes it: a model may write NUL, half a surrogate pair, or without
    end."""
    text = text[:MAX_TEXT_CHARS].replace("\0", "\N{REPLACEMENT CHARACTER}")
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


Text = Annotated[str, AfterValidator(check_text)]
"""A text without NUL and lone surrogates, at most `MAX_TEXT_CHARS` long."""
Completion = Annotated[
    str, AfterValidator(lambda text: check_text(text.replace("\0", "\N{REPLACEMENT CHARACTER}")))
]
"""A `Text` in which NUL becomes U+FFFD: a model may write NUL, and its neighbours in a batch must
not suffer."""


class Wire(BaseModel):
    """Base of everything that crosses a process boundary. Unknown fields are refused; values are
    frozen."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class RunLimits(Wire):
    """How much a submission's own run may use; the grader's configuration caps both."""

    cpu_s: Annotated[float, Field(gt=0, le=600, allow_inf_nan=False)] | None = None
    memory_mb: Annotated[int, Field(ge=16, le=16384)] | None = None


class _ClosedPatterns(GenerateJsonSchema):
    """JSON Schema in which the fields of `dict[pattern, ...]` refuse other names, as pydantic
    does."""

    def dict_schema(self, schema: DictSchema) -> JsonSchemaValue:
        json_schema = super().dict_schema(schema)
        if "patternProperties" in json_schema:
            return json_schema | {"additionalProperties": False}
        return json_schema


class Task(Wire):
    """What one grader's submissions ask. A subclass is the SDK's typed form of a grader's
    `task`."""

    EXAMPLE: ClassVar[Mapping[str, Any]] = {}
    """A submission `{id, prompt, completion, task}` that gets full marks, for documents."""
    READS_PROMPT: ClassVar[bool] = False
    """The prompt is part of what is judged, and so of the job's id."""
    STAGES: ClassVar[tuple[str, ...]] = ()
    """Stages of grading (`gradus.contract.Stage`) in the order in which an answer passes them."""
    RATES: ClassVar[Mapping[str, str]] = {"tests": "passed"}
    """Rates of an evaluation: name -> rule, see `gradus.descriptions.GraderDescription.rates`."""
    HEADLINE: ClassVar[str] = "pass_rate"
    """What pages state first of an evaluation: `pass_rate`, or `mean_reward` where passing is rare
    and rewards are what training raises."""
    FENCES: ClassVar[tuple[str, ...]] = ()
    """Info strings of code fences around answers, the usual one first; empty where answers are
    prose."""

    def refuse_prompt(self, prompt: str) -> None:
        """Raise ValueError where this task and `prompt` exclude each other."""

    @classmethod
    def build_announced_schema(cls) -> dict[str, Any]:
        """Return JSON Schema (2020-12) of what `model_validate` accepts as a task, for validation
        before it is queued.

        It may accept more than the class, which has the last word, and refuses nothing that the
        class accepts as JSON.
        """
        return cls.model_json_schema(schema_generator=_ClosedPatterns)


class AnyTask(Task):
    """The task of a grader that this SDK has no class for; the service validates it."""

    READS_PROMPT: ClassVar[bool] = True
    model_config = ConfigDict(extra="allow", frozen=True)
