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
    """Return the value that the task's single test got from a function of the signature; None where
    its type is not known.

    `word` is the canonical text in hexadecimal digits. It comes from the answer's process, so it
    may be anything.
    """
    called = _CALL.search(task.tests)
    if called:
        pattern = rf"val\s+{re.escape(called[1])}\s*:(.*?)(?=\bval\b|\Z)"
    else:
        pattern = r"\Z."
    declared = re.search(pattern, task.signature or "", re.DOTALL)
    if declared is None:
        return None
    try:
        kind = _parse_type(iter([*_TOKEN.findall(declared[1]), ""]))
        while kind[0] == "->":
            kind = kind[1][1]
        text, remainder = _render_value(kind, bytes.fromhex(word).decode("latin-1"))
    except (_Unknown, ValueError, StopIteration, RecursionError, struct.error):
        return None
    return text if not remainder else None


def _parse_type(tokens: Iterator[str]) -> Type:
    """Return the type in front of `""` or of a closing parenthesis, which is read as well."""
    parts: list[Type] = []
    kind: Type | None = None
    token = next(tokens)
    while token not in ("", ")", "->"):
        if token == "(" and kind is None:
            kind = _parse_type(tokens)
        elif token == "*" and kind is not None:
            parts.append(kind)
            kind = None
        elif token.isidentifier():
            kind = token, () if kind is None else (kind,)
        else:
            raise _Unknown
        token = next(tokens)
    if kind is None:
        raise _Unknown
    kind = ("*", (*parts, kind)) if parts else kind
    return ("->", (kind, _parse_type(tokens))) if token == "->" else kind


def _render_value(kind: Type, text: str) -> tuple[str, str]:
    """Return the value at the beginning of the text, and what is behind it."""
    name, arguments = kind
    if name in _PLAIN:
        end, write = _PLAIN[name]
        number, _, remainder = text.partition(end)
        return write(int(number)), remainder
    if name == "string":
        length, _, remainder = text.partition('"')
        value, remainder = remainder[: int(length)], remainder[int(length) :]
        if not _SIMPLE_STRING.fullmatch(value):
            raise _Unknown
        return f'"{value}"', remainder
    if name == "*":
        parts, remainder = _render_fields(arguments, 0, text)
        return f"({', '.join(parts)})", remainder
    if name == "option":
        if text.startswith("0,"):
            return "None", text[2:]
        (part,), remainder = _render_fields(arguments, 0, text)
        return f"(Some {part})", remainder
    if name == "list":
        items: list[str] = []
        while not text.startswith("0,"):
            head = "0(2:"
            if not text.startswith(head):
                raise _Unknown
            item, text = _render_value(arguments[0], text.removeprefix(head))
            items.append(item)
        return f"[{'; '.join(items)}]", text[2:]
    raise _Unknown


def _render_fields(kinds: tuple[Type, ...], tag: int, text: str) -> tuple[list[str], str]:
    head = f"{tag}({len(kinds)}:"
    if not kinds or not text.startswith(head):
        raise _Unknown
    parts, text = [], text.removeprefix(head)
    for kind in kinds:
        part, text = _render_value(kind, text)
        parts.append(part)
    return parts, text


def _render_int(number: int) -> str:
    return f"({number})" if number < 0 else str(number)


def _render_float(bits: int) -> str:
    (value,) = struct.unpack(">d", struct.pack(">q", bits))
    return f"({value!r})" if value < 0 else repr(value)


def _build_renderer(*names: str) -> Callable[[int], str]:
    def get_name(number: int) -> str:
        if not 0 <= number < len(names):
            raise _Unknown
        return names[number]

    return get_name


_PLAIN: dict[str, tuple[str, Callable[[int], str]]] = {
    "int": (",", _render_int),
    "bool": (",", _build_renderer("false", "true")),
    "unit": (",", _build_renderer("()")),
    "float": (".", _render_float),
}
"""Types of plain values: what ends their text, and how they are written."""
