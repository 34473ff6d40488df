"""Repair tasks: a reference answer is broken by one edit, the grader says what is wrong with it,
the answer is the fix.

A broken answer that still passes every test is a survivor: it shows that the tests are weak, or
that the edit changes nothing, and never becomes a task. Graded in boxes, like any answer; nothing
is written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from corpus.mutation import Edit, Mutations, select_edits
from corpus.ocaml_mutations import OcamlMutations
from corpus.program_mutations import ProgramMutations
from corpus.repair_prompt import render_repair_prompt
from corpus.rust_mutations import RustMutations
from corpus.task_rows import build_submission, extract_task
from gradus.contract import Faulted, Graded, GraderName, Stage, Submission
from gradus.errors import Fault
from gradus.feedback import render_verdict
from gradus.row_reader import Row
from gradus.validation import explain
from services.graders.base import Grader
from services.graders.ocaml.grader import OcamlGrader
from services.graders.program.grader import ProgramGrader
from services.local_grading import grade_in_order

MAX_SOURCE_CHARS = 20_000
"""A longer reference answer is not broken: what finds the places takes time that grows with its
square."""
_BATCH = 8
"""Tasks whose answers are graded together: enough to keep the slots busy, few enough to see
progress."""


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


def create_mutations(grader: Grader) -> Mutations:
    """Return what breaks answers of this grader's tasks."""
    if isinstance(grader, OcamlGrader):
        return OcamlMutations(grader.toolchain, grader.sandbox)
    if isinstance(grader, ProgramGrader):
        return ProgramMutations()
    return RustMutations()


def break_tasks(
    rows: Sequence[Row],
    name: GraderName,
    grader: Grader,
    mutations: Mutations,
    *,
    per_task: int = 4,
    tries: int = 12,
    seed: int = 42,
    lints: bool = False,
    slots: int | None = None,
) -> Iterator[MutationResult]:
    """Yield what came of each task, in order: of `tries` broken answers at most, `per_task` repair
    tasks at most. `lints`: add edits of Rust that clippy alone minds."""
    for start in range(0, len(rows), _BATCH):
        batch = rows[start : start + _BATCH]
        results = [MutationResult(row.where, str(row.values.get("id", ""))) for row in batch]
        mutants: list[_Mutant] = []
        for row, result in zip(batch, results, strict=True):
            try:
                mutants += _build_mutants(row, name, mutations, result, tries, seed, lints)
            except ValidationError as error:
                result.problem = explain(error)
            except Fault as fault:
                result.problem = fault.message
        submissions = [mutant.submission for mutant in mutants]
        graded = grade_in_order(grader, submissions, grader.info().rubrics[0], slots)
        for mutant, verdict in zip(mutants, graded, strict=True):
            _record_verdict(mutant, name, verdict, per_task)
        yield from results


@dataclass(frozen=True, slots=True)
class _Mutant:
    task_result: MutationResult
    values: Mapping[str, Any]
    """The row that it was made of."""
    edit: Edit | None
    """None: the reference answer itself."""
    code: str
    submission: Submission


def _build_mutants(
    row: Row,
    name: GraderName,
    mutations: Mutations,
    result: MutationResult,
    tries: int,
    seed: int,
    lints: bool,
) -> list[_Mutant]:
    """Return the reference answer and its broken forms; none, with a problem, where the row has no
    answer to break. Raises ValidationError for the row's task, Fault where no edits are found."""
    code = row.values.get("solution")
    if row.problem is not None:
        result.problem = row.problem
    elif not isinstance(code, str) or not code.strip() or not result.id:
        result.problem = "has no id or no solution to break"
    elif len(code) > MAX_SOURCE_CHARS:
        result.problem = f"its solution is longer than {MAX_SOURCE_CHARS} characters"
    else:
        task = extract_task(row.values, name)
        reference = _Mutant(result, row.values, None, code, build_submission(name, code, task))
        edits = mutations.find_edits(code, task)
        if lints:
            edits += RustMutations().find_lints(code, task)
        mutants = [reference]
        for edit in select_edits(code, edits, tries, f"{seed}:{result.id}"):
            text = edit.apply(code)
            submission = build_submission(name, text, task)
            mutants.append(_Mutant(result, row.values, edit, text, submission))
        return mutants
    return []


def _record_verdict(
    mutant: _Mutant, name: GraderName, verdict: Graded | Faulted, per_task: int
) -> None:
    task_result, edit = mutant.task_result, mutant.edit
    if isinstance(verdict, Faulted):
        task_result.problem = task_result.problem or verdict.fault.message
    elif edit is None:
        if not verdict.passed:
            task_result.problem = f"its solution does not pass: {render_verdict(verdict)}"
    elif task_result.problem is None:
        task_result.tried += 1
        stages = {diagnostic.stage for diagnostic in verdict.diagnostics}
        is_lint = edit.kind == "lint" and Stage.CLIPPY in stages
        if verdict.passed and not is_lint:
            task_result.survivors.append(_build_survivor(mutant, edit, verdict))
        elif len(task_result.repairs) < per_task:
            task_result.repairs.append(_build_repair(mutant, edit, name, verdict))


def _build_survivor(mutant: _Mutant, edit: Edit, verdict: Graded) -> dict[str, Any]:
    source = mutant.values["solution"]
    return {
        "id": mutant.task_result.id,
        "where": mutant.task_result.where,
        "mutation": edit.kind,
        "line": edit.get_line_number(source),
        "replaced": source[edit.start : edit.end],
        "with": edit.text,
        "tests": verdict.tests.total if verdict.tests else 0,
        "code": mutant.code,
    }


def _build_repair(mutant: _Mutant, edit: Edit, name: GraderName, verdict: Graded) -> dict[str, Any]:
    values, task_result = mutant.values, mutant.task_result
    message = render_verdict(verdict)
    tags = values.get("tags")
    return {
        **values,
        "id": f"{task_result.id}~{len(task_result.repairs) + 1}-{edit.kind.replace(' ', '-')}",
        "prompt": render_repair_prompt(str(values.get("prompt", "")), name, mutant.code, message),
        "stub": mutant.code,
        "message": message,
        "kind": "repair",
        "group": values.get("group") or task_result.id,
        "tags": [
            *(tags if isinstance(tags, list) else []),
            f"mutation:{edit.kind}",
            f"stage:{verdict.stage.value}",
        ],
    }
