"""Tasks from benchmarks in the form of HumanEval: HumanEval-X and HumanEvalPack in Rust, MultiPL-E
in OCaml, and their like. Runs nothing.

A record is the beginning of a function, perhaps the rest of it, and tests. Rust's functions are
made public and its tests an integration test file; what is only imported and not used is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from corpus import rust_text
from corpus.drafts import (
    Unusable,
    drafts,
    group_of,
    id_of,
    optional_text,
    text_of,
)
from corpus.ocaml_text import last_beginning, with_tests_run
from gradus.contract import GraderName
from gradus.errors import Misuse
from gradus.row_reader import Row
from services.graders.rust.lexer import Kind, source_text, tokens

LANGUAGES = {"ml": "ocaml", "ocaml": "ocaml", "rs": "rust", "rust": "rust"}
PYTHON = frozenset({"python", "py", "humaneval", "mbpp"})
"""Languages of records in Python, and the beginnings of their ids."""
_NOT_IMPLEMENTED = "    todo!()\n}\n"
_TO_COMPLETE = (
    "Complete this Rust function. Answer with its whole definition, `pub` included, and use"
    " only `std`."
)
_Values = Mapping[str, Any]


def humaneval_drafts(rows: Iterable[Row], language: GraderName) -> Iterator[Row]:
    """Yield the row of a task for each record: `task_id` or `name`, `prompt`, perhaps
    `declaration`, `canonical_solution`, `test` or `tests`, perhaps `buggy_solution`."""

    def make(values: _Values) -> dict[str, Any]:
        said = _language(values)
        known = LANGUAGES.get(said or "")
        if known is not language and (known or values.get("language")):
            raise Unusable(f"language: is {said}, not {language}")
        group = group_of(str(_name(values)))
        task = _ocaml(values) if language == "ocaml" else _rust(values)
        return {**task, "group": group} if group else task

    return drafts(rows, lambda values: id_of(_name(values)), make)


def _name(values: _Values) -> Any:
    return values.get("task_id") or values.get("name")


def language_of(rows: Iterable[Row], chosen: str | None) -> GraderName:
    """Return the language asked for, or the one that all records say they have. Raises Misuse when
    that cannot be told."""
    said = {_language(row.values) for row in rows if row.problem is None}
    if chosen is not None:
        said = {chosen}
    if said and said <= PYTHON:
        raise Misuse(
            "the records are in Python, which no grader of Gradus runs. Import the same problems in"
            " OCaml or Rust (MultiPL-E, HumanEval-X), or write a grader (docs/write_a_grader.md)"
        )
    known = {LANGUAGES.get(one or "") for one in said}
    language = known.pop() if len(known) == 1 else None
    if language is None:
        raise Misuse(
            f"the records are in {', '.join(sorted(map(str, said))) or 'no language'}: choose one"
            f" of {', '.join(LANGUAGES)} by --language"
        )
    return language


def _language(values: _Values) -> str | None:
    """Return `rust` of a column `language`, or of the id `Rust/12`."""
    told = values.get("language") or str(values.get("task_id", "")).partition("/")[0]
    return told.lower() if isinstance(told, str) and told else None


def _ocaml(values: _Values) -> dict[str, Any]:
    prompt = (optional_text(values, "prompt") or "") + (optional_text(values, "declaration") or "")
    made = ocaml_task(
        prompt,
        text_of(values, "test", "tests"),
        optional_text(values, "canonical_solution", "solution"),
    )
    if buggy := optional_text(values, "buggy_solution"):
        made["stub"] = last_beginning(prompt).completed(buggy)
    return made


def to_complete(beginning: str) -> str:
    """The prompt that asks for the whole of an OCaml definition whose beginning is given."""
    asked = (
        "Complete this OCaml function. Answer with its whole definition and use the standard"
        " library only."
    )
    return f"{asked}\n\n```ocaml\n{beginning.strip()}\n```"


def ocaml_task(prompt: str, tests: str, solution: str | None) -> dict[str, Any]:
    """The fields of a task whose prompt ends in the beginning of a definition. Raises Unusable when
    it does not."""
    beginning = last_beginning(prompt)
    return {
        "prompt": to_complete(prompt),
        "tests": with_tests_run(tests),
        **({"signature": beginning.signature} if beginning.signature else {}),
        **({"solution": beginning.completed(solution)} if solution else {}),
        "stub": beginning.stub,
    }


# -------------------------------------------------------------------------------------------- Rust


def _rust(values: _Values) -> dict[str, Any]:
    prompt = optional_text(values, "prompt") or ""
    beginning = optional_text(values, "declaration") or prompt
    if not beginning:
        raise Unusable("prompt or declaration: is missing or empty")
    written = _library(beginning, text_of(values, "canonical_solution", "solution"))
    tests = rust_text.integration_tests(text_of(values, "test", "tests"))
    shown = rust_text.public(
        rust_text.without(beginning + _NOT_IMPLEMENTED, words=("use",), empty_main=True)
    )
    buggy = optional_text(values, "buggy_solution")
    uses = rust_text.imports(beginning, tests)
    comments = "".join(
        f"{source_text(prompt, one)}\n" for one in tokens(prompt) if one.kind is Kind.COMMENT
    )
    asked = comments + shown.removesuffix(_NOT_IMPLEMENTED)
    return {
        "prompt": f"{_TO_COMPLETE}\n\n```rust\n{asked.strip()}\n```",
        "tests": uses + tests,
        "solution": written,
        "stub": (
            _library(beginning, buggy) if buggy else rust_text.imports(beginning, shown) + shown
        ),
    }


def _library(beginning: str, rest: str) -> str:
    whole = beginning + rest
    own = rust_text.public(rust_text.without(whole, words=("use",), empty_main=True))
    return rust_text.imports(whole, own) + own
