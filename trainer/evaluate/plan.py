"""What a model is asked and what comes back: asks in a fixed order, each with its own key and its
own seed.

A `Plan` is everything that decides what is asked; a folder holds the completions of one plan.
Sources of completions are `endpoint`, `local` and, during a run, the run's generation server
(`trainer.evaluate.held_out`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Protocol

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from gradus.errors import Misuse
from gradus.tasks.base import Task
from gradus.validation import explain
from trainer.config.run import PromptConfig
from trainer.data.prompts import Prompt, render
from trainer.data.tasks import Example

Mode = Literal["sampled", "greedy"]
Key = tuple[str, str, int, int]
"""(mode, task id, sample, turn): one completion of a plan."""
MAX_TURNS = 32

OURS = frozenset({"model", "messages", "prompt", "n", "stream"})
"""Fields of a request that are decided otherwise: each is one completion, whole."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One held-out task with its prompt as the model reads it."""

    id: str
    prompt: Prompt
    task: Task | None
    """None where nothing is judged."""
    kind: str | None = None
    difficulty: str | None = None
    tools: Sequence[Mapping[str, Any]] | None = None
    """That are declared to the model, with messages."""

    @property
    def text(self) -> str:
        if isinstance(self.prompt, str):
            return self.prompt
        return "\n\n".join(f"[{message['role']}]\n{message['content']}" for message in self.prompt)


def _check_body(body: dict[str, Any]) -> dict[str, Any]:
    if taken := sorted(OURS & set(body)):
        raise ValueError(f"{', '.join(taken)}: cannot be set here")
    try:
        json.dumps(body, allow_nan=False)
    except (ValueError, TypeError, RecursionError):
        raise ValueError("must be JSON, with finite numbers") from None
    return body


class EvalPlan(BaseModel):
    """Everything that decides what is asked and how it is judged; not where the model is served."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, allow_inf_nan=False, populate_by_name=True
    )

    schema_: Literal["gradus/plan@1"] = Field("gradus/plan@1", alias="schema")
    model: str
    asked_as: Literal["chat", "text"]
    """Messages through a chat template, or one plain text."""
    served: bool
    tasks: str
    tasks_sha256: str
    grader: str | None = None
    """None: completions are not graded."""
    rubric: str | None = None
    """None: the grader's default."""
    samples: Annotated[int, Field(ge=0, le=1000)]
    """Completions per task at `temperature`; 0 leaves them out."""
    temperature: Annotated[float, Field(ge=0, le=10)]
    greedy: bool
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    max_new_tokens: Annotated[int, Field(ge=1, le=1_000_000)]
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0
    body: Annotated[dict[str, Any], AfterValidator(_check_body)] = {}
    """Further fields of each request to an endpoint; null leaves one of ours out."""
    chat_template_kwargs: dict[str, Any] = {}
    opening: str = ""
    """What prompts have already written of each completion."""
    turns: Annotated[int, Field(ge=1, le=MAX_TURNS)] = 1
    """How often an answer that did not pass is asked for, with what the grader said of the one
    before."""

    @property
    def modes(self) -> tuple[tuple[Mode, float, int], ...]:
        """(mode, temperature, completions per task)."""
        sampled: tuple[tuple[Mode, float, int], ...] = (
            ("sampled", self.temperature, self.samples),
        )
        return (sampled if self.samples else ()) + ((("greedy", 0.0, 1),) if self.greedy else ())


