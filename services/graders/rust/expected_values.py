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
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from gradus.tasks.rust import RustTask
from services.graders.rust.data_expressions import Value, read_data
from services.graders.rust.lexer import (
    DEFINING,
    Item,
    Kind,
    Token,
    code,
    compute_group_ends,
    find_closing_bracket,
    get_source_text,
    items,
    parse_inner_items,
)

TOLD = "gradus_told"
"""The macro that takes the place of an assertion."""
_UNCERTAIN = frozenset({"should_panic", "cfg_attr", "return", "const", "static"})
"""Words of tests that may end otherwise than at their end."""
_Edit = tuple[int, int, str]
"""Start and end in the text, and what goes there."""


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
    tokens = code(text, task.edition)
    own_names = _find_own_names(tokens) | set(declared)
    # A type of another crate may be equal to data in its own words. A signature says whether tests
    # have one.
    foreign = [name.replace("-", "_") for name in task.dependencies]
    may_compare = foreign and (
        not task.signature or any(name in text + task.signature for name in foreign)
    )
    if (
        may_compare
        or own_names & {"assert", "assert_eq", TOLD}
        or not unicodedata.is_normalized("NFC", text)
    ):
        return Split(text)
    if {"macro_rules", "return"} <= {token.text for token in tokens}:
        return Split(text)  # a macro may end a test early
    named = [token.text for token in tokens if token.kind is Kind.NAME]
    edits: list[_Edit] = []
    expected: list[tuple[str, str]] = []
    known_paths: set[str] = set()
    for path, item in _iter_tests(items(tokens), ""):
        if path not in known_paths and named.count(item.name) == 1:
            for edit, value in _Test(text, item, own_names).extract_values():
                edits += edit
                expected.append((path, value))
        known_paths.add(path)
    for start, end, new in sorted(edits, reverse=True):
        text = text[:start] + new + text[end:]
    return Split(text, tuple(expected))


def _find_own_names(tokens: Sequence[Token]) -> set[str]:
    """Return names that the tests define, or import from elsewhere than the standard library or
    under another name."""
    group_ends = compute_group_ends(tokens)
    names: set[str] = set()
    for at, token in enumerate(tokens):
        if token.text in DEFINING:
            names |= {other.text for other in tokens[at + 1 : at + 3]}
        if token.text in ("use", "enum"):
            ends = ";" if token.text == "use" else "{"
            end = next(
                (n for n in range(at, len(tokens)) if tokens[n].text == ends), len(tokens) - 1
            )
            words = {other.text for other in tokens[at : group_ends[end]]}
            if token.text == "enum" or "as" in words or not words & {"std", "core", "alloc"}:
                names |= words
    return names


def _iter_tests(module_items: Iterable[Item], path: str) -> Iterator[tuple[str, Item]]:
    """Yield the functions that are tests and run to their end or fail, and their names in the
    report."""
    for item in module_items:
        if item.word == "mod" and item.body[-1].text == "}":
            yield from _iter_tests(parse_inner_items(item), f"{path}{item.name}::")
        elif item.word == "fn":
            words = [token.text for token in item.body]
            head = words[: words.index("fn")]
            is_test = any(head[n : n + 4] == ["#", "[", "test", "]"] for n in range(len(head)))
            if is_test and _UNCERTAIN.isdisjoint(words):
                yield path + item.name, item


