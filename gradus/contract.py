"""What crosses a process boundary: submissions, results, announcements. Tasks are in `gradus.tasks`.

Trainers and the CLI send submissions, the API answers `GradeResponse`; a worker turns one submission into one `Result`.
Unknown fields are refused everywhere, so that a misspelt field is an error and not a silent default. The JSON Schema is
committed in `tests/contract/`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from enum import StrEnum
from importlib.metadata import entry_points
from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    create_model,
    model_validator,
)

from gradus.errors import FaultKind, Misuse, TooLarge, UnknownGrader
from gradus.tasks import TASKS
from gradus.tasks.base import TOO_LONG, AnyTask, Task, Text, Wire, clean

MAX_BATCH = 4096
"""Submissions in one request."""
MAX_DEADLINE_S = 3600.0
DEFAULT_DEADLINE_S = 60.0
GRADER_NAME = r"^[a-z][a-z0-9_]{0,31}$"

GraderName = Annotated[str, Field(pattern=GRADER_NAME)]
SubmissionId = Annotated[str, Field(min_length=1, max_length=256), AfterValidator(clean)]
RubricName = Annotated[str, Field(pattern=r"^[a-z_]+/[a-z_]+@[0-9]+$", max_length=64)]


# ---------------------------------------------------------------------------------------------------- submissions

TaskT = TypeVar("TaskT", bound=Task)


class _Submission(Wire):
    id: SubmissionId
    prompt: Text = ""
    completion: Text
    """The raw text that the model wrote; the grader extracts the answer."""


class RawSubmission(_Submission):
    """A submission on its way to a grader: only the grader knows the type of `task`."""

    task: dict[str, Any]


class TaskSubmission(_Submission, Generic[TaskT]):
    """A submission to a grader whose task class is known."""

    task: TaskT

    @model_validator(mode="after")
    def _has_one_prompt(self) -> TaskSubmission[TaskT]:
        self.task.refuse_prompt(self.prompt)
        return self


Submission = RawSubmission | TaskSubmission[Any]


class _GradeRequest(Wire):
    rubric: RubricName | None = None
    """None: the grader's default."""
    deadline_s: Annotated[float, Field(gt=0, le=MAX_DEADLINE_S, allow_inf_nan=False)] = DEFAULT_DEADLINE_S

    @model_validator(mode="after")
    def _ids_are_unique(self) -> _GradeRequest:
        seen: set[str] = set()
        for submission in getattr(self, "submissions", ()):
            if submission.id in seen:
                raise ValueError(f"submission id {submission.id!r} occurs twice; ids must be unique in a request")
            seen.add(submission.id)
        return self


class GradeRequest(_GradeRequest):
    """A request as the API reads it, whatever the grader."""

    submissions: Annotated[tuple[RawSubmission, ...], Field(max_length=MAX_BATCH)]


def _title(task: type[Task]) -> str:
    return task.__name__.removesuffix("Task")


SUBMISSIONS: Mapping[str, type[TaskSubmission[Any]]] = {
    name: create_model(f"{_title(task)}Submission", __base__=TaskSubmission[task], __module__=__name__)  # type: ignore[valid-type]
    for name, task in TASKS.items()
}
OcamlSubmission = SUBMISSIONS["ocaml"]
RustSubmission = SUBMISSIONS["rust"]
StorySubmission = SUBMISSIONS["story"]
PreferenceSubmission = SUBMISSIONS["preference"]
REQUESTS: Mapping[str, type[_GradeRequest]] = {
    name: create_model(
        f"{_title(TASKS[name])}GradeRequest",
        __base__=_GradeRequest,
        __module__=__name__,
        submissions=(Annotated[tuple[submission, ...], Field(max_length=MAX_BATCH)], ...),  # type: ignore[valid-type, arg-type]
    )
    for name, submission in SUBMISSIONS.items()
}
"""The wire's documented requests; `GradeRequest` and the announced schema of the task accept the same."""


def submission_class(grader: str) -> type[TaskSubmission[Any]]:
    """The grader's submission class; of one that this SDK has no task class for, with any task."""
    return SUBMISSIONS.get(grader, TaskSubmission[AnyTask])


# -------------------------------------------------------------------------------------------------------- results


class Stage(StrEnum):
    """How far a submission came: the furthest stage that it reached, in this order for code."""

    EXTRACT = "extract"
    TYPES = "types"
    CHECK = "check"
    COMPILE = "compile"
    CLIPPY = "clippy"
    TESTS = "tests"
    SCORE = "score"


class Severity(StrEnum):
    ERROR = "error"
    WARNING = "warning"


class Diagnostic(Wire):
    """One remark of a compiler, linter or grader about the answer; never contains test text."""

    stage: Stage
    severity: Severity = Severity.ERROR
    line: int | None = None
    """1-based, in the extracted answer."""
    column: int | None = None
    """1-based."""
    code: str | None = None
    message: str


class TestCount(Wire):
    __test__ = False  # not a test class, whatever pytest thinks of its name
    passed: Annotated[int, Field(ge=0)]
    total: Annotated[int, Field(ge=0)]


