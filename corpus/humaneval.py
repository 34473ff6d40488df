"""Tasks from benchmarks in the form of HumanEval: MultiPL-E, HumanEval-X, HumanEvalPack and their
like. Runs nothing.

A record is the beginning of a function, perhaps the rest of it, and tests. Rust's functions are
made public and its tests an integration test file; what is only imported and not used is left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

from corpus import rust_text
from corpus.drafts import (
    Draft,
    Unusable,
    group_of,
    id_of,
    optional_text,
    passthrough_columns,
    text_of,
)
from corpus.ocaml_text import last_beginning, with_tests_run
from gradus.contract import GraderName
from gradus.errors import Misuse
from gradus.row_reader import Row
from services.graders.rust.lexer import Kind, source_text, tokens

LANGUAGES = {"ml": "ocaml", "ocaml": "ocaml", "rs": "rust", "rust": "rust"}
PYTHON = ("python", "py", "humaneval", "mbpp")
"""Languages of records in Python, and the beginnings of their ids."""
_NOT_IMPLEMENTED = "    todo!()\n}\n"
_Values = Mapping[str, Any]


def multipl_e_drafts(rows: Iterable[Row], language: GraderName) -> Iterator[Draft]:
    """Records with `name`, `language`, `prompt` and `tests`; there are no reference answers among
    them."""
    makers = {
        "ocaml": lambda row: ocaml_task(text_of(row, "prompt"), text_of(row, "tests"), None),
        "rust": _rust_of_multipl_e,
    }
    for row in rows:
        yield _draft(row, language, "name", makers[language])


def humaneval_drafts(rows: Iterable[Row], language: GraderName) -> Iterator[Draft]:
    """Records with `task_id`, `prompt`, perhaps `declaration`, `canonical_solution`, `test`,
    perhaps `entry_point`."""
    makers = {"ocaml": _ocaml, "rust": _rust}
    for row in rows:
        yield _draft(row, language, "task_id", makers[language])


def language_of(rows: Iterable[Row], chosen: str | None) -> GraderName:
    """The language asked for, or the one that all records say they have. Raises Misuse when that
    cannot be told."""
    if chosen is not None:
        _refuse_python({chosen})
        if chosen not in LANGUAGES:
            raise Misuse(f"--language {chosen}: use one of {', '.join(LANGUAGES)}")
        return LANGUAGES[chosen]
    said = {_said(row.values) for row in rows if row.problem is None}
    _refuse_python(said)
    known = {LANGUAGES[one] for one in said if one in LANGUAGES}
    if len(known) != 1 or len(said) != len({one for one in said if one in LANGUAGES}):
        raise Misuse(
            f"the records are in {', '.join(sorted(map(str, said))) or 'no language'}: choose one"
            " by --language"
        )
    return known.pop()


def _refuse_python(said: Collection[str | None]) -> None:
    if said and all(one in PYTHON for one in said):
        raise Misuse(
            "the records are in Python, which no grader of Gradus runs. Import the same problems in"
            " OCaml or Rust (MultiPL-E, HumanEval-X), or write a grader (docs/write_a_grader.md)"
        )


def _said(values: _Values) -> str | None:
    """`rust` of a column `language`, or of the id `Rust/12`."""
    told = values.get("language") or str(values.get("task_id", "")).partition("/")[0]
    return told.lower() if isinstance(told, str) and told else None


def _draft(
    row: Row, language: GraderName, named: str, make: Callable[[_Values], dict[str, Any]]
) -> Draft:
    try:
        if row.problem is not None:
            raise Unusable(row.problem)
        name = id_of(row.values.get(named))
    except Unusable as problem:
        return Draft(row.where, "", problem=str(problem))
    try:
        said = _said(row.values)
        if (
            said is not None
            and LANGUAGES.get(said, language if "language" not in row.values else None)
            is not language
        ):
            raise Unusable(f"language: is {said}, not {language}")
        numbered = re.fullmatch(r"\w+/(\d+)", str(row.values[named]))
        group = group_of(name) or (f"humaneval/{int(numbered[1])}" if numbered else None)
        extra = {"group": group} if group else {}
        return Draft(
            row.where,
            name,
            {"id": name, **make(row.values), **passthrough_columns(row.values), **extra},
        )
    except Unusable as problem:
        return Draft(row.where, name, problem=str(problem))


# ------------------------------------------------------------------------------------------- OCaml


def _ocaml(values: _Values) -> dict[str, Any]:
    prompt = (optional_text(values, "prompt") or "") + (optional_text(values, "declaration") or "")
    made = ocaml_task(
        prompt, text_of(values, "test", "tests"), text_of(values, "canonical_solution", "solution")
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


def _rust_of_multipl_e(values: _Values) -> dict[str, Any]:
    prompt, tests = text_of(values, "prompt"), text_of(values, "tests")
    stub = rust_text.public(prompt.rstrip() + "\n" + _NOT_IMPLEMENTED)
    declared = rust_text.signature(stub, tests)
    if declared is None:
        raise Unusable("tests: name no function that the prompt begins")
    uses = rust_text.imports(prompt, tests + declared)
    return {
        "prompt": _asked(stub.removesuffix(_NOT_IMPLEMENTED)),
        "tests": rust_text.assertions_of_main(tests, uses),
        "signature": declared,
        "stub": stub,
    }


def _rust(values: _Values) -> dict[str, Any]:
    prompt = optional_text(values, "prompt") or ""
    beginning = optional_text(values, "declaration") or prompt
    if not beginning:
        raise Unusable("prompt or declaration: is missing or empty")
    written = _library(beginning, text_of(values, "canonical_solution", "solution"))
    tests = rust_text.integration_tests(text_of(values, "test", "tests"))
    declared = rust_text.signature(written, tests)
    if declared is None:
        raise Unusable("tests: name no function of the reference answer")
    shown = rust_text.public(
        rust_text.without(beginning + _NOT_IMPLEMENTED, words=("use",), empty_main=True)
    )
    buggy = optional_text(values, "buggy_solution")
    uses = rust_text.imports(beginning, tests + declared)
    comments = "".join(
        f"{source_text(prompt, one)}\n" for one in tokens(prompt) if one.kind is Kind.COMMENT
    )
    return {
        "prompt": _asked(comments + shown.removesuffix(_NOT_IMPLEMENTED)),
        "tests": uses + tests,
        "signature": declared,
        "solution": written,
        "stub": (
            _library(beginning, buggy) if buggy else rust_text.imports(beginning, shown) + shown
        ),
    }


def _library(beginning: str, rest: str) -> str:
    whole = beginning + rest
    own = rust_text.public(rust_text.without(whole, words=("use",), empty_main=True))
    return rust_text.imports(whole, own) + own


def _asked(beginning: str) -> str:
    asked = (
        "Complete this Rust function. Answer with its whole definition, `pub` included, and use"
        " only `std`."
    )
    return f"{asked}\n\n```rust\n{beginning.strip()}\n```"
