"""Tasks from benchmarks in the form of HumanEval: HumanEval in Python, HumanEval-X and
HumanEvalPack in Rust or Python, MultiPL-E in OCaml, and their like. Runs nothing.

A record is the beginning of a function, perhaps the rest of it, and tests. Rust's functions are
made public and its tests an integration test file; what is only imported and not used is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from corpus import rust_text
from corpus.drafts import (
    Unusable,
    build_drafts,
    build_id,
    get_text,
    parse_group,
    require_text,
)
from corpus.ocaml_text import make_assertions_run, parse_last_beginning
from corpus.python_functions import convert_humaneval
from gradus.contract import GraderName
from gradus.errors import Misuse
from gradus.row_reader import Row
from services.graders.rust.lexer import Kind, get_source_text, tokens

LANGUAGES = {
    "ml": "ocaml",
    "ocaml": "ocaml",
    "rs": "rust",
    "rust": "rust",
    "python": "program",
    "py": "program",
    "humaneval": "program",
}
"""Grader of a record, by its language; HumanEval itself has ids that begin with its name."""
_NOT_IMPLEMENTED = "    todo!()\n}\n"
_TO_COMPLETE = (
    "Complete this Rust function. Answer with its whole definition, `pub` included, and use"
    " only `std`."
)
_Values = Mapping[str, Any]


def build_humaneval_drafts(rows: Iterable[Row], language: GraderName) -> Iterator[Row]:
    """Yield the row of a task for each record: `task_id` or `name`, `prompt`, perhaps
    `declaration`, `canonical_solution`, `test` or `tests`, perhaps `buggy_solution`."""

    def make(values: _Values) -> dict[str, Any]:
        label = _get_language(values)
        record_language = LANGUAGES.get(label or "")
        if record_language is not language and (record_language or values.get("language")):
            raise Unusable(f"language: is {label}, not {language}")
        group = parse_group(str(_get_name(values)))
        task = _CONVERSIONS[language](values)
        if group:
            task["group"] = group
        return task

    return build_drafts(rows, lambda values: build_id(_get_name(values)), make)


def _get_name(values: _Values) -> Any:
    return values.get("task_id") or values.get("name")


def resolve_language(rows: Iterable[Row], chosen: str | None) -> GraderName:
    """Return the grader of the language asked for, or of the one that all records say they have.
    Raises Misuse when that cannot be told."""
    labels = {_get_language(row.values) for row in rows if row.problem is None}
    if chosen is not None:
        labels = {chosen}
    languages = {LANGUAGES.get(label or "") for label in labels}
    language = languages.pop() if len(languages) == 1 else None
    if language is None:
        raise Misuse(
            f"the records are in {', '.join(sorted(map(str, labels))) or 'no language'}: choose one"
            f" of {', '.join(LANGUAGES)} by --language"
        )
    return language


def _get_language(values: _Values) -> str | None:
    """Return `rust` of a column `language`, or of the id `Rust/12`."""
    label = values.get("language") or str(values.get("task_id", "")).partition("/")[0]
    return label.lower() if isinstance(label, str) and label else None


def _convert_ocaml(values: _Values) -> dict[str, Any]:
    prompt = (get_text(values, "prompt") or "") + (get_text(values, "declaration") or "")
    task = build_ocaml_task(
        prompt,
        require_text(values, "test", "tests"),
        get_text(values, "canonical_solution", "solution"),
    )
    buggy = get_text(values, "buggy_solution")
    if buggy:
        task["stub"] = parse_last_beginning(prompt).build_definition(buggy)
    return task


def render_completion_prompt(beginning: str) -> str:
    """Return the prompt that asks for the whole of an OCaml definition whose beginning is given."""
    instruction = (
        "Complete this OCaml function. Answer with its whole definition and use the standard"
        " library only."
    )
    return f"{instruction}\n\n```ocaml\n{beginning.strip()}\n```"


def build_ocaml_task(prompt: str, tests: str, solution: str | None) -> dict[str, Any]:
    """Return the fields of a task whose prompt ends in the beginning of a definition. Raises
    Unusable when it does not."""
    beginning = parse_last_beginning(prompt)
    task = {"prompt": render_completion_prompt(prompt), "tests": make_assertions_run(tests)}
    if beginning.signature:
        task["signature"] = beginning.signature
    if solution:
        task["solution"] = beginning.build_definition(solution)
    return {**task, "stub": beginning.stub}


# -------------------------------------------------------------------------------------------- Rust


def _convert_rust(values: _Values) -> dict[str, Any]:
    prompt = get_text(values, "prompt") or ""
    beginning = get_text(values, "declaration") or prompt
    if not beginning:
        raise Unusable("prompt or declaration: is missing or empty")
    solution = _build_library(beginning, require_text(values, "canonical_solution", "solution"))
    tests = rust_text.build_integration_tests(require_text(values, "test", "tests"))
    shown = rust_text.make_public(
        rust_text.remove_items(beginning + _NOT_IMPLEMENTED, words=("use",), empty_main=True)
    )
    buggy = get_text(values, "buggy_solution")
    uses = rust_text.extract_imports(beginning, tests)
    comments = ""
    for token in tokens(prompt):
        if token.kind is Kind.COMMENT:
            comments += f"{get_source_text(prompt, token)}\n"
    stub = rust_text.extract_imports(beginning, shown) + shown
    if buggy:
        stub = _build_library(beginning, buggy)
    snippet = comments + shown.removesuffix(_NOT_IMPLEMENTED)
    return {
        "prompt": f"{_TO_COMPLETE}\n\n```rust\n{snippet.strip()}\n```",
        "tests": uses + tests,
        "solution": solution,
        "stub": stub,
    }


def _build_library(beginning: str, body: str) -> str:
    source = beginning + body
    library = rust_text.make_public(rust_text.remove_items(source, words=("use",), empty_main=True))
    return rust_text.extract_imports(source, library) + library


_CONVERSIONS = {"ocaml": _convert_ocaml, "rust": _convert_rust, "program": convert_humaneval}
