"""Rust expressions that are data, such as `Some(vec![1, 2])`, and canonical text of their values.

Canonical text is a list of words, one for each atom: `i3` (integers), `b1`, `c97` (characters),
`"6162` (UTF-8 in hexadecimal), `.1.5` (floats, as written), `o-1` (`Ordering`), `N`, `S`, `K`, `E`
(`None`, `Some`, `Ok`, `Err`; what is inside follows), `(2` (tuples), `[2` (sequences), `{0` (sets
and maps, sorted). harness/value.rs makes it of values.
"""

from __future__ import annotations

import re
from collections.abc import Sequence, Set

from tree_sitter import Node

from services.graders.rust.syntax import list_parts

MAX_TEXT = 1 << 16
"""Characters of the canonical text of a value."""
_EMPTY = {
    "String": '"',
    **dict.fromkeys(("Vec", "VecDeque"), "[0"),
    **dict.fromkeys(("HashMap", "HashSet", "BTreeMap", "BTreeSet"), "{0"),
}
"""What `new()` of a type makes."""
_FROM = {"String::from": '"', "Vec::from": "[", "VecDeque::from": "["}
"""Functions that give the value they are called with, and how its text begins."""
_WRAPPERS = {"Some": "S", "Ok": "K", "Err": "E"}
_CONSTANTS = {
    "None": "N",
    "Less": "o-1",
    "Equal": "o0",
    "Greater": "o1",
    **dict.fromkeys(("f32::INFINITY", "f64::INFINITY"), ".inf"),
    **dict.fromkeys(("f32::NEG_INFINITY", "f64::NEG_INFINITY"), ".-inf"),
}
_SAME = {
    '"': frozenset({"to_string", "to_owned", "into", "as_str", "clone"}),
    "[": frozenset({"to_vec", "to_owned", "as_slice", "clone"}),
}
"""Methods that give the value that they are called on, by how its text begins; `clone` always
does."""
_INTEGER = re.compile(
    r"(0x[0-9a-f]+|0o[0-7]+|0b[01]+|[0-9]+)(?:[iu](?:8|16|32|64|128|size))?", re.IGNORECASE
)
_FLOAT = re.compile(r"([0-9]+(?:\.[0-9]*)?(?:e[+-]?[0-9]+)?)(?:f32|f64)?", re.IGNORECASE)
_BOUND = re.compile(r"([iu])(8|16|32|64|128|size)::(MAX|MIN)")
_ESCAPE = re.compile(r"\\(?:\n\s*|x([0-9a-fA-F]{2})|u\{([0-9a-fA-F_]+)\}|(.))", re.DOTALL)
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t", "0": "\0", "\\": "\\", "'": "'", '"': '"'}
_TYPE_ARGUMENTS = re.compile(r"\s|::\s*<[^()]*>")
_STD = re.compile(
    r"std::(?:(?:collections|cmp|string|vec)::)?|(?:Option|Result|Ordering)::(?=[A-Z])"
)


class _NoData(Exception):
    """What stands there is not certain to be data."""


