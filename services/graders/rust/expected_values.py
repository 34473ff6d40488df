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
    closing_bracket,
    code,
    ends_of_groups,
    inner_items,
    items,
    source_text,
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
    """The tests of `task` without the data that is compared. `declared`: names that they have from
    the answer."""
    text = task.tests
    found = code(text, task.edition)
    own = _own_names(found) | set(declared)
    # A type of another crate may be equal to data in its own words. A signature says whether tests
    # have one.
    foreign = [name.replace("-", "_") for name in task.dependencies]
    may_compare = foreign and (
        not task.signature or any(name in text + task.signature for name in foreign)
    )
    if (
        may_compare
        or own & {"assert", "assert_eq", TOLD}
        or not unicodedata.is_normalized("NFC", text)
    ):
        return Split(text)
    if {"macro_rules", "return"} <= {token.text for token in found}:
        return Split(text)  # a macro may end a test early
    named = [token.text for token in found if token.kind is Kind.NAME]
    edits: list[_Edit] = []
    expected: list[tuple[str, str]] = []
    seen: set[str] = set()
    for path, item in _tests(items(found), ""):
        if path not in seen and named.count(item.name) == 1:
            for edit, value in _Test(text, item, own).taken_out():
                edits += edit
                expected.append((path, value))
        seen.add(path)
    for start, end, new in sorted(edits, reverse=True):
        text = text[:start] + new + text[end:]
    return Split(text, tuple(expected))


def _own_names(found: Sequence[Token]) -> set[str]:
    """Names that the tests define, or import from elsewhere than the standard library or under
    another name."""
    behind = ends_of_groups(found)
    names: set[str] = set()
    for at, token in enumerate(found):
        if token.text in DEFINING:
            names |= {one.text for one in found[at + 1 : at + 3]}
        if token.text in ("use", "enum"):
            ends = ";" if token.text == "use" else "{"
            end = next((n for n in range(at, len(found)) if found[n].text == ends), len(found) - 1)
            words = {one.text for one in found[at : behind[end]]}
            if token.text == "enum" or "as" in words or not words & {"std", "core", "alloc"}:
                names |= words
    return names


def _tests(found: Iterable[Item], path: str) -> Iterator[tuple[str, Item]]:
    """The functions that are tests and run to their end or fail, and their names in the report."""
    for item in found:
        if item.word == "mod" and item.body[-1].text == "}":
            yield from _tests(inner_items(item), f"{path}{item.name}::")
        elif item.word == "fn":
            words = [token.text for token in item.body]
            head = words[: words.index("fn")]
            is_test = any(head[n : n + 4] == ["#", "[", "test", "]"] for n in range(len(head)))
            if is_test and _UNCERTAIN.isdisjoint(words):
                yield path + item.name, item