class _Test:
    """One test function, and what of it is taken out."""

    def __init__(self, text: str, item: Item, own_names: Collection[str]) -> None:
        self._text = text
        self._tokens = item.body
        self._group_ends = compute_group_ends(self._tokens)
        self._own_names = own_names
        self._values: dict[str, Value] = {}
        self._bound: dict[str, tuple[int, int]] = {}
        """Name -> the statement that binds it to data, as positions of tokens."""

    def extract_values(self) -> Iterator[tuple[list[_Edit], str]]:
        """Yield edits of the text, each with the canonical text of the value that they take out."""
        tokens = self._tokens
        group_ends = self._group_ends
        after_name = next(n for n, token in enumerate(tokens) if token.text == "fn") + 2
        opening = next(
            (n for n in range(after_name, len(tokens)) if tokens[n].text == "{"), len(tokens)
        )
        at = opening + 1
        starts = True
        while at < len(tokens) - 1:
            token = tokens[at]
            if token.text == "let":
                end = next(
                    (n for n in self._iter_positions(at) if tokens[n].text == ";"), len(tokens)
                )
                self._bind(at, end, named=starts)
                at = end
                continue
            if starts and token.text in ("assert", "assert_eq") and tokens[at + 1].text == "!":
                end = group_ends[at + 2]
                is_call = tokens[at + 2].text + tokens[end - 1].text in ("()", "[]", "{}")
                following = [token.text for token in tokens[end : end + 2]]
                if (
                    is_call
                    and (following == ["}"] or following[:1] == [";"])
                    and (taken := self._extract_assertion(at, end))
                ):
                    yield taken
            starts = tokens[group_ends[at] - 1].text in (";", "}")
            at = group_ends[at]

    def _iter_positions(self, at: int) -> Iterator[int]:
        while at < len(self._tokens):
            yield at
            at = self._group_ends[at]

    def _bind(self, start: int, end: int, *, named: bool) -> None:
        tokens = self._tokens
        equals = next((n for n in range(start, end) if tokens[n].text == "="), end)
        for token in tokens[start:equals]:
            self._values.pop(token.text, None)
            self._bound.pop(token.text, None)
        name, following = (tokens[min(start + n, len(tokens) - 1)].text for n in (1, 2))
        if (
            named
            and following in (":", "=")
            and (value := self._read_value(tokens[equals + 1 : end]))
        ):
            self._values[name] = value
            self._bound[name] = (start, end)

    def _read_value(self, part: Sequence[Token]) -> Value | None:
        return read_data(self._text, part, self._values, self._own_names)

    def _extract_assertion(self, at: int, end: int) -> tuple[list[_Edit], str] | None:
        """Return edits of the assertion at `at`, and the canonical text of what it expects; None if
        it keeps its data."""
        tokens = self._tokens
        parts = list(self._iter_arguments(at + 3, end - 1))
        opening = tokens[at + 2].start + 1
        renamed = (tokens[at].start, tokens[at].start + len(tokens[at].text), TOLD)
        if tokens[at].text == "assert_eq":
            if len(parts) > 1:
                return self._extract_comparison(parts[0], parts[1], [renamed], opening)
            return None
        if not parts:
            return None
        first, last = parts[0]
        equals = [n for n in self._iter_positions(first) if n < last - 1 and self._is_equality(n)]
        if len(equals) == 1:
            middle = tokens[equals[0]].start
            comma = (middle, middle + 2, ",")
            return self._extract_comparison(
                (first, equals[0]), (equals[0] + 2, last), [renamed, comma], opening, simple=True
            )
        negated = tokens[first].text == "!"
        if not self._is_simple(first + negated, last):
            return None
        data_end = tokens[last - 1].start + len(get_source_text(self._text, tokens[last - 1]))
        side_edit = (opening, tokens[first + negated].start, "left ")
        return [
            renamed,
            side_edit,
            (data_end, data_end, f", {str(not negated).lower()}"),
        ], f"b{int(not negated)}"

    def _extract_comparison(
        self,
        left_range: tuple[int, int],
        right_range: tuple[int, int],
        edits: list[_Edit],
        opening: int,
        *,
        simple: bool = False,
    ) -> tuple[list[_Edit], str] | None:
        """Return edits and text as for an assertion. `simple`: what is no data must be certain to
        be a side of `==`."""
        of_left, of_right = (
            self._read_value(self._tokens[first:last]) for first, last in (left_range, right_range)
        )
        if (of_left is None) == (of_right is None):
            return None
        value = of_right or of_left
        side = "right"
        observed = right_range
        data = left_range
        if of_right:
            side = "left"
            observed = left_range
            data = right_range
        moved = self._move_data(self._tokens[slice(*data)])
        if value is None or moved is None or simple and not self._is_simple(*observed):
            return None
        return [*edits, (opening, opening, f"{side} "), *moved], value.text

    def _is_equality(self, at: int) -> bool:
        before, first, second = self._tokens[at - 1 : at + 2]
        part_of_another = before.text in "!<>=" and before.start + 1 == first.start
        return (
            first.text == second.text == "="
            and second.start == first.start + 1
            and not part_of_another
        )

    def _is_simple(self, first: int, last: int) -> bool:
        """Return whether no operator that binds less than `==` is in there: none at all but
        arithmetic, and `&` in front."""
        tokens = [self._tokens[n] for n in self._iter_positions(first) if n < last]
        signs = [token.text for token in tokens if token.kind is Kind.SIGN]
        return (
            bool(tokens)
            and not set(signs) & set("<>=|!^;")
            and "&" not in [token.text for token in tokens[1:]]
        )

    def _move_data(self, data: Sequence[Token]) -> list[_Edit] | None:
        """Return edits that put data with a name where the name stands; None if that is all of
        `data` and has to stay."""
        edits: list[_Edit] = []
        for token in data:
            if token.text in self._bound:
                moved = self._move_binding(token)
                if not moved and len(data) == 1:
                    return None
                edits += moved
        return edits

    def _move_binding(self, token: Token) -> list[_Edit]:
        """No edits if anything else names it, or its statement does not fit in a line."""
        name = token.text
        start, end = self._bound[name]
        uses = sum(
            name == other.text or (other.kind is Kind.TEXT and f"{{{name}" in other.text)
            for other in self._tokens
        )
        first = self._tokens[start].start
        after = self._tokens[end].start + 1
        statement = self._text[first:after]
        if (
            uses != 2
            or re.search("//|/[*]", statement)
            or any("\n" in other.text for other in self._tokens[start:end])
        ):
            return []
        in_its_place = f"{{ {' '.join(statement.splitlines())} {name} }}"
        insertion = (
            token.start,
            token.start + len(get_source_text(self._text, token)),
            in_its_place,
        )
        return [(first, after, "\n" * statement.count("\n")), insertion]

    def _iter_arguments(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield first and last position of each part between commas."""
        tokens = self._tokens
        first = at = start
        while at < end:
            if tokens[at].text == "<" and tokens[at - 1].text == ":":
                at = find_closing_bracket(tokens, at) + 1
            elif tokens[at].text == ",":
                yield first, at
                first = at = at + 1
            else:
                at = self._group_ends[at]
        if first < end:
            yield first, end
