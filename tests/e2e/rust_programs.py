"""Rust crates with tests, from the corpora beside the checkout, our own tasks and our own cases.
Runs nothing.

Rustlings keep their tests inside of the answer: these are moved into an integration test file, and
what they use is made public, by plain rules on lines. Both sides of a comparison get the result, so
it need not be what people write.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from gradus.resources import configs
from gradus.tasks.rust import RustTask

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT.parent / "shared" / "data"
CASES = ROOT / "tests" / "cases" / "rust"
CORPORA = ("rust_exercism.jsonl", "rust_rustlings.jsonl")
SOURCES = ("exercism", "rustlings", "tasks", "lints", "crates", "editions")
COMPILES = "#[test]\nfn it_compiles() {}\n"


@dataclass(frozen=True, slots=True)
class Program:
    """An answer and how it is judged."""

    id: str
    source: str
    task: RustTask
    answer: dict[str, str]
    """Path -> text of the files that the answer has."""
    checked_only: bool = False
    """Its tests say nothing about it: there are none, or they cannot be had apart from it."""
    own_output: bool = False
    """A program that is held to what it writes under cargo."""

    @property
    def entry(self) -> str:
        return "src/main.rs" if self.task.cases else "src/lib.rs"

    @property
    def files(self) -> dict[str, str]:
        """Path -> text of the whole crate but its tests."""
        return {**self.task.files, **self.answer}


@dataclass(frozen=True, slots=True)
class LintPair:
    """One lint: a crate that has it and one that has not."""

    lint: str
    group: str
    bad: str
    fixed: str
    edition: str = "2021"
    signature: str | None = None
    """For what an answer may do only where its task declares it."""


@dataclass(frozen=True, slots=True)
class Crate:
    """A small crate of our own about one thing that cargo does."""

    name: str
    files: dict[str, str]
    tests: str = COMPILES
    edition: str = "2021"
    extra: dict[str, Any] = field(default_factory=dict)
    """More fields of the task."""


def programs(source: str) -> Iterator[Program]:
    """All programs of one of `SOURCES`; none when its file is not there."""
    makers = {
        "exercism": _exercism,
        "rustlings": _rustlings,
        "tasks": _tasks,
        "lints": _lints,
        "crates": _crates,
        "editions": _editions,
    }
    yield from makers[source]()


def lint_pairs() -> list[LintPair]:
    return [LintPair(**pair) for pair in yaml.safe_load((CASES / "lints.yaml").read_text())]


def missing_corpora() -> list[str]:
    return [name for name in CORPORA if not (DATA / name).exists()]


def _read(path: Path) -> Iterator[dict[str, Any]]:
    if path.exists():
        for line in path.read_text().splitlines():
            yield json.loads(line)


# ---------------------------------------------------------------------- the sources


def _exercism() -> Iterator[Program]:
    for record in _read(DATA / "rust_exercism.jsonl"):
        if not record["std_only_verified"]:
            continue
        named = re.search(r'^name = "(.*)"', record["cargo_toml"], re.MULTILINE)
        (tests,) = record["tests"].values()
        task = _task(tests=tests, crate=named[1] if named else "solution", edition="2024")
        for which in ("solution", "stub"):
            yield Program(f"{record['id']} {which}", "exercism", task, record[which])


def _rustlings() -> Iterator[Program]:
    for record in _read(DATA / "rust_rustlings.jsonl"):
        for which in ("solution", "broken"):
            name = f"{record['id']} {which}"
            if not record["has_tests"]:
                task = _task(cases=[{"stdin": "", "stdout": ""}], edition="2024")
                yield Program(
                    name, "rustlings", task, {"src/main.rs": record[which]}, own_output=True
                )
                continue
            code, _ = _split(record[which])
            _, tests = _split(record["solution"])
            task = _task(tests=tests or COMPILES, edition="2024")
            answer = {"src/lib.rs": _public(code) if tests else record[which]}
            yield Program(name, "rustlings", task, answer, checked_only=not tests)


def _tasks() -> Iterator[Program]:
    for record in [
        *_read(configs() / "tasks" / "rust.jsonl"),
        *_read(configs() / "tasks" / "rust_crates.jsonl"),
    ]:
        task = _task(
            **{name: value for name, value in record.items() if name in RustTask.model_fields}
        )
        entry = "src/main.rs" if task.cases else "src/lib.rs"
        for which in ("solution", "stub"):
            text = record[which]
            yield Program(
                f"{record['id']} {which}",
                "tasks",
                task,
                text if isinstance(text, dict) else {entry: text},
            )


def _lints() -> Iterator[Program]:
    for number, pair in enumerate(lint_pairs()):
        task = _task(tests=COMPILES, edition=pair.edition, signature=pair.signature)
        for which, text in (("bad", pair.bad), ("fixed", pair.fixed)):
            name = f"lint {number} {pair.lint} {which}"
            yield Program(name, "lints", task, {"src/lib.rs": text}, checked_only=True)


def _crates() -> Iterator[Program]:
    for entry in yaml.safe_load((CASES / "crates.yaml").read_text()):
        crate = Crate(**entry)
        task = _task(tests=crate.tests, edition=crate.edition, **crate.extra)
        yield Program(f"crate {crate.name}", "crates", task, crate.files)


def _editions() -> Iterator[Program]:
    """A spread of the others, each under the editions that it was not written for."""
    records = [*_exercism(), *(program for program in _rustlings() if program.task.tests)]
    for number, program in enumerate(records[::13]):
        edition = ("2015", "2018", "2021")[number % 3]
        tests = program.task.tests
        if edition == "2015":
            tests = re.sub(
                r"^(?!#!|//!)",
                f"extern crate {program.task.crate};\n",
                tests,
                count=1,
                flags=re.MULTILINE,
            )
        task = program.task.model_copy(update={"edition": edition, "tests": tests})
        yield replace(program, id=f"{program.id} as {edition}", source="editions", task=task)


def _task(**fields: Any) -> RustTask:
    return RustTask.model_validate({"limits": {"cpu_s": 30}, **fields})


# ---------------------------------------------------------------------- tests out of answers

_MODULE = re.compile(r"^#\[cfg\(test\)\]\nmod tests? \{\n(.*?)^\}\n?", re.MULTILINE | re.DOTALL)
_ITEM = re.compile(r"^(fn|struct|enum|trait|const|static|type|mod) ")
_MEMBER = re.compile(r"^    (fn|const|[a-z_]+:) ?")


def _split(text: str) -> tuple[str, str]:
    """Code and its tests as an integration test file; no tests when they are not in a `mod tests`
    of the usual form."""
    found = _MODULE.search(text)
    if not found:
        return text, ""
    tests = (
        textwrap.dedent(found[1])
        .replace("use super::*", "use solution::*")
        .replace("super::", "solution::")
    )
    code = text[: found.start()] + text[found.end() :]
    return code, tests if "use solution::" in tests else "use solution::*;\n" + tests


def _public(code: str) -> str:
    """`code` with its top-level items, their fields and their own methods public."""
    lines = []
    inside = ""
    for line in code.splitlines():
        if line and not line.startswith((" ", "}", "#", "/")):
            inside = line
        if _ITEM.match(line):
            line = f"pub {line}"
            line = re.sub(r"^(pub struct \w+(?:<.*>)?\()(.*\);)", _public_fields, line)
        elif _MEMBER.match(line) and _has_members(inside):
            line = f"    pub {line.strip()}"
        lines.append(line)
    return "\n".join(lines) + "\n"


def _public_fields(struct: re.Match[str]) -> str:
    return (
        struct[1]
        + ", ".join(f"pub {part.strip()}" for part in struct[2].removesuffix(");").split(","))
        + ");"
    )


def _has_members(item: str) -> bool:
    return item.startswith("struct ") or (item.startswith("impl") and " for " not in item)