def make_plan(
    problems: Sequence[Problem], prompt: PromptConfig, *, tasks: str, **fields: Any
) -> EvalPlan:
    """Return the plan for these problems, whose prompts were made by `prompt`; `fields` are the
    plan's others.

    Raises Misuse for no problems or two with one id, and for values that make no sense.
    """
    if not problems or len({problem.id for problem in problems}) != len(problems):
        raise Misuse(f"{tasks}: needs at least one task, each with an id of its own")
    content = []
    for problem in problems:
        content.append(
            [
                problem.id,
                problem.text,
                problem.task.model_dump(mode="json") if problem.task else None,
            ]
        )
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    asked_as = "chat" if prompt.style == "chat" else "text"
    derived: dict[str, Any] = {
        "tasks": tasks,
        "tasks_sha256": digest,
        "asked_as": asked_as,
        "opening": prompt.opening,
    }
    derived["chat_template_kwargs"] = prompt.chat_template_kwargs
    try:
        return EvalPlan.model_validate({**derived, **fields})
    except ValidationError as error:
        raise Misuse(explain(error)) from None


def build_problems(examples: Iterable[Example], prompt: PromptConfig) -> list[Problem]:
    """Return the tasks with their prompts as the model reads them."""
    problems = []
    for example in examples:
        problems.append(
            Problem(
                example.id,
                render(prompt, example),
                example.task,
                example.kind,
                example.difficulty,
            )
        )
    return problems


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    """One completion that is wanted."""

    mode: Mode
    problem: Problem
    sample: int
    temperature: float
    seed: int
    """Seed of this completion alone, so that it does not depend on the other requests."""
    turn: int = 1
    conversation: Prompt | None = None
    """What the model reads in later turns: the prompt and all that was said since."""

    @property
    def key(self) -> Key:
        return self.mode, self.problem.id, self.sample, self.turn

    @property
    def prompt(self) -> Prompt:
        return self.problem.prompt if self.conversation is None else self.conversation


@dataclass(frozen=True, slots=True)
class GeneratedCompletion:
    """One completion as its model made it."""

    text: str
    finish_reason: str | None
    """`stop`, `length` when it was cut off at the limit, or what else the server says."""
    prompt_tokens: int | None
    completion_tokens: int | None
    latency_s: float
    """Time of the request that brought it; in this process, time of the batch that it was in."""
    tool_calls: tuple[Mapping[str, str | None], ...] = ()
    """What a server has taken out of the text as calls: names, and arguments as texts, None where
    they are none."""


ErrorKind = Literal["unreachable", "timeout", "overloaded", "server", "refused", "garbage"]
"""Why a completion was not written. Neither the model's doing nor the grader's."""


@dataclass(frozen=True, slots=True)
class GenerationError:
    """A generation error, after all attempts."""

    kind: ErrorKind
    message: str


Outcome = GeneratedCompletion | GenerationError


class CompletionSource(Protocol):
    """Where completions come from."""

    def write(
        self, asks: Sequence[CompletionRequest], keys: AbstractSet[Key]
    ) -> AsyncIterator[tuple[CompletionRequest, Outcome]]:
        """Return each ask of `asks` whose key is in `keys`, once, with what came of it; in any
        order.

        Raises Misuse when nothing can come of any, and QueueFault when the source is gone.
        """
        ...


def build_requests(problems: Sequence[Problem], plan: EvalPlan) -> list[CompletionRequest]:
    """Return all completions of a plan, in the order of modes, tasks and samples."""
    requests = []
    for mode, temperature, k in plan.modes:
        for problem in problems:
            for sample in range(k):
                requests.append(
                    CompletionRequest(
                        mode,
                        problem,
                        sample,
                        temperature,
                        compute_seed(plan.seed, mode, problem.id, sample),
                    )
                )
    return requests


def split_batches(
    asks: Sequence[CompletionRequest], size: int
) -> Iterator[list[CompletionRequest]]:
    """Neighbours of one temperature together, at most `size` of them."""
    batch: list[CompletionRequest] = []
    for ask in asks:
        if batch and (len(batch) == size or ask.temperature != batch[0].temperature):
            yield batch
            batch = []
        batch.append(ask)
    if batch:
        yield batch


def compute_seed(seed: int, *place: str | int) -> int:
    """31 bits, which every server takes, for one completion of a plan with that seed."""
    text = "\0".join(map(str, (seed, *place))).encode(errors="replace")
    return int.from_bytes(hashlib.sha256(text).digest()[:4]) >> 1
