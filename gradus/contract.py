"""What crosses a process boundary: tasks, submissions, results. Judges nothing and talks to nobody.

Who makes it and who eats it: trainers and the CLI make `GradeRequest`, the API validates it and answers
`GradeResponse`; a worker turns one submission into one `Result`. Unknown fields are refused everywhere, so that a
misspelt field is an error and not a silent default. The JSON Schema is committed in `tests/contract/`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    model_validator,
)

from gradus.errors import FaultKind, Misuse, TooLarge, UnknownGrader

MAX_TEXT_CHARS = 1_000_000
"""A longer text than this in any field is refused (413): no language model writes one, and graders would choke."""
MAX_BATCH = 4096
"""Submissions in one request."""
MAX_DEADLINE_S = 3600.0
DEFAULT_DEADLINE_S = 60.0

TOO_LONG = f"longer than {MAX_TEXT_CHARS} characters"


def _clean(text: str) -> str:
    if len(text) > MAX_TEXT_CHARS:
        raise ValueError(TOO_LONG)
    if "\0" in text:
        raise ValueError("contains a NUL character (U+0000), which no compiler or tokenizer accepts; remove it")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("is not valid Unicode (a lone surrogate)") from None
    return text


Text = Annotated[str, AfterValidator(_clean)]
"""A text without NUL and lone surrogates, at most `MAX_TEXT_CHARS` long."""
SubmissionId = Annotated[str, Field(min_length=1, max_length=256), AfterValidator(_clean)]
RelativePath = Annotated[
    str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.\-]*(/[A-Za-z0-9_][A-Za-z0-9_.\-]*)*$", max_length=128)
]
"""A path that stays below its folder and names no hidden file."""
RubricName = Annotated[str, Field(pattern=r"^[a-z_]+/[a-z_]+@[0-9]+$", max_length=64)]


class _Wire(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


# ---------------------------------------------------------------------------------------------------------- tasks


class GraderName(StrEnum):
    OCAML = "ocaml"
    RUST = "rust"
    STORY = "story"
    PREFERENCE = "preference"


class Framework(StrEnum):
    ASSERT = "assert"
    OUNIT2 = "ounit2"


class RunLimits(_Wire):
    """How much a submission's own run may use; the grader's configuration caps both."""

    cpu_s: Annotated[float, Field(gt=0, le=600, allow_inf_nan=False)] | None = None
    memory_mb: Annotated[int, Field(ge=16, le=16384)] | None = None


class OcamlLimits(RunLimits):
    compile_cpu_s: Annotated[float, Field(gt=0, le=600, allow_inf_nan=False)] | None = None
    """For the compiler, on the answer and on tests that are compiled with it."""


class OcamlTask(_Wire):
    """Judged by compiling the answer as module `module` and running `tests` against it."""

    tests: Annotated[Text, Field(min_length=1)]
    """Plain `assert`s, or an OUnit2 suite."""
    signature: Text | None = None
    """What the answer must define, as in an `.mli`: `val f : int -> int`. Tests see nothing else of the answer."""
    module: Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_']*$", max_length=64)] = "solution"
    framework: Framework | None = None
    """None: `ounit2` if the tests name OUnit2, else `assert`."""
    packages: tuple[Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_.\-]*$", max_length=64)], ...] = ()
    """findlib packages that the answer and the tests may use."""
    files: dict[Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*\.mli?$", max_length=64)], Text] = {}
    """Support modules of the task (`tree.ml`, `tree.mli`), compiled before the answer."""
    limits: OcamlLimits = OcamlLimits()


class StdioCase(_Wire):
    """One run of a program: what it reads and what it must write."""

    stdin: Text = ""
    stdout: Text
    """Compared without white space at the ends of lines and without empty lines at the end."""


class RustTask(_Wire):
    """Judged by check, clippy and `tests`, a test file that names the crate, or by `cases` of a program."""

    tests: Text = ""
    cases: Annotated[tuple[StdioCase, ...], Field(max_length=100)] = ()
    """In place of `tests`: the answer is a whole program, `src/main.rs`."""
    signature: Text | None = None
    """What the answer must define: `pub fn f(x: i64) -> i64;`, `pub struct S;`, `impl S { pub fn g(&self); }`.
    Tests see these types and no others."""
    crate: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$", max_length=64)] = "solution"
    edition: Literal["2015", "2018", "2021", "2024"] = "2021"
    files: dict[RelativePath, Text] = {}
    """The crate as it is given, path -> text; files of the answer replace those of the same path."""
    dependencies: tuple[Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_\-]*$", max_length=64)], ...] = ()
    """Crates that answer and tests may use, of those that the grader was configured with."""
    limits: RunLimits = RunLimits()

    @model_validator(mode="after")
    def _has_tests_or_cases(self) -> RustTask:
        if bool(self.tests.strip()) == bool(self.cases):
            raise ValueError("give either `tests`, an integration test file, or `cases` of standard input and output")
        return self


def _split_issues(value: Any) -> Any:
    if isinstance(value, str):
        return [part.strip() for part in value.split("|||||") if part.strip()]
    return value


class StoryTask(_Wire):
    """Judged by comparing the written user stories with `references`."""

    sprint_goal: Text = ""
    references: Annotated[tuple[Text, ...], BeforeValidator(_split_issues), Field(min_length=1)]
    """Reference stories; one string with ` ||||| ` between them is accepted, also under the name `formatted_issues`."""
    team_context: dict[str, Any] = {}

    @model_validator(mode="before")
    @classmethod
    def _accept_formatted_issues(cls, value: Any) -> Any:
        if isinstance(value, dict) and "formatted_issues" in value and "references" not in value:
            value = dict(value)
            value["references"] = value.pop("formatted_issues")
        return value


class Message(_Wire):
    """One turn of a conversation."""

    role: Annotated[str, Field(pattern=r"^[a-z_]+$", max_length=32)]
    """`system`, `user`, `assistant` or whatever else the model's chat template knows."""
    content: Text