class _Test:
    """One test function, and what of it is taken out."""

    def __init__(self, text: str, item: Item, own: Collection[str]) -> None:
        self._text = text
        self._found = item.body
        self._behind = ends_of_groups(self._found)
        self._own = own
        self._values: dict[str, Value] = {}
        self._bound: dict[str, tuple[int, int]] = {}
        """Name -> the statement that binds it to data, as positions of tokens."""

    def taken_out(self) -> Iterator[tuple[list[_Edit], str]]:
        """Edits of the text, each with the canonical text of the value that they take out."""
        found = self._found
        behind = self._behind
        after_name = next(n for n, token in enumerate(found) if token.text == "fn") + 2
        opening = next(
            (n for n in range(after_name, len(found)) if found[n].text == "{"), len(found)
        )
        at = opening + 1
        starts = True
        while at < len(found) - 1:
            token = found[at]
            if token.text == "let":
                end = next((n for n in self._positions(at) if found[n].text == ";"), len(found))
                self._bind(at, end, named=starts)
                at = end
                continue
            if starts and token.text in ("assert", "assert_eq") and found[at + 1].text == "!":
                end = behind[at + 2]
                whole = found[at + 2].text + found[end - 1].text in ("()", "[]", "{}")
                following = [token.text for token in found[end : end + 2]]
                if (
                    whole
                    and (following == ["}"] or following[:1] == [";"])
                    and (taken := self._assertion(at, end))
                ):
                    yield taken
            starts = found[behind[at] - 1].text in (";", "}")
            at = behind[at]

    def _positions(self, at: int) -> Iterator[int]:
        while at < len(self._found):
            yield at
            at = self._behind[at]

    def _bind(self, start: int, end: int, *, named: bool) -> None:
        found = self._found
        equals = next((n for n in range(start, end) if found[n].text == "="), end)
        for token in found[start:equals]:
            self._values.pop(token.text, None)
            self._bound.pop(token.text, None)
        name, following = (found[min(start + n, len(found) - 1)].text for n in (1, 2))
        if named and following in (":", "=") and (value := self._value(found[equals + 1 : end])):
            self._values[name] = value
            self._bound[name] = (start, end)

    def _value(self, part: Sequence[Token]) -> Value | None:
        return read_data(self._text, part, self._values, self._own)

    def _assertion(self, at: int, end: int) -> tuple[list[_Edit], str] | None:
        """Edits of the assertion at `at`, and the canonical text of what it expects; None if it
        keeps its data."""
        found = self._found
        parts = list(self._arguments(at + 3, end - 1))
        opening = found[at + 2].start + 1
        renamed = (found[at].start, found[at].start + len(found[at].text), TOLD)
        if found[at].text == "assert_eq":
            return (
                self._comparison(parts[0], parts[1], [renamed], opening) if len(parts) > 1 else None
            )
        if not parts:
            return None
        first, last = parts[0]
        equals = [n for n in self._positions(first) if n < last - 1 and self._is_equality(n)]
        if len(equals) == 1:
            middle = found[equals[0]].start
            comma = (middle, middle + 2, ",")
            return self._comparison(
                (first, equals[0]), (equals[0] + 2, last), [renamed, comma], opening, simple=True
            )
        negated = found[first].text == "!"
        if not self._is_simple(first + negated, last):
            return None
        behind = found[last - 1].start + len(source_text(self._text, found[last - 1]))
        told = (opening, found[first + negated].start, "left ")
        return [
            renamed,
            told,
            (behind, behind, f", {str(not negated).lower()}"),
        ], f"b{int(not negated)}"

    def _comparison(
        self,
        left: tuple[int, int],
        right: tuple[int, int],
        edits: list[_Edit],
        opening: int,
        *,
        simple: bool = False,
    ) -> tuple[list[_Edit], str] | None:
        """Edits and text as for an assertion. `simple`: what is no data must be certain to be a
        side of `==`."""
        of_left, of_right = (self._value(self._found[first:last]) for first, last in (left, right))
        if (of_left is None) == (of_right is None):
            return None
        side, told, data, value = (
            ("left", left, right, of_right) if of_right else ("right", right, left, of_left)
        )
        moved = self._moved(self._found[slice(*data)])
        if value is None or moved is None or simple and not self._is_simple(*told):
            return None
        return [*edits, (opening, opening, f"{side} "), *moved], value.text

    def _is_equality(self, at: int) -> bool:
        before, one, two = self._found[at - 1 : at + 2]
        part_of_another = before.text in "!<>=" and before.start + 1 == one.start
        return one.text == two.text == "=" and two.start == one.start + 1 and not part_of_another

    def _is_simple(self, first: int, last: int) -> bool:
        """No operator that binds less than `==` is in there: none at all but arithmetic, and `&` in
        front."""
        tokens = [self._found[n] for n in self._positions(first) if n < last]
        signs = [token.text for token in tokens if token.kind is Kind.SIGN]
        return (
            bool(tokens)
            and not set(signs) & set("<>=|!^;")
            and "&" not in [token.text for token in tokens[1:]]
        )

    def _moved(self, data: Sequence[Token]) -> list[_Edit] | None:
        """Edits that put data with a name where the name stands; None if that is all of `data` and
        has to stay."""
        edits: list[_Edit] = []
        for token in data:
            if token.text in self._bound:
                moved = self._moved_name(token)
                if not moved and len(data) == 1:
                    return None
                edits += moved
        return edits

    def _moved_name(self, token: Token) -> list[_Edit]:
        """No edits if anything else names it, or its statement does not fit in a line."""
        name = token.text
        start, end = self._bound[name]
        uses = sum(
            name == one.text or (one.kind is Kind.TEXT and f"{{{name}" in one.text)
            for one in self._found
        )
        first = self._found[start].start
        behind = self._found[end].start + 1
        statement = self._text[first:behind]
        if (
            uses != 2
            or re.search("//|/[*]", statement)
            or any("\n" in one.text for one in self._found[start:end])
        ):
            return []
        in_its_place = f"{{ {' '.join(statement.splitlines())} {name} }}"
        here = (token.start, token.start + len(source_text(self._text, token)), in_its_place)
        return [(first, behind, "\n" * statement.count("\n")), here]

    def _arguments(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """First and last position of each part between commas."""
        found = self._found
        first = at = start
        while at < end:
            if found[at].text == "<" and found[at - 1].text == ":":
                at = closing_bracket(found, at) + 1
            elif found[at].text == ",":
                yield first, at
                first = at = at + 1
            else:
                at = self._behind[at]
        if first < end:
            yield first, end
