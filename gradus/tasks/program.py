"""The task of the program grader."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, JsonValue, model_validator

from gradus.tasks.base import RunLimits, Task, Text, Wire

LanguageName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_+#.\-]*$", max_length=32)]
FileName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.\-]*$", max_length=64)]
Points = Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)]
_FRACTION = re.compile(r"(?:^|\s)[+-]?\d+\.\d+(?=\s|$)")


def choose_checker(outputs: Iterable[str]) -> Literal["tokens", "floats"]:
    """Return the checker for expected outputs whose source names none: programs may print another
    number of digits behind the point."""
    return "floats" if any(map(_FRACTION.search, outputs)) else "tokens"


class Call(Wire):
    """A call of one of the answer's functions."""

    function: Annotated[str, Field(pattern=r"^[A-Za-z_]\w*$", max_length=64)]
    """A function of the answer, or a method of its class `Solution`."""
    arguments: Annotated[tuple[JsonValue, ...], Field(max_length=64)] = ()


class ProgramCase(Wire):
    """One run of the answer: what it gets, and what must come of it."""

    stdin: Text = ""
    args: Annotated[tuple[Text, ...], Field(max_length=64)] = ()
    """Arguments of the command line."""
    files: dict[FileName, Text] = {}
    """Files in the working directory, read-only."""
    stdout: Text | None = None
    """What the program must write, by the task's `checker`."""
    call: Call | None = None
    """In place of a program's run: `equals` is what the call must return."""
    equals: JsonValue = None
    """JSON, compared as such; floats by the task's `tolerance`."""
    group: Annotated[str, Field(max_length=64)] = ""
    """Cases of one group earn its points together, under `program/first@1`."""

    @model_validator(mode="after")
    def _is_run_or_call(self) -> ProgramCase:
        if (self.stdout is None) == (self.call is None):
            raise ValueError("give either `stdout`, for a program, or `call` and `equals`")
        if self.call and (self.stdin or self.args or self.files):
            raise ValueError("a case with `call` has no `stdin`, `args` or `files`")
        return self


class CheckerProgram(Wire):
    """A program that judges outputs. It is started with the paths of three files, the input, the
    output and the expected output, and ends with status 0 for a right output, 1 or 2 for a wrong
    one, as programs of testlib do."""

    language: LanguageName
    source: Annotated[Text, Field(min_length=1)]


class ProgramTask(Task):
    """Judged by runs of a program: what it writes to standard output, or what its functions
    return."""

    STAGES = ("extract", "compile", "tests")
    RATES: ClassVar[Mapping[str, str]] = {"compile": "past:compile", "tests": "passed"}
    FENCES = ("python", "py", "cpp", "c++", "c", "javascript", "js", "go", "rust", "ocaml")
    EXAMPLE: ClassVar[Mapping[str, Any]] = {
        "id": "a1",
        "prompt": "Read integers and print their sum. Write Python.",
        "completion": "```python\nprint(sum(map(int, input().split())))\n```",
        "task": {"language": "python", "cases": [{"stdin": "1 2", "stdout": "3"}]},
    }

    language: LanguageName = "python"
    """A name of the grader's configuration; `gradus doctor` lists those that are installed."""
    cases: Annotated[tuple[ProgramCase, ...], Field(min_length=1, max_length=1000)]
    public_cases: Annotated[tuple[ProgramCase, ...], Field(max_length=16)] = ()
    """Cases that the model may read. Results quote those that fail. They never count for the
    reward, nor for `passed`."""
    checker: Literal["tokens", "exact", "lines", "floats"] | CheckerProgram = "tokens"
    """How outputs are compared. `tokens`: words between white space. `exact`: all but one newline
    at the end. `lines`: lines in any order. `floats`: as tokens, numbers within `tolerance`."""
    tolerance: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] = 1e-6
    """Absolute or relative difference of numbers, for `floats` and `equals`."""
    points: dict[Annotated[str, Field(max_length=64)], Points] = {}
    """Points of groups; 1 for those that are not named."""
    stop_at_failure: bool = False
    """Cases behind the first that fails are not run, and fail."""
    limits: RunLimits = RunLimits()
    """CPU seconds and memory of each case, before the language's factor."""
    shows_output: bool = False
    """Results quote what each case wrote, also its input if the program prints it: for tasks that
    hide nothing. A diagnostic with the code `output` per case, JSON with `stdout`, `stderr`,
    `status` and `is_cut`."""

    @model_validator(mode="after")
    def _names_groups(self) -> ProgramTask:
        unknown = self.points.keys() - {case.group for case in self.cases}
        if unknown:
            raise ValueError(f"points: no case is of the group {min(unknown)!r}")
        return self