class PreferenceTask(_Wire):
    """Judged by a reward model, which needs nothing but the prompt."""

    messages: Annotated[tuple[Message, ...], Field(max_length=1000)] = ()
    """The conversation that the completion answers, in place of `prompt`; the model's chat template writes it out."""


Task = OcamlTask | RustTask | StoryTask | PreferenceTask
TASKS: dict[GraderName, type[OcamlTask] | type[RustTask] | type[StoryTask] | type[PreferenceTask]] = {
    GraderName.OCAML: OcamlTask,
    GraderName.RUST: RustTask,
    GraderName.STORY: StoryTask,
    GraderName.PREFERENCE: PreferenceTask,
}


# ---------------------------------------------------------------------------------------------------- submissions


class _Submission(_Wire):
    id: SubmissionId
    prompt: Text = ""
    completion: Text
    """The raw text that the model wrote; the grader extracts the answer."""


class OcamlSubmission(_Submission):
    task: OcamlTask


class RustSubmission(_Submission):
    task: RustTask


class StorySubmission(_Submission):
    task: StoryTask


class PreferenceSubmission(_Submission):
    task: PreferenceTask

    @model_validator(mode="after")
    def _has_one_prompt(self) -> PreferenceSubmission:
        if self.prompt and self.task.messages:
            raise ValueError("give either `prompt`, a text, or `task.messages`, a conversation")
        return self


Submission = OcamlSubmission | RustSubmission | StorySubmission | PreferenceSubmission


class _GradeRequest(_Wire):
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


class OcamlGradeRequest(_GradeRequest):
    submissions: Annotated[tuple[OcamlSubmission, ...], Field(max_length=MAX_BATCH)]


class RustGradeRequest(_GradeRequest):
    submissions: Annotated[tuple[RustSubmission, ...], Field(max_length=MAX_BATCH)]


class StoryGradeRequest(_GradeRequest):
    submissions: Annotated[tuple[StorySubmission, ...], Field(max_length=MAX_BATCH)]


class PreferenceGradeRequest(_GradeRequest):
    submissions: Annotated[tuple[PreferenceSubmission, ...], Field(max_length=MAX_BATCH)]


GradeRequest = OcamlGradeRequest | RustGradeRequest | StoryGradeRequest | PreferenceGradeRequest
REQUESTS: dict[
    GraderName,
    type[OcamlGradeRequest] | type[RustGradeRequest] | type[StoryGradeRequest] | type[PreferenceGradeRequest],
] = {
    GraderName.OCAML: OcamlGradeRequest,
    GraderName.RUST: RustGradeRequest,
    GraderName.STORY: StoryGradeRequest,
    GraderName.PREFERENCE: PreferenceGradeRequest,
}
SUBMISSIONS: dict[
    GraderName, type[OcamlSubmission] | type[RustSubmission] | type[StorySubmission] | type[PreferenceSubmission]
] = {
    GraderName.OCAML: OcamlSubmission,
    GraderName.RUST: RustSubmission,
    GraderName.STORY: StorySubmission,
    GraderName.PREFERENCE: PreferenceSubmission,
}


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


