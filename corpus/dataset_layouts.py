"""Rows in the columns of other projects' data sets, made into rows of tasks or worked examples.
Runs nothing.

| layout | columns | becomes |
|--------------|--------------------------------------------------------------------------------|-----------------|
| ocamler | id, prompt (doc comment and `let f (x : int) : int =`), tests | OCaml tasks | |
ocamler-eval | id, problem, solution, tests, difficulty | OCaml tasks | | ocamler-sft | prompt,
solution | worked examples | | b | description, starter_code, tests, perhaps id, solution,
complexity | Rust tasks | | scrum | sprint_name, sprint_goal, formatted_issues, num_issues, perhaps
team_context | story tasks |
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from corpus import rust_text
from corpus.drafts import Unusable, drafts, id_of, optional_text, text_of
from corpus.humaneval import ocaml_task, to_complete
from corpus.problems import digest
from corpus.rust_signature import derived_signature
from gradus.contract import GraderName
from gradus.row_reader import Row, strict_json

_Values = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Layout:
    make: Callable[[_Values], dict[str, Any]]
    grader: GraderName | None
    """None: what comes out are worked examples for supervised training, which have no tests to be
    held to."""
    named: tuple[str, ...] = ("id",)
    """Columns that can be the id; without any of them it is made of the row's text."""


def column_drafts(rows: Iterable[Row], layout: Layout) -> Iterator[Row]:
    """Yield the row of a task or worked example for each row, in order."""

    def name_of(values: _Values) -> str:
        given = [values[column] for column in layout.named if values.get(column) not in (None, "")]
        shown = {column: str(value) for column, value in sorted(values.items())}
        return id_of(given[0] if given else f"row-{digest(repr(shown))[:12]}")

    return drafts(rows, name_of, layout.make)


def _ocamler_eval(values: _Values) -> dict[str, Any]:
    """Where the problem ends in the beginning of a definition, the solution may be the rest of
    it."""
    problem, tests, solution = (text_of(values, name) for name in ("problem", "tests", "solution"))
    if problem.rstrip().endswith("="):
        return ocaml_task(problem, tests, solution)
    return {"prompt": problem, "tests": tests, "solution": solution}


def _ocamler_answer(values: _Values) -> dict[str, Any]:
    """Asked as the tasks of the layouts `ocamler` and `ocamler-eval` are, so that both stages read
    the same prompt."""
    prompt = text_of(values, "prompt")
    asked = to_complete(prompt) if prompt.rstrip().endswith("=") else prompt
    return {"prompt": asked, "completion": text_of(values, "completion", "solution")}


def _rust_agent(values: _Values) -> dict[str, Any]:
    described = text_of(values, "description")
    starter = optional_text(values, "starter_code")
    solution = optional_text(values, "solution")
    tests = rust_text.integration_tests(text_of(values, "tests"))
    made: dict[str, Any] = {"prompt": described, "tests": tests}
    if starter:
        made["stub"] = rust_text.public(starter)
        made["prompt"] += (
            f"\n\nStart from this, and keep what is `pub`:\n\n```rust\n{made['stub'].strip()}\n```"
        )
    if solution:
        made["solution"] = rust_text.public(solution)
    elif starter:
        with suppress(Unusable):
            declared = derived_signature(made["stub"], tests)
            # of a type, the tests may need more than a beginning has
            if all(line.startswith("pub fn ") for line in declared.splitlines()):
                made["signature"] = declared
    if values.get("complexity") not in (None, ""):
        made["difficulty"] = values["complexity"]
    return made


def _sprint(values: _Values) -> dict[str, Any]:
    goal = text_of(values, "sprint_goal", "prompt")
    context = _unpacked(values.get("team_context"))
    asked = (
        "Write the user stories for this sprint, one per line: As a <role>, I want <what>, so that"
        " <why>."
    )
    return {
        "prompt": f"Sprint goal: {goal.strip()}\n\n{asked}",
        "sprint_goal": goal,
        "references": list(dict.fromkeys(_references(values))),
        **({"team_context": context} if isinstance(context, dict) else {}),
    }


def _unpacked(cell: Any) -> Any:
    """What a cell of a CSV file holds as JSON; any other value as it is."""
    if isinstance(cell, str) and cell.lstrip().startswith(("[", "{")):
        with suppress(ValueError, RecursionError):
            return strict_json(cell)
    return cell


def _references(values: _Values) -> list[str]:
    """The references: one string with ` ||||| ` between them, quotes around each left out, or a
    list."""
    issues = _unpacked(values.get("references")) or text_of(values, "formatted_issues")
    parts = issues.split("|||||") if isinstance(issues, str) else issues
    if not isinstance(parts, list) or not all(isinstance(part, str) for part in parts):
        raise Unusable("formatted_issues: is neither text nor a list of texts")
    found = [part.strip().strip('"').strip() for part in parts]
    return [part for part in found if part]


LAYOUTS: Mapping[str, Layout] = {
    "ocamler": Layout(
        lambda row: ocaml_task(
            text_of(row, "prompt"), text_of(row, "tests"), optional_text(row, "solution")
        ),
        "ocaml",
    ),
    "ocamler-eval": Layout(_ocamler_eval, "ocaml"),
    "ocamler-sft": Layout(_ocamler_answer, None),
    "rust-pipeline": Layout(_rust_agent, "rust", ("id", "task_id")),
    "scrum": Layout(_sprint, "story", ("id", "sprint_name")),
}
