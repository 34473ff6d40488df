"""Repair tasks: a reference answer is broken by one edit, the grader says what is wrong with it,
the answer is the fix.

A broken answer that still passes every test is a survivor: it shows that the tests are weak, or
that the edit changes nothing, and never becomes a task. Graded in boxes, like any answer; nothing
is written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from pydantic import ValidationError

from corpus.cargo_mutants import CargoMutants, is_installed
from corpus.mutation import Edit, chosen
from corpus.ocaml_mutations import OcamlMutations
from corpus.repair_prompt import repair_prompt
from corpus.rust_mutations import RustMutations
from corpus.task_validation import fenced
from gradus.contract import Faulted, Graded, GraderName, Stage, Submission, submission_class
from gradus.errors import Fault, Misuse
from gradus.feedback import render_verdict
from gradus.row_reader import Row
from gradus.tasks import TASKS
from gradus.validation import explain
from services.graders.base import Grader
from services.graders.ocaml.grader import OcamlGrader
from services.local_grading import grade_in_order

MAX_SOURCE_CHARS = 20_000
"""A longer reference answer is not broken: what finds the places takes time that grows with its
square."""
ENGINES = ("auto", "own", "cargo-mutants")
_BATCH = 8
"""Tasks whose answers are graded together: enough to keep the slots busy, few enough to see
progress."""


class Mutations(Protocol):
    @property
    def engine(self) -> str:
        """Which program finds the edits, for people."""
        ...

    def edits(self, source: str, edition: str) -> list[Edit]:
        """Every way to break `source`; `edition` is of Rust."""
        ...


@dataclass(slots=True)
class MutationResult:
    """The repair tasks made of one task, and what prevented others."""

    where: str
    id: str
    repairs: list[dict[str, Any]] = field(default_factory=list)
    survivors: list[dict[str, Any]] = field(default_factory=list)
    tried: int = 0
    problem: str | None = None
    """Why nothing was tried, or what went wrong meanwhile."""


@dataclass(frozen=True, slots=True)
class MutationOptions:
    per_task: int = 4
    """Repair tasks to make of one task, at most."""
    tries: int = 12
    """Broken answers to grade for one task, at most."""
    seed: int = 42
    lints: bool = False
    """Add edits of Rust that clippy alone minds."""


def mutations_for(name: GraderName, grader: Grader, engine: str = "auto") -> Mutations:
    """What breaks answers of this grader's tasks. Raises Misuse where there is nothing that can."""
    if engine not in ENGINES:
        raise Misuse(f"--engine {engine}: use one of {', '.join(ENGINES)}")
    if engine == "cargo-mutants" and not (name == "rust" and is_installed()):
        raise Misuse(
            "--engine cargo-mutants: is for Rust, and needs `cargo install cargo-mutants` on PATH"
        )
    if name == "rust":
        return RustMutations() if engine == "own" or not is_installed() else CargoMutants()
    if isinstance(grader, OcamlGrader):
        return OcamlMutations(grader.toolchain, grader.sandbox)
    raise Misuse(
        f"answers to tasks of the grader {name!r} cannot be broken; those of ocaml and rust can"
    )


def break_tasks(
    rows: Sequence[Row],
    name: GraderName,
    grader: Grader,
    mutations: Mutations,
    options: MutationOptions,
    slots: int | None = None,
) -> Iterator[MutationResult]:
    """What came of each task, in order."""
    for start in range(0, len(rows), _BATCH):
        yield from _broken(rows[start : start + _BATCH], name, grader, mutations, options, slots)


# ----------------------------------------------------------------------------------------- a batch


@dataclass(frozen=True, slots=True)
class _Mutant:
    of: MutationResult
    edit: Edit | None
    """None: the reference answer itself."""
    code: str


def _broken(
    rows: Sequence[Row],
    name: GraderName,
    grader: Grader,
    mutations: Mutations,
    options: MutationOptions,
    slots: int | None,
) -> Iterator[MutationResult]:
    found: list[MutationResult] = []
    asked: list[tuple[_Mutant, Row, Submission]] = []
    for row in rows:
        broken = MutationResult(row.where, str(row.values.get("id", "")))
        found.append(broken)
        asked += [
            (mutant, row, made) for mutant, made in _mutants(row, name, mutations, options, broken)
        ]
    results = grade_in_order(
        grader, [made for _, _, made in asked], grader.info().rubrics[0], slots
    )
    for (mutant, row, _), result in zip(asked, results, strict=True):
        _sort(mutant, row, name, result, options)
    yield from found