class Graded(Wire):
    """A verdict: the model's doing."""

    id: SubmissionId
    status: Literal["graded"] = "graded"
    reward: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
    passed: bool
    """Every test passed; style never changes it."""
    stage: Stage
    components: dict[str, Annotated[float, Field(allow_inf_nan=False)]]
    """What the reward is made of; they add up to `reward`."""
    tests: TestCount | None = None
    flags: tuple[str, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()
    rubric: str
    grader: str
    """Name and revision, `ocaml@<revision>`."""
    toolchain: str
    cached: bool = False
    cpu_ms: float
    """CPU that this submission used in boxes; of the first grading when `cached`."""
    wall_ms: float


class FaultReport(Wire):
    kind: FaultKind
    message: str
    retryable: bool


class Faulted(Wire):
    """Our failure to judge. Has no reward, on purpose: taking it for a zero is a type error."""

    id: SubmissionId
    status: Literal["faulted"] = "faulted"
    fault: FaultReport


Result = Annotated[Graded | Faulted, Field(discriminator="status")]
RESULT: TypeAdapter[Graded | Faulted] = TypeAdapter(Result)


class GradeResponse(Wire):
    results: tuple[Result, ...]


class JobState(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"


class JobStatus(Wire):
    """Answer of `GET /v1/jobs/{id}`; `results` are there once every submission has one."""

    id: str
    status: JobState
    done: int
    total: int
    results: tuple[Result, ...] | None = None


class GraderInfo(Wire):
    """One live grader as its workers announce it; `GET /v1/graders` lists them."""

    name: GraderName
    revision: str
    toolchain: str
    rubrics: tuple[str, ...]
    """The default first."""
    sandbox: str
    workers: int = 1
    slots: int = 1

    @property
    def grader(self) -> str:
        return f"{self.name}@{self.revision}"


class GraderList(Wire):
    graders: tuple[GraderInfo, ...]


class GraderDescription(Wire):
    """What others need to know to use a grader without naming it; `GET /v1/graders/{name}` returns it."""

    name: GraderName
    task_schema: dict[str, Any]
    """JSON Schema (2020-12) of `task`."""
    example: dict[str, Any]
    """A submission `{id, prompt, completion, task}`."""
    stages: tuple[Stage, ...]
    """In the order in which an answer passes them; the first is `extract`."""
    rates: dict[str, Annotated[str, Field(pattern=r"^((past|clean):[a-z]+|passed)$")]]
    """Rates of an evaluation, in order: name -> rule over verdicts. `past:STAGE`: the verdict's stage is a later one.
    `clean:STAGE`: past the stage before, and no diagnostic of that stage. `passed`."""
    components: tuple[str, ...]
    """Names of the components of rewards under the grader's rubrics."""
    fences: tuple[str, ...] = ()
    """Info strings of code fences around answers, the usual one first; empty where answers are prose."""
    reads_prompt: bool = False
    """The prompt is part of what is judged, and of the job's id."""


class Problem(BaseModel):
    """RFC 9457 problem details, `application/problem+json`: every 4xx and 5xx answer."""

    model_config = ConfigDict(extra="allow")
    type: str = "about:blank"
    title: str
    status: int
    detail: str
    errors: list[dict[str, Any]] | None = None


# ---------------------------------------------------------------------------------------------------- conversions


def grader_named(name: str) -> str:
    """`name`. Raises UnknownGrader, naming those there are, for a grader that neither ships nor is installed here."""
    known = [*TASKS, *sorted({point.name for point in entry_points(group="gradus.graders")} - TASKS.keys())]
    if name not in known:
        raise UnknownGrader(f"there is no grader {name!r}; there are: {', '.join(known)}")
    return name


def explain(error: ValidationError) -> str:
    """One line per mistake: where it is and what is wrong with it, without repeating the input."""
    lines = []
    for item in error.errors(include_url=False, include_context=False, include_input=False):
        where = ".".join(str(part) for part in item["loc"]) or "input"
        lines.append(f"{where}: {item['msg'].removeprefix('Value error, ')}")
    return "; ".join(lines)


def misuse_from_validation_error(error: ValidationError) -> Misuse:
    """The misuse that a validation error is: TooLarge when only sizes are wrong, else Misuse."""
    sizes = [
        item["type"] == "too_long" or TOO_LONG in item["msg"]
        for item in error.errors(include_url=False, include_context=False, include_input=False)
    ]
    return (TooLarge if sizes and all(sizes) else Misuse)(explain(error))


def job_id_of(grader: str, rubric: str, submission: Submission, *, reads_prompt: bool = False) -> str:
    """The content hash under which identical work is done once, 40 hex digits. `grader` is name@revision.

    The submission's id does not count. Its prompt counts only where the grader reads it: by `reads_prompt`, or by the
    task's class.
    """
    task = submission.task
    asked = [grader, rubric, task if isinstance(task, dict) else task.model_dump(mode="json"), submission.completion]
    if reads_prompt or getattr(task, "READS_PROMPT", False):
        asked.append(submission.prompt)
    text = json.dumps(asked, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:40]


def faulted(submission_id: str, kind: FaultKind, message: str, *, retryable: bool) -> Faulted:
    return Faulted(id=submission_id, fault=FaultReport(kind=kind, message=message, retryable=retryable))


def with_id(result: Graded | Faulted, submission_id: str) -> Graded | Faulted:
    """The same result for another submission with the same content."""
    return result.model_copy(update={"id": submission_id})


def ids_of(submissions: Sequence[Submission]) -> list[str]:
    return [submission.id for submission in submissions]
