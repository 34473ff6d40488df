"""Values of an answer as OCaml writes them, from the text of `harness/gradus_value.ml` and the
declared type."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator
from typing import Any

from gradus.tasks.ocaml import OcamlTask

Type = tuple[str, tuple[Any, ...]]
"""A constructor of types and its arguments; the constructor of a tuple is `*`, that of a function
`->`."""

_CALL = re.compile(r"assert\s*\(\s*([a-z_][\w']*)\s")
_TOKEN = re.compile(r"->|[*()]|[a-z_][\w']*|\S")
_SIMPLE_STRING = re.compile(r"[ !#-\[\]-~]*")


class _Unknown(Exception):
    """The type, or the text of a value, has another form."""


def value_text(task: OcamlTask, word: str) -> str | None:
    """The value that the task's single test got from a function of the signature; None where its
    type is not known.

    `word` is the canonical text in hexadecimal digits. It comes from the answer's process, so it
    may be anything.
    """
    called = _CALL.search(task.tests)
    pattern = rf"val\s+{re.escape(called[1])}\s*:(.*?)(?=\bval\b|\Z)" if called else r"\Z."
    declared = re.search(pattern, task.signature or "", re.DOTALL)
    if declared is None:
        return None
    try:
        kind = _parsed(iter([*_TOKEN.findall(declared[1]), ""]))
        while kind[0] == "->":
            kind = kind[1][1]
        text, rest = _written(kind, bytes.fromhex(word).decode("latin-1"))
    except (_Unknown, ValueError, StopIteration, RecursionError, struct.error):
        return None
    return text if not rest else None


def _parsed(tokens: Iterator[str]) -> Type:
    """The type in front of `""` or of a closing parenthesis, which is read as well."""
    parts: list[Type] = []
    found: Type | None = None
    token = next(tokens)
    while token not in ("", ")", "->"):
        if token == "(" and found is None:
            found = _parsed(tokens)
        elif token == "*" and found is not None:
            parts.append(found)
            found = None
        elif token.isidentifier():
            found = token, () if found is None else (found,)
        else:
            raise _Unknown
        token = next(tokens)
    if found is None:
        raise _Unknown
    found = ("*", (*parts, found)) if parts else found
    return ("->", (found, _parsed(tokens))) if token == "->" else found


def _written(kind: Type, text: str) -> tuple[str, str]:
    """The value at the beginning of the text, and what is behind it."""
    name, arguments = kind
    if name in _PLAIN:
        end, write = _PLAIN[name]
        number, _, rest = text.partition(end)
        return write(int(number)), rest
    if name == "string":
        length, _, rest = text.partition('"')
        value, rest = rest[: int(length)], rest[int(length) :]
        if not _SIMPLE_STRING.fullmatch(value):
            raise _Unknown
        return f'"{value}"', rest
    if name == "*":
        parts, rest = _fields(arguments, 0, text)
        return f"({', '.join(parts)})", rest
    if name == "option":
        if text.startswith("0,"):
            return "None", text[2:]
        (part,), rest = _fields(arguments, 0, text)
        return f"(Some {part})", rest
    if name == "list":
        items: list[str] = []
        while not text.startswith("0,"):
            head = "0(2:"
            if not text.startswith(head):
                raise _Unknown
            item, text = _written(arguments[0], text.removeprefix(head))
            items.append(item)
        return f"[{'; '.join(items)}]", text[2:]
    raise _Unknown


def _fields(kinds: tuple[Type, ...], tag: int, text: str) -> tuple[list[str], str]:
    head = f"{tag}({len(kinds)}:"
    if not kinds or not text.startswith(head):
        raise _Unknown
    parts, text = [], text.removeprefix(head)
    for kind in kinds:
        part, text = _written(kind, text)
        parts.append(part)
    return parts, text


def _int(number: int) -> str:
    return f"({number})" if number < 0 else str(number)


def _float(bits: int) -> str:
    (value,) = struct.unpack(">d", struct.pack(">q", bits))
    return f"({value!r})" if value < 0 else repr(value)


def _one_of(*names: str) -> Callable[[int], str]:
    def name_of(number: int) -> str:
        if not 0 <= number < len(names):
            raise _Unknown
        return names[number]

    return name_of


_PLAIN: dict[str, tuple[str, Callable[[int], str]]] = {
    "int": (",", _int),
    "bool": (",", _one_of("false", "true")),
    "unit": (",", _one_of("()")),
    "float": (".", _float),
}
"""Types of plain values: what ends their text, and how they are written."""
