"""The task of the OCaml grader."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, Field

from gradus.tasks.base import RunLimits, Text, check_text
from gradus.tasks.code import CodeTask


class Framework(StrEnum):
    ASSERT = "assert"
    OUNIT2 = "ounit2"


class OcamlLimits(RunLimits):
    compile_cpu_s: Annotated[float, Field(gt=0, le=600, allow_inf_nan=False)] | None = None
    """CPU seconds of the compiler, on the answer and on tests that are compiled with it."""


class OcamlTask(CodeTask):
    """Judged by compiling the answer as module `module` and running `tests` against it."""

    STAGES = ("extract", "types", "compile", "tests")
    RATES: ClassVar[Mapping[str, str]] = {
        "types": "past:types",
        "compile": "past:compile",
        "tests": "passed",
    }
    FENCES = ("ocaml", "ml")
    EXAMPLE: ClassVar[Mapping[str, Any]] = {
        "id": "a1",
        "prompt": "Write double : int -> int.",
        "completion": "```ocaml\nlet double x = 2 * x\n```",
        "task": {"tests": "let () = assert (double 2 = 4)", "signature": "val double : int -> int"},
    }

    tests: Annotated[str, Field(min_length=1, pattern=r"\S"), AfterValidator(check_text)]
    """Plain `assert`s, or an OUnit2 suite."""
    signature: Text | None = None
    """What the answer must define, as in an `.mli`: `val f : int -> int`. Tests see nothing else of
    the answer."""
    module: Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_']*$", max_length=64)] = "solution"
    framework: Framework | None = None
    """None: `ounit2` if the tests name OUnit2, else `assert`."""
    packages: tuple[
        Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_.\-]*$", max_length=64)], ...
    ] = ()
    """findlib packages that the answer and the tests may use."""
    files: dict[Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*\.mli?$", max_length=64)], Text] = {}
    """Support modules of the task (`tree.ml`, `tree.mli`), compiled before the answer."""
    limits: OcamlLimits = OcamlLimits()