class Diagnostic(_Wire):
    """One remark of a compiler, linter or grader about the answer; never contains test text."""

    stage: Stage
    severity: Severity = Severity.ERROR
    line: int | None = None
    """1-based, in the extracted answer."""
    column: int | None = None
    """1-based."""
    code: str | None = None
    message: str


class TestCount(_Wire):
    __test__ = False  # not a test class, whatever pytest thinks of its name
    passed: Annotated[int, Field(ge=0)]
    total: Annotated[int, Field(ge=0)]


class Graded(_Wire):
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


class FaultReport(_Wire):
    kind: FaultKind
    message: str
    retryable: bool


class Faulted(_Wire):
    """Our failure to judge. Has no reward, on purpose: taking it for a zero is a type error."""

    id: SubmissionId
    status: Literal["faulted"] = "faulted"
    fault: FaultReport


Result = Annotated[Graded | Faulted, Field(discriminator="status")]
RESULT: TypeAdapter[Graded | Faulted] = TypeAdapter(Result)


class GradeResponse(_Wire):
    results: tuple[Result, ...]


class JobState(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"


class JobStatus(_Wire):
    """Answer of `GET /v1/jobs/{id}`; `results` are there once every submission has one."""

    id: str
    status: JobState
    done: int
    total: int
    results: tuple[Result, ...] | None = None


class GraderInfo(_Wire):
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
        return f"{self.name.value}@{self.revision}"


class GraderList(_Wire):
    graders: tuple[GraderInfo, ...]


class GraderDescription(_Wire):
    """Facts about one grader that its users need and that do not change while it runs."""

    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,31}$")]
    task_schema: dict[str, Any]
    """JSON Schema of `task`."""
    example: dict[str, Any]
    """One submission: `id`, `prompt`, `completion`, `task`."""
    stages: tuple[Stage, ...]
    """Stages in the order in which an answer passes them; the first is `extract`."""
    rates: dict[str, str]
    """Name of a rate of an evaluation -> its rule: `past:STAGE` (the verdict's stage is a later one), `clean:STAGE`
    (past that stage's predecessor, and no diagnostic of that stage) or `passed`."""
    components: tuple[str, ...]
    """Names of the reward's components under the grader's rubrics."""
    fences: tuple[str, ...]
    """Info strings of code fences; empty where answers are prose."""
    reads_prompt: bool
    """The prompt is part of what is judged, and of the job id."""


class Problem(BaseModel):
    """RFC 9457 problem details, `application/problem+json`: every 4xx and 5xx answer."""

    model_config = ConfigDict(extra="allow")
    type: str = "about:blank"
    title: str
    status: int
    detail: str
    errors: list[dict[str, Any]] | None = None


# ---------------------------------------------------------------------------------------------------- conversions


def grader_named(name: str) -> GraderName:
    """The grader of that name. Raises UnknownGrader, naming those there are."""
    try:
        return GraderName(name)
    except ValueError:
        known = ", ".join(grader.value for grader in GraderName)
        raise UnknownGrader(f"there is no grader {name!r}; there are: {known}") from None


def explain(error: ValidationError) -> str:
    """One line per mistake: where it is and what is wrong with it, without repeating the input."""
    lines = []
    for item in error.errors(include_url=False, include_context=False, include_input=False):
        where = ".".join(str(part) for part in item["loc"]) or "input"
        lines.append(f"{where}: {item['msg'].removeprefix('Value error, ')}")
    return "; ".join(lines)


def misuse_of(error: ValidationError) -> Misuse:
    """The misuse that a validation error is: TooLarge when only sizes are wrong, else Misuse."""
    sizes = [
        item["type"] == "too_long" or TOO_LONG in item["msg"]
        for item in error.errors(include_url=False, include_context=False, include_input=False)
    ]
    return (TooLarge if sizes and all(sizes) else Misuse)(explain(error))


def job_id_of(grader: str, rubric: str, submission: Submission) -> str:
    """The content hash under which identical work is done once. `grader` is name@revision.

    The submission's id does not count, nor its prompt but for a reward model: they cannot change the verdict.
    """
    asked = [grader, rubric, submission.task.model_dump(mode="json"), submission.completion]
    if isinstance(submission, PreferenceSubmission):
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
