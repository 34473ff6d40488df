"""What every completion is sent and answered as: submissions and results. Tasks are in
`gradus.tasks`.

Trainers and the CLI send submissions, the API answers results; a worker turns one submission into
one `Result`. Other messages are in `gradus.rest` (jobs, problems) and `gradus.descriptions`
(announcements of workers). Unknown fields are refused everywhere, so that a misspelt field is an
error and not a silent default. The JSON Schema is committed in `tests/contract/`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import AfterValidator, Field, TypeAdapter, create_model, model_validator

from gradus.errors import FaultKind
from gradus.tasks import TASKS
from gradus.tasks.base import AnyTask, Completion, Task, Text, Wire, check_text

MAX_BATCH = 4096
"""Submissions in one request."""
MAX_RESULT_BYTES = 256_000
"""One result as JSON."""
MAX_DEADLINE_S = 3600.0
DEFAULT_DEADLINE_S = 60.0
GRADER_NAME = r"^[a-z][a-z0-9_]{0,31}$"

_CANONICAL = json.JSONEncoder(sort_keys=True, ensure_ascii=False, allow_nan=False).encode

GraderName = Annotated[str, Field(pattern=GRADER_NAME)]
SubmissionId = Annotated[str, Field(min_length=1, max_length=256), AfterValidator(check_text)]
RubricName = Annotated[str, Field(pattern=r"^[a-z_]+/[a-z_]+@[0-9]+$", max_length=64)]


TaskT = TypeVar("TaskT", bound=Task)


class _Submission(Wire):
    id: SubmissionId
    prompt: Text = ""
    completion: Completion
    """The raw text that the model wrote, but for NUL; the grader extracts the answer."""


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


class GradeRequest(Wire):
    """A request as the API reads it, whatever the grader. `gradus.rest.REQUESTS` are those of known
    task classes."""

    rubric: RubricName | None = None
    """None: the grader's default."""
    deadline_s: Annotated[
        float, Field(gt=0, le=MAX_DEADLINE_S, allow_inf_nan=False, strict=True)
    ] = DEFAULT_DEADLINE_S
    submissions: Annotated[tuple[RawSubmission, ...], Field(max_length=MAX_BATCH)]

    @model_validator(mode="after")
    def _require_unique_ids(self) -> GradeRequest:
        ids: set[str] = set()
        for submission in self.submissions:
            if submission.id in ids:
                raise ValueError(
                    f"submission id {submission.id!r} occurs twice; ids must be unique in a request"
                )
            ids.add(submission.id)
        return self


SUBMISSIONS: Mapping[str, type[TaskSubmission[Any]]] = {
    name: create_model(
        f"{task.__name__.removesuffix('Task')}Submission",
        __base__=TaskSubmission[task],  # type: ignore[valid-type]
        __module__=__name__,
    )
    for name, task in TASKS.items()
}
OcamlSubmission = SUBMISSIONS["ocaml"]
RustSubmission = SUBMISSIONS["rust"]
StorySubmission = SUBMISSIONS["story"]
PreferenceSubmission = SUBMISSIONS["preference"]
ProgramSubmission = SUBMISSIONS["program"]


def get_submission_class(grader: str) -> type[TaskSubmission[Any]]:
    """Return the grader's submission class; of one that this SDK has no task class for, with any
    task."""
    return SUBMISSIONS.get(grader) or TaskSubmission[AnyTask]


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
    """Where a result would take more than 256 kB, the last one says how many are left out."""
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


def compute_job_id(
    grader: str, rubric: str, submission: Submission, *, reads_prompt: bool = False
) -> str:
    """Return the id under which identical work is done once: the grader's name, `:` and a content
    hash of 40 hex digits.

    `grader` is name@revision. The submission's id does not count. Its prompt counts only where the
    grader reads it: by `reads_prompt`, or by the task's class. Raises ValueError for a number that
    is infinite or NaN.
    """
    task = submission.task
    content = [
        task if isinstance(task, dict) else task.model_dump(mode="json"),
        submission.completion,
    ]
    if reads_prompt or getattr(task, "READS_PROMPT", False):
        content.append(submission.prompt)
    return hash_work(grader, rubric, map(encode_canonical, content))


def hash_work(grader: str, rubric: str, content: Iterable[bytes]) -> str:
    """Return the job id of work. `content`: task, completion and, where it is read, prompt, each as
    canonical JSON."""
    texts = [encode_canonical(grader), encode_canonical(rubric), *content]
    digest = hashlib.sha256(b"[%b]" % b", ".join(texts)).hexdigest()
    return f"{grader.partition('@')[0]}:{digest[:40]}"


def encode_canonical(value: Any) -> bytes:
    """Return the JSON of a value in UTF-8, with sorted names. Raises ValueError for a number that
    is infinite or NaN."""
    return _CANONICAL(value).encode()


def build_faulted(submission_id: str, kind: FaultKind, message: str, *, retryable: bool) -> Faulted:
    return Faulted(
        id=submission_id, fault=FaultReport(kind=kind, message=message, retryable=retryable)
    )


def replace_id(result: Graded | Faulted, submission_id: str) -> Graded | Faulted:
    """Return a copy of the result for another submission with the same content."""
    if result.id == submission_id:
        return result
    return result.model_copy(update={"id": submission_id})
