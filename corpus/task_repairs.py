"""Repairs of task rows, of any grader and of OCaml: small changes that are certain not to change
what a task asks.

Each function takes a row's fields and returns the changed fields and one line for a person, or None
where it has nothing to do. Nothing of a row is dropped.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from difflib import get_close_matches
from typing import Any, NamedTuple

from corpus.drafts import Unusable
from corpus.ocaml_text import find_declared_types, find_type_definitions, parse_last_beginning
from corpus.task_rows import list_columns
from corpus.task_validation import DESCRIBING
from gradus.contract import GraderName

Values = Mapping[str, Any]


class Repair(NamedTuple):
    """The fields that replace a row's, and what was changed, in one line."""

    values: dict[str, Any]
    message: str


ALIASES = {
    "prompt": ("problem", "question", "instruction", "description", "text"),
    "tests": ("test", "test_code", "test_list", "unit_tests", "assertions"),
    "solution": ("canonical_solution", "answer", "reference", "reference_solution", "code"),
    "signature": ("interface",),
    "references": ("formatted_issues", "stories", "user_stories", "user_story", "story"),
    "sprint_goal": ("goal", "epic"),
    "id": ("task_id", "name"),
}
"""Columns that other data sets use, by ours."""
PACKAGES = {"Str": "str", "Unix": "unix"}
"""findlib packages of the compiler's own distribution, by the module that they bring."""
TOLERANCE = "1e-9"
SLOW_CPU_S = 20
SIMILAR = 0.6
"""Likeness, by `difflib`, from which a name in the tests may mean the solution's."""
OCAML_WORDS = frozenset({"let", "assert", "not", "in", "fun", "function", "match", "with", "open"})
_NO_CODE = re.compile(r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])\'|\(\*.*?\*\)', re.DOTALL)
"""Strings, characters and comments."""
_DEFINED = re.compile(r"^let\s+(?:rec\s+)?([a-z_][\w']*)", re.MULTILINE)
_FLOAT_EQUALITY = re.compile(
    r"assert\s*\((?P<left>[^=<>&|]+?)\s*=\s*(?P<right>-?\d+\.\d*(?:e-?\d+)?)\s*\)"
)


def rename_columns(values: Values, name: GraderName) -> Repair | None:
    """Rename columns of other data sets to ours."""
    fields = list_columns(name) & ALIASES.keys()
    if name == "story":
        fields -= {"solution"}  # `reference` and `text` of stories name a source
    renamed = dict(values)
    changes = []
    for column in sorted(fields):
        alias = _find_alias(renamed, column)
        if alias is not None and not renamed.get(column):
            renamed[column] = renamed.pop(alias)
            changes.append(f"{alias} -> {column}")
    return Repair(renamed, f"rename columns: {', '.join(changes)}") if changes else None


def keep_unknown_columns(values: Values, name: GraderName) -> Repair | None:
    """Move columns that no task has into `notes`, where nothing reads them."""
    columns = list_columns(name) | DESCRIBING
    unknown = {column: value for column, value in values.items() if column not in columns}
    if not unknown or "notes" in values:
        return None
    usable = {column: value for column, value in values.items() if column in columns}
    return Repair({**usable, "notes": unknown}, f"move to `notes`: {', '.join(sorted(unknown))}")


def add_id(values: Values, where: str) -> Repair | None:
    """Name a row without an id by its place in the file."""
    if values.get("id") not in (None, ""):
        if isinstance(values["id"], str):
            return None
        return Repair({**values, "id": str(values["id"])}, "write the id as text")
    number = re.search(r"(\d+)$", where)
    identifier = f"row-{number[1]}" if number else "row"
    return Repair({"id": identifier, **values}, f"add the id {identifier}")


def join_tests(values: Values) -> Repair | None:
    """Join a list of tests to one text."""
    tests = values.get("tests")
    if not isinstance(tests, list) or not all(isinstance(test, str) for test in tests):
        return None
    return Repair({**values, "tests": "\n".join(tests) + "\n"}, "join the list of tests")


def complete_solution(values: Values) -> Repair | None:
    """Put the beginning that the prompt ends in, and the types before it, into the solution."""
    solution = values.get("solution")
    prompt = str(values.get("prompt") or "")
    if not isinstance(solution, str) or not solution.strip():
        return None
    completed = solution
    with suppress(Unusable):  # a prompt in prose
        completed = parse_last_beginning(prompt).build_definition(solution)
    types = find_type_definitions(prompt, defined=completed)
    if types:
        completed = f"{types}\n{completed}"
    if completed.strip() == solution.strip():
        return None
    return Repair({**values, "solution": completed}, "complete the solution by the prompt's code")


def add_signature(values: Values) -> Repair | None:
    """Take the signature from the types that the prompt declares and the tests name."""
    if values.get("signature") or values.get("cases"):
        return None
    prompt = str(values.get("prompt") or "")
    tests = str(values.get("tests") or "")
    solution = str(values.get("solution") or "")
    types = find_declared_types(prompt)
    # the tests may define values that the prompt shows as well
    names = [name for name in types if _names(name, tests) and _may_ask_for(name, solution)]
    if not names:
        return None
    lines = [f"val {name} : {types[name]}" for name in names]
    signature = "\n".join([find_type_definitions(prompt), *lines]).strip() + "\n"
    return Repair({**values, "signature": signature}, f"add the signature of {', '.join(names)}")


