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
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from tree_sitter import Node

from gradus.tasks.rust import RustTask
from services.graders.rust.data_expressions import Value, read_data
from services.graders.rust.lexer import DEFINING
from services.graders.rust.syntax import (
    Declaration,
    get_text,
    iter_declarations,
    iter_leaves,
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
    # tree-sitter does not read what is in macros: an assertion is read as a call
    root = parse(_ASSERTION.sub(r"\1 ", text))
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
        or own_names & {"assert", "assert_eq", TOLD}
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
            for edit, value in _Test(source, item.node, own_names).extract_values():
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


class _Test:
    """One test function, and what of it is taken out."""

    def __init__(self, source: bytes, function: Node, own_names: Collection[str]) -> None:
        self._source = source
        self._function = function
        self._own_names = own_names
        self._values: dict[str, Value] = {}
        self._bound: dict[str, Node] = {}
        """Name -> the statement that binds it to data."""

    def extract_values(self) -> Iterator[tuple[list[_Edit], str]]:
        """Yield edits of the text, each with the canonical text of the value that they take out."""
        body = self._function.child_by_field_name("body")
        statements = body.named_children if body else []
        for at, statement in enumerate(statements):
            is_plain = at == 0 or statements[at - 1].type != "attribute_item"
            if statement.type == "let_declaration":
                self._bind(statement, is_plain=is_plain)
                continue
            call = statement
            if statement.type == "expression_statement":
                call = statement.named_children[0]
            taken = self._extract_assertion(call) if is_plain else None
            if taken:
                yield taken

    def _bind(self, statement: Node, *, is_plain: bool) -> None:
        pattern = statement.child_by_field_name("pattern")
        value = statement.child_by_field_name("value")
        for leaf in iter_leaves(pattern) if pattern else ():
            self._values.pop(get_text(leaf), None)
            self._bound.pop(get_text(leaf), None)
        is_name = pattern is not None and pattern.type == "identifier"
        is_mutable = any(child.type == "mutable_specifier" for child in statement.children)
        has_else = statement.child_by_field_name("alternative") is not None
        is_certain = is_name and is_plain and not is_mutable and not has_else
        data = self._read_value(value) if value and is_certain else None
        if data:
            self._values[get_text(pattern)] = data
            self._bound[get_text(pattern)] = statement

    def _read_value(self, node: Node) -> Value | None:
        text = self._source[node.start_byte : node.end_byte].decode()
        return read_data(text, self._values, self._own_names)

    def _extract_assertion(self, call: Node) -> tuple[list[_Edit], str] | None:
        """Return edits of the assertion, and the canonical text of what it expects; None if it
        keeps its data, or is none."""
        name = call.child_by_field_name("function")
        arguments = call.child_by_field_name("arguments")
        if name is None or arguments is None:
            return None
        parts = [part for part in arguments.named_children if "comment" not in part.type]
        opening = arguments.start_byte + 1
        renamed = (name.start_byte, name.end_byte, TOLD)
        if not self._is_macro(name) or not parts:
            return None
        first = parts[0]
        if get_text(name) == "assert_eq":
            if len(parts) == 1:
                return None
            return self._extract_comparison(first, parts[1], [renamed], opening)
        operator = first.child_by_field_name("operator")
        left, right = first.child_by_field_name("left"), first.child_by_field_name("right")
        if operator and left and right:
            comma = (operator.start_byte, operator.end_byte, ",")
            is_equality = get_text(operator) == "=="
            edits = [renamed, comma]
            return self._extract_comparison(left, right, edits, opening) if is_equality else None
        is_negated = get_text(first).startswith("!")
        condition = first.named_children[0] if is_negated else first
        if condition.type not in _CONDITIONS:
            return None
        start = (opening, condition.start_byte, "left ")
        end = (condition.end_byte, condition.end_byte, f", {str(not is_negated).lower()}")
        return [renamed, start, end], f"b{int(not is_negated)}"

    def _is_macro(self, name: Node) -> bool:
        is_assertion = get_text(name) in ("assert", "assert_eq")
        return is_assertion and self._source[name.end_byte : name.end_byte + 1] == b"!"

    def _extract_comparison(
        self, left: Node, right: Node, edits: list[_Edit], opening: int
    ) -> tuple[list[_Edit], str] | None:
        """Return edits and text as for an assertion."""
        of_left, of_right = self._read_value(left), self._read_value(right)
        if (of_left is None) == (of_right is None):
            return None
        value = of_right or of_left
        moved = self._move_data(right if of_right else left)
        if value is None or moved is None:
            return None
        side = "left " if of_right else "right "
        return [*edits, (opening, opening, side), *moved], value.text

    def _move_data(self, data: Node) -> list[_Edit] | None:
        """Return edits that put data with a name where the name stands; None if that is all of
        `data` and has to stay."""
        edits: list[_Edit] = []
        for leaf in iter_leaves(data):
            if get_text(leaf) in self._bound:
                moved = self._move_binding(leaf)
                if not moved and leaf == data:
                    return None
                edits += moved
        return edits

    def _move_binding(self, use: Node) -> list[_Edit]:
        """No edits if anything else names it, or its statement does not fit in a line."""
        name = get_text(use)
        statement = self._bound[name]
        uses = 0
        for leaf in iter_leaves(self._function):
            uses += get_text(leaf) == name or (
                "string" in leaf.type and f"{{{name}" in get_text(leaf)
            )
        text = self._source[statement.start_byte : statement.end_byte].decode()
        has_long_words = any(b"\n" in (leaf.text or b"") for leaf in iter_leaves(statement))
        if uses != 2 or has_long_words or re.search("//|/[*]", text):
            return []
        in_its_place = f"{{ {' '.join(text.splitlines())} {name} }}"
        lines = "\n" * text.count("\n")
        return [
            (statement.start_byte, statement.end_byte, lines),
            (use.start_byte, use.end_byte, in_its_place),
        ]
