"""A JSON text read value by value, each as its text.

So that each is made into what is kept of it before the next is an object.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

from gradus.errors import TooLarge
from gradus.json_tokens import MAX_STRING_BYTES, mask_escapes

LEVELS = 4
"""Levels of brackets that one search passes; deeper ones take a step each."""
_SPACE = re.compile(rb"[ \t\r\n]*+")
_STRING = rb'"[^"]*+"'  # its escapes are masked


def _build_patterns() -> tuple[bytes, bytes]:
    """Return the patterns of an item between commas, and of all up to a bracket's end. What they
    pass need not be JSON, and brackets may be of different kinds."""
    nested = _STRING
    for _ in range(LEVELS):
        inside = rb'(?:[^"\[\]{}]++|%b|%b)*+' % (_STRING, nested)
        nested = rb"[\[{]%b[\]}]" % inside
    return rb'(?:[^"\[\]{},]++|%b|%b)*+' % (_STRING, nested), inside


_ITEM, _INSIDE = _build_patterns()
_TO_BRACKET = re.compile(_INSIDE)


@cache
def _compile_items(n_items: int) -> re.Pattern[bytes]:
    return re.compile(rb"%b(?:,%b){0,%d}+" % (_ITEM, _ITEM, n_items - 1))


class JsonCursor:
    """A place in a JSON text. Texts that it returns may be no JSON: their parser refuses them.

    Raises ValueError where the text around them is no JSON.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._mask = data
        if b"\\" in data:
            self._mask = b"".join(mask_escapes(data))
        self.position = 0

    def peek(self) -> bytes:
        """Return the next byte that is no white space; none at the end."""
        self._pass(_SPACE)
        return self._get_byte()

    def iter_members(self) -> Iterator[bytes]:
        """Yield the text of the name of each member of an object, with the cursor at its value,
        which must be read before the next."""
        following = self._open(b"{", b"}")
        while following == b",":
            self.peek()
            start = self.position
            self._pass_string()
            name = self.cut(start)
            self._take(b":")
            yield name
            following = self._take(b",}")

    def iter_items(self, n_items: int = 1) -> Iterator[bytes]:
        """Yield the texts of the items of a list, `n_items` at a time with commas between."""
        following = self._open(b"[", b"]")
        while following == b",":
            yield self.read_value(n_items)
            following = self._take(b",]")

    def read_value(self, n_items: int = 1) -> bytes:
        """Return the text of the value here, or of up to `n_items` with commas between."""
        start = self.position
        pattern = _compile_items(n_items)
        depth = 0
        while True:
            self._pass(pattern)
            byte = self._get_byte()
            if byte == b'"':
                self._pass_string()
            elif byte in (b"[", b"{"):
                depth += 1
                self.position += 1
            elif depth and byte in (b"]", b"}"):
                depth -= 1
                self.position += 1
            elif not depth and byte in (b",", b"]", b"}", b""):
                return self.cut(start)
            elif not byte:
                raise ValueError("it ends inside a list or an object")
            pattern = _TO_BRACKET if depth else _compile_items(1)

    def cut(self, start: int) -> bytes:
        """Return the text from a position that was passed to the one here."""
        return self._data[start : self.position]

    def _open(self, opening: bytes, closing: bytes) -> bytes:
        """Pass an opening bracket. Returns a comma, or the closing bracket where nothing is
        inside."""
        self._take(opening)
        return self._take(closing) if self.peek() == closing else b","

    def _get_byte(self) -> bytes:
        return self._mask[self.position : self.position + 1]

    def _pass(self, pattern: re.Pattern[bytes]) -> None:
        """Pass what a pattern finds here."""
        match = pattern.match(self._mask, self.position)
        if match is not None:
            self.position = match.end()

    def _pass_string(self) -> None:
        """Pass the string here. Raises TooLarge past `MAX_STRING_BYTES`."""
        end = self._mask.find(b'"', self.position + 1)
        if self._get_byte() != b'"' or end < 0:
            raise ValueError(f"a name or a quote is missing at byte {self.position}")
        if end - self.position > MAX_STRING_BYTES:
            raise TooLarge(f"a string of the JSON is longer than {MAX_STRING_BYTES} bytes")
        self.position = end + 1

    def _take(self, expected: bytes) -> bytes:
        """Pass the next byte, which must be one of `expected`, and return it."""
        byte = self.peek()
        if not byte or byte not in expected:
            raise ValueError(f"there is no `{expected.decode()}` at byte {self.position}")
        self.position += 1
        return byte

    def close(self) -> None:
        """Raise ValueError where something follows."""
        if self.peek():
            raise ValueError(f"something follows its end at byte {self.position}")
