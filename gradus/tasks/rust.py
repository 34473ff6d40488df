"""The task of the Rust grader."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from gradus.tasks.base import RunLimits, Text, Wire
from gradus.tasks.code import CodeTask

RelativePath = Annotated[
    str,
    Field(
        pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.\-]*(/[A-Za-z0-9_][A-Za-z0-9_.\-]*)*$", max_length=128
    ),
]
"""A path that stays below its folder and names no hidden file."""


class StdioCase(Wire):
    """One run of a program: what it reads and what it must write."""

    stdin: Text = ""
    stdout: Text
    """Compared without white space at the ends of lines and without empty lines at the end."""


class RustTask(CodeTask):
    """Judged by check, clippy and `tests`, a test file that names the crate, or by `cases` of a
    program."""

    STAGES = ("extract", "check", "clippy", "tests")
    RATES: ClassVar[Mapping[str, str]] = {
        "check": "past:check",
        "clippy": "clean:clippy",
        "tests": "passed",
    }
    FENCES = ("rust", "rs")
    EXAMPLE: ClassVar[Mapping[str, Any]] = {
        "id": "a1",
        "prompt": "Write pub fn double(x: i64) -> i64.",
        "completion": "```rust\npub fn double(x: i64) -> i64 { 2 * x }\n```",
        "task": {
            "tests": "#[test]\nfn doubles() { assert_eq!(solution::double(2), 4); }",
            "signature": "pub fn double(x: i64) -> i64;",
        },
    }

    tests: Text = ""
    cases: Annotated[tuple[StdioCase, ...], Field(max_length=100)] = ()
    """In place of `tests`: the answer is a whole program, `src/main.rs`."""
    signature: Text | None = None
    """What the answer must define: `pub fn f(x: i64) -> i64;`, `pub struct S;`, `impl S { pub fn
    g(&self); }`. Tests see these types and no others."""
    crate: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$", max_length=64)] = "solution"
    edition: Literal["2015", "2018", "2021", "2024"] = "2021"
    files: dict[RelativePath, Text] = {}
    """The crate as it is given, path -> text; files of the answer replace those of the same
    path."""
    dependencies: tuple[
        Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_\-]*$", max_length=64)], ...
    ] = ()
    """Crates that answer and tests may use, of those that the grader was configured with."""
    limits: RunLimits = RunLimits()

    @model_validator(mode="after")
    def _has_tests_or_cases(self) -> RustTask:
        if bool(self.tests.strip()) == bool(self.cases):
            raise ValueError(
                "give either `tests`, an integration test file, or `cases` of standard input and"
                " output"
            )
        if self.cases and self.public_tests:
            raise ValueError("public_tests: need `tests`; a program with `cases` has none")
        return self

    @classmethod
    def build_announced_schema(cls) -> dict[str, Any]:
        tests = {"required": ["tests"], "properties": {"tests": {"pattern": r"\S"}}}
        cases = {"required": ["cases"], "properties": {"cases": {"minItems": 1}}}
        return super().build_announced_schema() | {"anyOf": [tests, cases]}

    @model_validator(mode="after")
    def _has_no_file_for_a_folder(self) -> RustTask:
        files = {*self.files, "src/main.rs" if self.cases else "src/lib.rs"}
        folders = {str(folder) for path in self.files for folder in PurePosixPath(path).parents}
        both = sorted(files & folders)
        if both:
            raise ValueError(f"files: `{both[0]}` is the path of a file and of a folder")
        return self
