"""Objects in the bodies of adapters' clients, whose members are texts until a route asks for them.

A member that is only passed on takes the memory of its characters, and of a list one item is an
object at a time. Texts may hold lone surrogates, as models write them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from gradus.errors import Misuse
from gradus.strict_json import parse_strict_json
from services.api.json_cursor import JsonCursor
from services.api.parse import bound_value, iter_fields
from services.api.problems import Refused

# Names of one object: columns of a client's rows are among them.
MAX_ROW_FIELDS = 1000
# Items of a list that are parsed at once where they are only checked.
ITEMS_AT_ONCE = 16


class JsonObject:
    """The members of a JSON object by name, each as its text."""

    def __init__(self, members: Mapping[str, bytes], place: str = "") -> None:
        """`place`: what stands before a member's name in messages."""
        self.members = dict(members)
        self._place = place

    def get(self, name: str) -> Any:
        """Return the value of a member; None where there is none."""
        text = self.members.get(name)
        return None if text is None else parse_value(text)

    def require(self, name: str) -> bytes:
        """Return the text of a member. Raises Misuse where it is missing or null."""
        text = self.members.get(name, b"null")
        if text.strip() == b"null":
            raise Misuse(f"{self._place}{name}: Field required")
        return text

    def require_text(self, name: str) -> str:
        """Return the string in a member. Raises Misuse where there is none."""
        value = self.get(name)
        if not isinstance(value, str):
            raise Misuse(f"{self._place}{name}: must be a text")
        return value

    def find_object(self, name: str) -> JsonObject | None:
        """Return the object in a member; None where there is none."""
        text = self.members.get(name, b"")
        cursor = JsonCursor(text)
        if cursor.peek() != b"{":
            return None
        members = {}
        for inner in iter_fields(cursor, parse_value, MAX_ROW_FIELDS):
            members[inner] = cursor.read_value()
        return JsonObject(members, f"{self._place}{name}.")

    def iter_list(self, name: str) -> Iterator[bytes]:
        """Return the texts of the items in a member; none where it is missing or null. Raises
        Misuse for another type."""
        cursor = JsonCursor(self.members.get(name, b"null"))
        if cursor.peek() == b"[":
            return cursor.iter_items()
        if self.get(name) is not None:
            raise Misuse(f"{self._place}{name}: must be a list")
        return iter(())

    def count_separators(self) -> int:
        """Return the commas and opening brackets of all members, those within texts too; escapes
        count as such, for they may be some."""
        n_separators = 0
        for text in self.members.values():
            for separator in (b",", b"[", b"{", b"\\u00"):
                n_separators += text.count(separator)
        return n_separators

    def encode(self, added: Mapping[str, Any] | None = None) -> bytes:
        """Return the object as JSON, with `added` members, which replace those of the same name."""
        members = dict(self.members)
        for name, value in (added or {}).items():
            members[name] = encode_ascii(value)
        parts = []
        for name, text in members.items():
            parts += [b", ", encode_ascii(name), b": ", text]
        return b"".join([b"{", *parts[1:], b"}"])


def parse_object(data: bytes) -> JsonObject:
    """Return the object in a body, each member of which is JSON. Raises a Misuse: 400, 413, 422."""
    cursor = JsonCursor(data)
    try:
        if cursor.peek() != b"{":
            parse_value(data)
            raise Misuse("the body must be a JSON object")
        members = {}
        for name in iter_fields(cursor, parse_value, MAX_ROW_FIELDS):
            members[name] = _check_value(cursor)
    except ValueError as error:
        raise Refused(400, f"the body is not JSON: {error}") from None
    return JsonObject(members)


def _check_value(cursor: JsonCursor) -> bytes:
    """Return the text of the value at the cursor. Raises ValueError where it is no JSON."""
    start = cursor.position
    if cursor.peek() != b"[":
        text = cursor.read_value()
        parse_value(text)
        return text
    for items in cursor.iter_items(ITEMS_AT_ONCE):
        if not parse_value(b"[%b]" % items):
            raise ValueError("an item of a list is missing")
    return cursor.cut(start)


def parse_value(text: bytes) -> Any:
    """Return the value of a text. Raises TooLarge, and ValueError where it is no JSON."""
    bound_value(text)
    return parse_strict_json(text.decode())


def encode_ascii(value: Any) -> bytes:
    """Return JSON in ASCII: half a surrogate pair has no UTF-8. Raises ValueError for NaN."""
    return json.dumps(value, allow_nan=False).encode()
