"""Expected values, taken out of the tests: where a test compares something with data, only the
referee knows the data.

`assert_eq!(f(1), Some(3))` becomes an assertion that tells the referee what `f(1)` is, as canonical
text; the referee compares that with the canonical text of `Some(3)`, which is made here. The data
itself is left where it is typed and never run, so that the compiler infers as before and makes no
code of it. Taken out is only what is certain to be compared once in its test: a statement of the
test itself, in a function that nothing else names.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterator, Sequence, Set
from dataclasses import dataclass

from tree_sitter import Node

from gradus.tasks.rust import RustTask
from services.graders.rust.data_expressions import DataReader
from services.graders.rust.lexer import DEFINING
from services.graders.rust.syntax import (
    Declaration,
    get_text,
    iter_declarations,
    iter_leaves,
    list_parts,
    parse,
)

TOLD = "gradus_told"
"""The macro that takes the place of an assertion."""
_UNCERTAIN = frozenset({"should_panic", "cfg_attr", "return", "const", "static"})
"""Words of tests that may end otherwise than at their end."""
_CONDITIONS = frozenset(
    {"call_expression", "identifier", "field_expression", "index_expression", "try_expression"}
)
"""Conditions of `assert!` whose value is sent as a whole; other conditions compare something
inside."""
_ASSERTION = re.compile(r"\b(assert(?:_eq)?)!(?=\s*\()")
_VECTOR = re.compile(r"(?<![:\w])vec!(?=\s*\[)")
_Edit = tuple[int, int, str]
"""Start and end in the text, in bytes, and what goes there."""


@dataclass(frozen=True, slots=True)
class Split:
    tests: str
    """The tests without what was taken out; every line is where it was."""
    expected: tuple[tuple[str, str], ...] = ()
    """Name of a test and canonical text, in the order of the comparisons."""


def split(task: RustTask, declared: Collection[str]) -> Split:
    """Return the tests of `task` without the data that is compared. `declared`: names that they
    have from the answer."""
    text = task.tests
    source = text.encode()
    # tree-sitter does not read what is in macros: assertions are read as calls, vectors as arrays
    root = parse(_VECTOR.sub("    ", _ASSERTION.sub(r"\1 ", text)))
    words = [get_text(leaf) for leaf in iter_leaves(root) if "string" not in leaf.type]
    own_names = _find_own_names(words) | set(declared)
    # A type of another crate may be equal to data in its own words. A signature says whether tests
    # have one.
    foreign = [name.replace("-", "_") for name in task.dependencies]
    may_compare = foreign and (
        not task.signature or any(name in text + task.signature for name in foreign)
    )
    if (
        may_compare
        or root.has_error
        or own_names & {"assert", "assert_eq", "vec", TOLD}
        or {"macro_rules!", "return"} <= set(words)  # a macro may end a test early
        or not unicodedata.is_normalized("NFC", text)
    ):
        return Split(text)
    counts = Counter(words)
    edits: list[_Edit] = []
    expected: list[tuple[str, str]] = []
    known_paths: set[str] = set()
    for path, item in _iter_tests(iter_declarations(root), ""):
        if path not in known_paths and counts[item.name] == 1:
            for edit, value in _extract_values(source, item.node, own_names):
                edits += edit
                expected.append((path, value))
        known_paths.add(path)
    for start, end, new in sorted(edits, reverse=True):
        source = source[:start] + new.encode() + source[end:]
    return Split(source.decode(), tuple(expected))


def _find_own_names(words: Sequence[str]) -> set[str]:
    """Return names that the tests define, or import from elsewhere than the standard library or
    under another name."""
    names: set[str] = set()
    for at, word in enumerate(words):
        if word.removesuffix("!") in DEFINING:
            names.update(words[at + 1 : at + 3])
        if word in ("use", "enum"):
            end = ";" if word == "use" else "}"
            part = set(words[at : words.index(end, at) if end in words[at:] else None])
            if word == "enum" or "as" in part or not part & {"std", "core", "alloc"}:
                names |= part
    return names


def _iter_tests(items: Iterator[Declaration], path: str) -> Iterator[tuple[str, Declaration]]:
    """Yield the functions that are tests and run to their end or fail, and their names in the
    report."""
    for item in items:
        if item.word == "mod":
            yield from _iter_tests(iter(item.list_members()), f"{path}{item.name}::")
        elif item.word == "fn" and "#[test]" in map(get_text, item.attributes):
            words: set[str] = set()
            for node in (*item.attributes, item.node):
                words.update(map(get_text, iter_leaves(node)))
            if words.isdisjoint(_UNCERTAIN):
                yield path + item.name, item


def _extract_values(
    source: bytes, function: Node, own_names: Set[str]
) -> Iterator[tuple[list[_Edit], str]]:
    """Yield edits of the text of a test, each with the canonical text of the value that they take
    out."""
    reader = DataReader(source, own_names)
    before = ""
    for statement in list_parts(function, "body"):
        is_certain = before != "attribute_item"
        before = statement.type
        if statement.type == "let_declaration":
            _bind(reader, statement, is_certain=is_certain)
            continue
        call = statement
        if statement.type == "expression_statement":
            call = statement.named_children[0]
        name = call.child_by_field_name("function")
        arguments = call.child_by_field_name("arguments")
        if not is_certain or name is None or arguments is None:
            continue
        parts = list_parts(arguments)
        is_macro = source[name.end_byte : name.end_byte + 1] == b"!"
        taken = None
        if is_macro and get_text(name) == "assert_eq" and len(parts) > 1:
            taken = _compare(reader, parts[0], parts[1])
        elif is_macro and get_text(name) == "assert" and parts:
            taken = _extract_condition(reader, parts[0])
        if taken:
            side, edits, text = taken
            opening = arguments.start_byte + 1
            renamed = (name.start_byte, name.end_byte, TOLD)
            yield [renamed, (opening, opening, side), *edits], text


def _bind(reader: DataReader, statement: Node, *, is_certain: bool) -> None:
    """Note what `let name = data;` binds; whatever else it binds is no data."""
    pattern = statement.child_by_field_name("pattern")
    value = statement.child_by_field_name("value")
    if pattern is None:
        return
    for leaf in iter_leaves(pattern):
        reader.bound.pop(get_text(leaf), None)
    kinds = {child.type for child in statement.children}
    if is_certain and pattern.type == "identifier" and "mutable_specifier" not in kinds:
        data = reader.read(value) if value else None
        if data:
            reader.bound[get_text(pattern)] = data


def _extract_condition(reader: DataReader, condition: Node) -> tuple[str, list[_Edit], str] | None:
    """Return the side that is told, edits of the condition of an assertion, and the canonical text
    of what it expects; None if it keeps its data."""
    operator = condition.child_by_field_name("operator")
    left = condition.child_by_field_name("left")
    right = condition.child_by_field_name("right")
    if operator and left and right:
        taken = _compare(reader, left, right)
        if taken is None or get_text(operator) != "==":
            return None
        side, _, text = taken
        return side, [(operator.start_byte, operator.end_byte, ",")], text
    is_negated = get_text(condition).startswith("!")
    value = condition.named_children[0] if is_negated else condition
    if value.type not in _CONDITIONS:
        return None
    sign = (condition.start_byte, condition.start_byte + is_negated, "")
    end = (value.end_byte, value.end_byte, f", {str(not is_negated).lower()}")
    return "left ", [sign, end], f"b{int(not is_negated)}"


def _compare(reader: DataReader, left: Node, right: Node) -> tuple[str, list[_Edit], str] | None:
    """Return side, edits and text as for a condition; None unless one side alone is data."""
    left_data = reader.read(left)
    right_data = reader.read(right)
    if (left_data is None) == (right_data is None):
        return None
    side = "left " if left_data is None else "right "
    return side, [], left_data or right_data or ""