def _names(name: str, code: str) -> bool:
    return re.search(rf"(?<![\w']){re.escape(name)}(?![\w'])", code) is not None


def _may_ask_for(name: str, solution: str) -> bool:
    """Return whether the solution defines the value; true where there is no solution."""
    definition = rf"\b(?:let|and)\s+(?:rec\s+)?{re.escape(name)}(?![\w'])"
    return not solution.strip() or re.search(definition, solution) is not None


def add_stub(values: Values) -> Repair | None:
    """Add a stub for functions of a signature, so that the tests are compiled without a
    solution."""
    signature = str(values.get("signature") or "")
    if values.get("stub") or values.get("solution"):
        return None
    functions = re.findall(r"^val ([a-z_][\w']*) : (.*->.*)$", signature, re.MULTILINE)
    if not functions or len(functions) != len(re.findall(r"^val ", signature, re.MULTILINE)):
        return None
    types = find_type_definitions(signature)
    bodies = [f'let {name} : {type_} = fun _ -> failwith "todo"' for name, type_ in functions]
    return Repair({**values, "stub": "\n".join([types, *bodies]).strip() + "\n"}, "add a stub")


def add_packages(values: Values) -> Repair | None:
    """Declare the packages whose modules solution or tests open or name."""
    code = f"{values.get('solution') or ''}\n{values.get('tests') or ''}"
    present = list(values.get("packages") or ())
    used = []
    for module, package in PACKAGES.items():
        if re.search(rf"\b{module}\.|\bopen!? {module}\b", code) and package not in present:
            used.append(package)
    if not used:
        return None
    return Repair({**values, "packages": [*present, *used]}, f"add packages: {', '.join(used)}")


def run_assertions(values: Values) -> Repair | None:
    """Run assertions that MultiPL-E only gives a name."""
    tests = str(values.get("tests") or "")
    changed = re.sub(r"^([ \t]*)let\s+assertions\s*=", r"\1let () =", tests, flags=re.MULTILINE)
    if changed == tests:
        return None
    return Repair({**values, "tests": changed}, "run `let assertions = ...` as tests")


def add_tolerance(values: Values) -> Repair | None:
    """Compare floats with a tolerance where a test compares them by `=`."""
    tests = str(values.get("tests") or "")
    changed = _FLOAT_EQUALITY.sub(
        rf"assert (Float.abs ((\g<left>) -. (\g<right>)) < {TOLERANCE})", tests
    )
    if changed == tests:
        return None
    return Repair({**values, "tests": changed}, f"compare floats within {TOLERANCE}")


def close_brackets(values: Values) -> Repair | None:
    """Close brackets at the end of a test that leaves them open."""
    tests = str(values.get("tests") or "")
    changed = []
    closed = []
    line = 1
    for item in re.split(r"(?m)^(?=let\b)", tests):
        plain = _NO_CODE.sub("", item)
        missing = plain.count("(") - plain.count(")")
        if missing > 0:
            text = item.rstrip().removesuffix(";;").rstrip()
            changed.append(f"{text}{')' * missing}{item[len(text) :]}")
            closed.append(str(line))
        else:
            changed.append(item)
        line += item.count("\n")
    if not closed:
        return None
    message = f"close brackets of the test at line {', '.join(closed)}"
    return Repair({**values, "tests": "".join(changed)}, message)


def rename_tested_value(values: Values) -> Repair | None:
    """Give the one value of the solution, which the tests do not name, its name in the tests where
    they name one like it."""
    solution = str(values.get("solution") or "")
    tests = str(values.get("tests") or "")
    defined = set(_DEFINED.findall(solution))
    if len(defined) != 1:
        return None
    [name] = defined
    tested = set(re.findall(r"(?<![\w'.])[a-z_][\w']*", _NO_CODE.sub("", tests)))
    similar = get_close_matches(name, sorted(tested - OCAML_WORDS), n=1, cutoff=SIMILAR)
    if name in tested or not similar:
        return None
    changed = re.sub(rf"(?<![\w'.]){re.escape(similar[0])}(?![\w'])", name, tests)
    message = f"call `{name}` in the tests, which name `{similar[0]}`"
    return Repair({**values, "tests": changed}, message)


def raise_cpu_limit(values: Values) -> Repair | None:
    """Give the run of a slow solution more CPU time."""
    if values.get("limits") or values.get("cpu_s"):
        return None
    message = f"give the run {SLOW_CPU_S} s of CPU time"
    return Repair({**values, "limits": {"cpu_s": SLOW_CPU_S}}, message)


OCAML_REPAIRS: tuple[Callable[[Values], Repair | None], ...] = (
    join_tests,
    run_assertions,
    complete_solution,
    add_packages,
    add_signature,
    add_stub,
)
"""In this order: later ones read what earlier ones wrote."""


def _find_alias(values: Values, column: str) -> str | None:
    return next((alias for alias in ALIASES[column] if values.get(alias)), None)