class DataReader:
    """Reads expressions in `source` that are data."""

    def __init__(self, source: bytes, own_names: Set[str]) -> None:
        """`own_names`: names that may mean something else than in the standard library."""
        self._source = source
        self._own_names = own_names
        self.bound: dict[str, str] = {}
        """Canonical text of what names are bound to."""

    def read(self, node: Node) -> str | None:
        """Return the canonical text of an expression; None when it is not certain to be data."""
        try:
            text = self._read(node)
        except (_NoData, KeyError, IndexError, TypeError, ValueError, RecursionError):
            return None
        return text if len(text) <= MAX_TEXT else None

    def _read(self, node: Node) -> str:
        text = self._get_text(node)
        match node.type:
            case "integer_literal" | "float_literal":
                return _read_number(text.replace("_", ""))
            case "string_literal" | "raw_string_literal" | "char_literal":
                return _decode_text(text)
            case "boolean_literal":
                return f"b{int(text == 'true')}"
            case "unary_expression":
                return _negate(self._read_parts(node)[0], text[0])
            case "parenthesized_expression" | "reference_expression":
                return self._read_parts(node)[-1]
            case "unit_expression" | "tuple_expression":
                return _join_words("(", self._read_parts(node))
            case "array_expression":
                return self._read_array(node)
            case "call_expression":
                return self._read_call(node)
        path = self._read_path(node)
        return self.bound.get(path) or _resolve_name(path)

    def _get_text(self, node: Node) -> str:
        return self._source[node.start_byte : node.end_byte].decode()

    def _read_parts(self, node: Node, field: str = "") -> list[str]:
        return [self._read(part) for part in list_parts(node, field)]

    def _read_array(self, node: Node) -> str:
        parts = self._read_parts(node)
        if any(child.type == ";" for child in node.children):
            part, length = parts
            times = int(length.removeprefix("i"))
            if times * (len(part) + 1) > MAX_TEXT:
                raise _NoData
            parts = [part] * times
        return _join_words("[", parts)

    def _read_call(self, node: Node) -> str:
        function = node.child_by_field_name("function")
        if function is None:
            raise _NoData
        values = self._read_parts(node, "arguments")
        if function.type == "field_expression":
            owner, method = list_parts(function)
            value = self._read(owner)
            return self._call_method(value, self._get_text(method), values)
        name = self._read_path(function)
        if not values:
            return _EMPTY[name.removesuffix("::new")]
        (value,) = values
        if name in _WRAPPERS:
            return f"{_WRAPPERS[name]} {value}"
        if name != "Box::new" and not value.startswith(_FROM[name]):
            raise _NoData
        return value

    def _call_method(self, value: str, name: str, arguments: Sequence[str]) -> str:
        methods = _SAME.get(value[0], ("clone",))
        if arguments or name not in methods or name in self._own_names:
            raise _NoData
        return value

    def _read_path(self, node: Node) -> str:
        """Return the path without type arguments and without what stands before a name of the
        standard library."""
        path = _TYPE_ARGUMENTS.sub("", self._get_text(node))
        if not self._own_names.isdisjoint(path.split("::")):
            raise _NoData
        return _STD.sub("", path)


def _resolve_name(name: str) -> str:
    bound = _BOUND.fullmatch(name)
    if bound is None:
        return _CONSTANTS[name]
    bits = 64 if bound[2] == "size" else int(bound[2])
    is_greatest = bound[3] == "MAX"
    if bound[1] == "u":
        return f"i{(1 << bits) - 1}" if is_greatest else "i0"
    half = 1 << bits - 1
    return f"i{half - 1}" if is_greatest else f"i{-half}"


def _read_number(text: str) -> str:
    if match := _INTEGER.fullmatch(text):
        digits = match[1].lower()
        return f"i{int(digits, {'0x': 16, '0o': 8, '0b': 2}.get(digits[:2], 10))}"
    match = _FLOAT.fullmatch(text)
    if match is None:
        raise _NoData
    return f".{match[1]}"


def _negate(value: str, operator: str) -> str:
    if operator == "*":
        return value
    if operator != "-" or not value.startswith(("i", ".")) or value[1] == "-":
        raise _NoData
    return f"i{-int(value[1:])}" if value[0] == "i" else f".-{value[1:]}"


def _join_words(opening: str, parts: Sequence[str]) -> str:
    return " ".join([f"{opening}{len(parts)}", *parts])


def _decode_text(text: str) -> str:
    """Return a string, a byte string, a character or a byte."""
    mark, quote, tail = re.split(r"""(["'])""", text, maxsplit=1)
    if "c" in mark or not tail.endswith(quote + mark.partition("#")[1] * mark.count("#")):
        raise _NoData  # for C, or with a suffix
    inside = tail[: len(tail) - 1 - mark.count("#")]
    if "r" not in mark:
        inside = _ESCAPE.sub(_decode_escape, inside.replace("\r\n", "\n"))
    if quote == "'":
        return f"i{ord(inside)}" if "b" in mark else f"c{ord(inside)}"
    if "b" in mark:
        return _join_words("[", [f"i{ord(character)}" for character in inside])
    return '"' + inside.encode().hex()


def _decode_escape(match: re.Match[str]) -> str:
    if match[1]:
        return chr(int(match[1], 16))
    if match[2]:
        return chr(int(match[2].replace("_", ""), 16))
    return _ESCAPED[match[3]] if match[3] else ""
