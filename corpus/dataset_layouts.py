"""Rows in the columns of other projects' data sets, made into rows of tasks or worked examples.
Runs nothing.

| layout | columns | becomes |
|--------------|--------------------------------------------------------------------------------|-----------------|
| ocamler | id, prompt (doc comment and `let f (x : int) : int =`), tests | OCaml tasks | |
ocamler-eval | id, problem, solution, tests, difficulty | OCaml tasks | | ocamler-sft | prompt,
solution | worked examples | | b | description, starter_code, tests, perhaps id, solution,
complexity | Rust tasks | | scrum | sprint_name, sprint_goal, formatted_issues, num_issues, perhaps
team_context | story tasks | | mbpp | task_id, text or prompt, code, test_list, perhaps
challenge_test_list | program tasks |

Layouts of problems that can be asked in several languages are in `corpus.program_problems`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from corpus import rust_text
from corpus.drafts import Unusable, build_drafts, build_id, get_text, require_text
from corpus.humaneval import build_ocaml_task, render_completion_prompt
from corpus.problems import compute_digest
from corpus.program_problems import (
    convert_apps,
    convert_code_contests,
    convert_common_oj,
    convert_livecodebench,
)
from corpus.python_functions import convert_mbpp
from corpus.rust_signature import derive_signature
from corpus.story_repairs import STORIES_WANTED
from gradus.contract import GraderName
from gradus.row_reader import Row
from gradus.strict_json import parse_strict_json

_Values = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Layout:
    make: Callable[[_Values], dict[str, Any]]
    grader: GraderName | None
    """None: what comes out are worked examples for supervised training, which have no tests to be
    held to."""
    id_columns: tuple[str, ...] = ("id",)
    """Columns that can be the id; without any of them it is made of the row's text."""


def build_column_drafts(rows: Iterable[Row], layout: Layout) -> Iterator[Row]:
    """Yield the row of a task or worked example for each row, in order."""

    def get_id(values: _Values) -> str:
        for column in layout.id_columns:
            if values.get(column) not in (None, ""):
                return build_id(values[column])
        shown = {column: str(value) for column, value in sorted(values.items())}
        return build_id(f"row-{compute_digest(repr(shown))[:12]}")

    return build_drafts(rows, get_id, layout.make)


def _convert_ocamler_eval(values: _Values) -> dict[str, Any]:
    """Where the problem ends in the beginning of a definition, the solution may be the rest of
    it."""
    problem = require_text(values, "problem")
    tests = require_text(values, "tests")
    solution = require_text(values, "solution")
    if problem.rstrip().endswith("="):
        return build_ocaml_task(problem, tests, solution)
    return {"prompt": problem, "tests": tests, "solution": solution}


def _convert_ocamler_answer(values: _Values) -> dict[str, Any]:
    """Asked as the tasks of the layouts `ocamler` and `ocamler-eval` are, so that both stages read
    the same prompt."""
    prompt = require_text(values, "prompt")
    if prompt.rstrip().endswith("="):
        prompt = render_completion_prompt(prompt)
    return {"prompt": prompt, "completion": require_text(values, "completion", "solution")}


def _convert_rust_agent(values: _Values) -> dict[str, Any]:
    described = require_text(values, "description")
    starter = get_text(values, "starter_code")
    solution = get_text(values, "solution")
    tests = rust_text.build_integration_tests(require_text(values, "tests"))
    task: dict[str, Any] = {"prompt": described, "tests": tests}
    if starter:
        task["stub"] = rust_text.make_public(starter)
        task["prompt"] += (
            f"\n\nStart from this, and keep what is `pub`:\n\n```rust\n{task['stub'].strip()}\n```"
        )
    if solution:
        task["solution"] = rust_text.make_public(solution)
    elif starter:
        with suppress(Unusable):
            declared = derive_signature(task["stub"], tests)
            # of a type, the tests may need more than a beginning has
            if all(line.startswith("pub fn ") for line in declared.splitlines()):
                task["signature"] = declared
    if values.get("complexity") not in (None, ""):
        task["difficulty"] = values["complexity"]
    return task


def _convert_sprint(values: _Values) -> dict[str, Any]:
    goal = require_text(values, "sprint_goal", "prompt")
    context = _decode_cell(values.get("team_context"))
    task: dict[str, Any] = {
        "prompt": f"Sprint goal: {goal.strip()}\n\n{STORIES_WANTED}",
        "sprint_goal": goal,
        "references": list(dict.fromkeys(_parse_references(values))),
    }
    if isinstance(context, dict):
        task["team_context"] = context
    return task


def _decode_cell(cell: Any) -> Any:
    """Return what a cell of a CSV file holds as JSON; any other value as it is."""
    if isinstance(cell, str) and cell.lstrip().startswith(("[", "{")):
        with suppress(ValueError):
            return parse_strict_json(cell)
    return cell


def _parse_references(values: _Values) -> list[str]:
    """Return the references: one string with ` ||||| ` between them, quotes around each left out,
    or a list."""
    issues = _decode_cell(values.get("references")) or require_text(values, "formatted_issues")
    parts = issues.split("|||||") if isinstance(issues, str) else issues
    if not isinstance(parts, list) or not all(isinstance(part, str) for part in parts):
        raise Unusable("formatted_issues: is neither text nor a list of texts")
    references = [part.strip().strip('"').strip() for part in parts]
    return [part for part in references if part]


LAYOUTS: Mapping[str, Layout] = {
    "ocamler": Layout(
        lambda row: build_ocaml_task(
            require_text(row, "prompt"), require_text(row, "tests"), get_text(row, "solution")
        ),
        "ocaml",
    ),
    "ocamler-eval": Layout(_convert_ocamler_eval, "ocaml"),
    "ocamler-sft": Layout(_convert_ocamler_answer, None),
    "rust-pipeline": Layout(_convert_rust_agent, "rust", ("id", "task_id")),
    "scrum": Layout(_convert_sprint, "story", ("id", "sprint_name")),
    "mbpp": Layout(convert_mbpp, "program", ("task_id",)),
}


def build_problem_layout(name: str, language: str) -> Layout:
    """Return a layout of problems whose tasks ask for programs in `language`."""
    convert, id_columns = PROBLEMS[name]
    return Layout(lambda values: convert(values, language), "program", id_columns)


PROBLEMS: Mapping[str, tuple[Callable[[_Values, str], dict[str, Any]], tuple[str, ...]]] = {
    "apps": (convert_apps, ("problem_id", "id")),
    "taco": (convert_apps, ("id",)),
    "code-contests": (convert_code_contests, ("name",)),
    "livecodebench": (convert_livecodebench, ("question_id",)),
    "common-oj": (convert_common_oj, ("id",)),
}
"""Conversion and id columns of each layout of problems."""
