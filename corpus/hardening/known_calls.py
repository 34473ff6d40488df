"""Calls in the tests of OCaml and Rust whose arguments are literals, as JSON values: what new calls
must have in common with them. What cannot be read is passed over."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from corpus.hardening.invariants import Invariants

_TOKEN = re.compile(
    r"\s*(\d[\d_]*(?:\.\d*)?|\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)'|vec!|\.to_string\(\)"
    r"|\[\||\|\]|[A-Za-z]+|[\[\](),;&-])"
)
_CLOSING = {"[": "]", "[|": "|]", "(": ")"}
_CONSTRUCTORS = frozenset({"Some", "Ok", "Err", "Error"})
_WORDS = {"true": True, "false": False, "None": ["None"]}
MIN_CALLS = 3
"""Fewer known calls share too much by chance, and new ones are held to nothing."""


class _NoLiteral(Exception):
    """A text that is no literal at this place."""


class _Reader:
    """Literals of a text from an offset on."""

    def __init__(self, text: str, at: int) -> None:
        self._text = text
        self._at = at

    def peek(self) -> str:
        match = _TOKEN.match(self._text, self._at)
        return match[1] if match else ""

    def take(self) -> str:
        match = _TOKEN.match(self._text, self._at)
        if match is None:
            raise _NoLiteral
        self._at = match.end()
        return match[1]

    def read(self) -> Any:
        """Return the next literal as a JSON value: constructors and tuples as lists."""
        token = self.take()
        if token in ("&", "vec!"):
            return self.read()
        if token == "-":
            return -_require_number(self.read())
        if token in _CLOSING:
            items = self.read_items(_CLOSING[token])
            return items[0] if token == "(" and len(items) == 1 else items
        if token in _WORDS:
            return _WORDS[token]
        if token in _CONSTRUCTORS:
            return [token, self.read()]
        if token[0] in "\"'":
            if self.peek() == ".to_string()":
                self.take()
            return token[1:-1]
        if token[0].isdigit():
            return float(token) if "." in token else int(token)
        raise _NoLiteral

    def read_items(self, closing: str) -> list[Any]:
        items = []
        while self.peek() != closing:
            items.append(self.read())
            if self.peek() in (",", ";"):
                self.take()
        self.take()
        return items


def _require_number(value: Any) -> int | float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _NoLiteral
    return value


def read_curried(text: str, name: str, number: int) -> list[list[Any]]:
    """Return the arguments of the calls `name a b` of so many arguments, in OCaml."""
    return _read_calls(
        text, rf"\b{name}(?![\w'])", lambda reader: [reader.read() for _ in range(number)]
    )


def read_parenthesised(text: str, name: str, number: int) -> list[list[Any]]:
    """Return the arguments of the calls `name(a, b)` of so many arguments, in Rust."""
    calls = _read_calls(text, rf"\b{name}(?=\()", _read_parenthesis)
    return [arguments for arguments in calls if len(arguments) == number]


def _read_parenthesis(reader: _Reader) -> list[Any]:
    reader.take()
    return reader.read_items(")")


def _read_calls(text: str, pattern: str, read: Callable[[_Reader], list[Any]]) -> list[list[Any]]:
    calls = []
    for match in re.finditer(pattern, text):
        try:
            calls.append(read(_Reader(text, match.end())))
        except (_NoLiteral, RecursionError, ValueError):
            continue
    return calls


ReadCalls = Callable[[str, str, int], list[list[Any]]]


def build_filter(
    tests: str, name: str, number: int, read_calls: ReadCalls
) -> Callable[[str], bool]:
    """Return whether a new call has every fact that the calls of one function in the tests share.
    Ranges are not among them: literals are drawn near those of the tests."""
    examples = read_calls(tests, name, number)
    if len(examples) < MIN_CALLS:
        return lambda call: True
    invariants = Invariants(examples)

    def admit(call: str) -> bool:
        arguments = read_calls(call, name, number)
        return all(map(invariants.has_facts, arguments))

    return admit