def _mutants(
    row: Row,
    name: GraderName,
    mutations: Mutations,
    options: MutationOptions,
    broken: MutationResult,
) -> Iterator[tuple[_Mutant, Submission]]:
    """The reference answer, and what is to be graded of its broken forms."""
    code = row.values.get("solution")
    if row.problem is not None:
        broken.problem = row.problem
    elif not isinstance(code, str) or not code.strip() or not broken.id:
        broken.problem = "has no id or no solution to break"
    elif len(code) > MAX_SOURCE_CHARS:
        broken.problem = f"its solution is longer than {MAX_SOURCE_CHARS} characters"
    else:
        try:
            yield _Mutant(broken, None, code), _submission(row.values, name, code)
        except ValidationError as error:
            broken.problem = explain(error)
            return
        try:
            edition = str(task_of(row.values, name).get("edition", "2021"))
            edits = [
                *mutations.edits(code, edition),
                *(RustMutations().lints(code, edition) if options.lints else ()),
            ]
        except Fault as fault:
            broken.problem = fault.message
            return
        for edit in chosen(code, edits, options.tries, f"{options.seed}:{broken.id}"):
            text = edit.applied(code)
            yield _Mutant(broken, edit, text), _submission(row.values, name, text)


def _submission(values: Mapping[str, Any], name: GraderName, code: str) -> Submission:
    asked = {"id": "answer", "completion": fenced(name, code), "task": task_of(values, name)}
    return submission_class(name).model_validate(asked)


def task_of(values: Mapping[str, Any], name: GraderName) -> dict[str, Any]:
    """The fields of a row that judge it, flat or under `task`."""
    if isinstance(values.get("task"), Mapping):
        return dict(values["task"])
    return {field: values[field] for field in TASKS[name].model_fields if values.get(field)}


# ---------------------------------------------------------------------- what comes of it


def _sort(
    mutant: _Mutant, row: Row, name: GraderName, result: Graded | Faulted, options: MutationOptions
) -> None:
    of, edit = mutant.of, mutant.edit
    if isinstance(result, Faulted):
        of.problem = of.problem or result.fault.message
    elif edit is None:
        if not result.passed:
            of.problem = f"its solution does not pass: {render_verdict(result)}"
    elif of.problem is None:
        of.tried += 1
        is_lint = edit.kind == "lint" and any(
            one.stage is Stage.CLIPPY for one in result.diagnostics
        )
        if result.passed and not is_lint:
            of.survivors.append(_survivor(mutant, edit, row, result))
        elif len(of.repairs) < options.per_task:
            of.repairs.append(_repair(mutant, edit, row, name, result))


def _survivor(mutant: _Mutant, edit: Edit, row: Row, result: Graded) -> dict[str, Any]:
    source = row.values["solution"]
    return {
        "id": mutant.of.id,
        "where": mutant.of.where,
        "mutation": edit.kind,
        "line": edit.line(source),
        "replaced": source[edit.start : edit.end],
        "with": edit.text,
        "tests": result.tests.total if result.tests else 0,
        "code": mutant.code,
    }


def _repair(
    mutant: _Mutant, edit: Edit, row: Row, name: GraderName, result: Graded
) -> dict[str, Any]:
    values, of = row.values, mutant.of
    message = render_verdict(result)
    tags = values.get("tags")
    return {
        **values,
        "id": f"{of.id}~{len(of.repairs) + 1}-{edit.kind.replace(' ', '-')}",
        "prompt": repair_prompt(str(values.get("prompt", "")), name, mutant.code, message),
        "solution": values["solution"],
        "stub": mutant.code,
        "message": message,
        "kind": "repair",
        "group": values.get("group") or of.id,
        "tags": [
            *(tags if isinstance(tags, list) else []),
            f"mutation:{edit.kind}",
            f"stage:{result.stage.value}",
        ],
    }
