"""Rust expressions that are data, such as `Some(vec![1, 2 * n])`, and the canonical text of their
values.

Canonical text is a list of words, one for each atom: `i3` (integers), `b1`, `c97` (characters),
`"6162` (UTF-8 in hexadecimal), `.1.5` (floats, as written), `o-1` (`Ordering`), `N`, `S`, `K`, `E`
(`None`, `Some`, `Ok`, `Err`; what is inside follows), `(2` (tuples), `[2` (sequences), `{2` (sets
and maps, sorted). harness/value.rs makes it of values.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from tree_sitter import Node

from services.graders.rust.syntax import parse

_MAX_MACROS = 20
"""Depth of `vec!` in `vec!`: each is parsed on its own."""

MAX_TEXT = 1 << 16
"""Characters of the canonical text of a value."""
_COLLECTIONS = {
    **dict.fromkeys(("HashMap", "BTreeMap"), "map"),
    **dict.fromkeys(("HashSet", "BTreeSet"), "set"),
    **dict.fromkeys(("Vec", "VecDeque", "LinkedList"), "sequence"),
}
_WRAPPERS = {"Some": "S", "Ok": "K", "Err": "E"}
_ORDERINGS = {"Less": "o-1", "Equal": "o0", "Greater": "o1"}
_POINTERS = frozenset({"Box", "Rc", "Arc"})
_SAME = {
    "string": frozenset({"to_string", "to_owned", "into", "as_str", "clone"}),
    "sequence": frozenset({"to_vec", "to_owned", "as_slice", "clone"}),
    "other": frozenset({"clone"}),
}
"""Methods that give the value that they are called on."""
_INTEGER = re.compile(
    r"(0x[0-9a-f]+|0o[0-7]+|0b[01]+|[0-9]+)(?:[iu](?:8|16|32|64|128|size))?", re.IGNORECASE
)
_FLOAT = re.compile(r"([0-9]+(?:\.[0-9]*)?(?:e[+-]?[0-9]+)?)(?:f32|f64)?", re.IGNORECASE)
_TYPE = re.compile(r"([iu])(8|16|32|64|128|size)")
_ESCAPE = re.compile(r"\\(?:\n\s*|x([0-9a-fA-F]{2})|u\{([0-9a-fA-F_]+)\}|(.))", re.DOTALL)
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t", "0": "\0", "\\": "\\", "'": "'", '"': '"'}
_STD = re.compile(
    r"std::(?:(?:collections|cmp|string|vec|rc|sync)::)?|(?:Option|Result)::(?=[A-Z])"
)


class _NoData(Exception):
    """What stands there is not certain to be data."""


@dataclass(frozen=True, slots=True)
class Value:
    kind: str
    """`integer`, `string`, `sequence`, `tuple` or `other`."""
    text: str
    """Canonical."""
    integer: int = 0
    parts: tuple[Value, ...] = ()
    """Parts of a tuple or a sequence."""


def read_data(text: str, values: Mapping[str, Value], own_names: Collection[str]) -> Value | None:
    """Return the value of the expression `text`; None when it is not certain to be data.

    `values`: names that are bound to data. `own_names`: names that may mean something else than in
    the standard library.
    """
    try:
        value = _Reader(values, own_names).read_text(text)
    except (
        _NoData,
        IndexError,
        ValueError,
        KeyError,
        TypeError,
        ZeroDivisionError,
        RecursionError,
    ):
        return None
    return value if len(value.text) <= MAX_TEXT else None


class _Reader:
    """Reads an expression that is data. Raises what `read_data` catches for any other."""

    def __init__(self, values: Mapping[str, Value], own_names: Collection[str]) -> None:
        self._values = values
        self._own_names = own_names
        self._depth = 0
        """Macros around what is read."""

    def read_text(self, text: str) -> Value:
        """Return the value of a whole expression."""
        self._depth += 1
        root = parse(f"const A: B = {text};")
        item = root.named_children[0]
        if root.has_error or len(root.named_children) > 1 or self._depth > _MAX_MACROS:
            raise _NoData
        value = self._read(_get_field(item, "value"))
        self._depth -= 1
        return value

    def _read(self, node: Node) -> Value:
        text = _get_text(node)
        parts = []
        for child in node.named_children:
            if "comment" not in child.type:
                parts.append(child)
        match node.type:
            case "integer_literal" | "float_literal":
                return _read_number(text.replace("_", ""))
            case "string_literal" | "raw_string_literal" | "char_literal":
                return _decode_text(text)
            case "boolean_literal":
                return Value("other", f"b{int(text == 'true')}")
            case "parenthesized_expression":
                return self._read(parts[0])
            case "unit_expression" | "tuple_expression":
                return _build_tuple([self._read(part) for part in parts])
            case "array_expression":
                return self._read_array(node, parts)
            case "reference_expression":
                return self._read(_get_field(node, "value"))
            case "unary_expression":
                return _negate(self._read(parts[0]), text[0])
            case "binary_expression":
                left, right = _get_field(node, "left"), _get_field(node, "right")
                operator = _get_text(_get_field(node, "operator"))
                return _compute(operator, self._read(left), self._read(right))
            case "type_cast_expression":
                value = self._read(_get_field(node, "value"))
                return self._cast(value, _get_field(node, "type"))
            case "index_expression":
                value = self._read(parts[0])
                if value.kind in ("string", "sequence") and _get_text(parts[1]) == "..":
                    return value
                raise _NoData
            case "macro_invocation":
                self._require_names("vec", _get_text(_get_field(node, "macro")))
                return self.read_text(f"[{_get_text(parts[-1])[1:-1]}]")
            case "call_expression":
                return self._read_call(node)
        return self._resolve_name(self._read_path(node))

    def _require_names(self, *names: str) -> None:
        """Raise unless all are the first, and it is the standard library's."""
        if len(set(names)) > 1 or names[0] in self._own_names:
            raise _NoData

    def _read_array(self, node: Node, parts: Sequence[Node]) -> Value:
        if all(child.type != ";" for child in node.children):
            return _build_sequence([self._read(part) for part in parts])
        part, times = map(self._read, parts)
        if times.kind != "integer" or times.integer * (len(part.text) + 1) > MAX_TEXT:
            raise _NoData
        return _build_sequence([part] * times.integer)

    def _cast(self, value: Value, type_: Node) -> Value:
        if value.kind == "sequence" and re.match(r"&\s*\[", _get_text(type_)):
            return value
        kind = _TYPE.fullmatch(_get_text(type_))
        if value.kind != "integer" or kind is None:
            raise _NoData
        least, most = (_compute_bound(kind[1], kind[2], which) for which in ("MIN", "MAX"))
        if kind[0] in self._own_names or not least <= value.integer <= most:
            raise _NoData
        return value

    def _read_call(self, node: Node) -> Value:
        function = _get_field(node, "function")
        arguments = []
        for child in _get_field(node, "arguments").named_children:
            if "comment" not in child.type:
                arguments.append(self._read(child))
        if function.type == "field_expression":
            value = self._read(_get_field(function, "value"))
            return self._call_method(value, _get_text(_get_field(function, "field")), arguments)
        name = self._read_path(function)
        first, _, last = name.rpartition("::")
        if last == "new" and not arguments and first in {*_COLLECTIONS, "String"}:
            if first == "String":
                return Value("string", '"')
            return _build_collection(_COLLECTIONS[first], ())
        (value,) = arguments
        if name in _WRAPPERS:
            return Value("other", f"{_WRAPPERS[name]} {value.text}")
        is_string = name == "String::from" and value.kind == "string"
        if is_string or (last == "new" and first in _POINTERS):
            return value
        if last == "from" and first in _COLLECTIONS and value.kind == "sequence":
            return _build_collection(_COLLECTIONS[first], value.parts)
        raise _NoData

    def _call_method(self, value: Value, name: str, arguments: Sequence[Value]) -> Value:
        self._require_names(name)
        if not arguments and name in _SAME.get(value.kind, _SAME["other"]):
            return value
        if name != "repeat" or value.kind != "string":
            raise _NoData
        (times,) = arguments
        if times.kind != "integer" or times.integer * len(value.text) > MAX_TEXT:
            raise _NoData
        return Value("string", '"' + value.text[1:] * times.integer)

    def _read_path(self, node: Node) -> str:
        """Return the path without type arguments and without what stands before a name of the
        standard library."""
        names: list[str] = []
        parts = [node]
        while parts:
            part = parts.pop()
            if part.type in ("identifier", "type_identifier", "primitive_type"):
                names.append(_get_text(part))
                self._require_names(names[-1])
            elif part.type in ("scoped_identifier", "scoped_type_identifier"):
                parts += [_get_field(part, "name"), _get_field(part, "path")]
            elif part.type in ("generic_type", "generic_type_with_turbofish", "generic_function"):
                field = "function" if part.type == "generic_function" else "type"
                parts.append(_get_field(part, field))
            else:
                raise _NoData
        return _STD.sub("", "::".join(names))

    def _resolve_name(self, name: str) -> Value:
        if name in self._values:
            return self._values[name]
        first, _, last = name.rpartition("::")
        if name == "None":
            return Value("other", "N")
        if last in _ORDERINGS and first in ("Ordering", ""):
            return Value("other", _ORDERINGS[last])
        if (kind := _TYPE.fullmatch(first)) and last in ("MAX", "MIN"):
            return _make_integer(_compute_bound(kind[1], kind[2], last))
        if first in ("f32", "f64") and last in ("INFINITY", "NEG_INFINITY"):
            return Value("other", ".inf" if last == "INFINITY" else ".-inf")
        raise _NoData


def _get_text(node: Node) -> str:
    return (node.text or b"").decode()


def _get_field(node: Node, name: str) -> Node:
    field = node.child_by_field_name(name)
    if field is None:
        raise _NoData
    return field


def _read_number(text: str) -> Value:
    if match := _INTEGER.fullmatch(text):
        digits = match[1].lower()
        return _make_integer(int(digits, {"0x": 16, "0o": 8, "0b": 2}.get(digits[:2], 10)))
    if match := _FLOAT.fullmatch(text):
        return Value("other", f".{match[1]}")
    raise _NoData


def _negate(value: Value, operator: str) -> Value:
    if operator == "*":
        return value
    if operator == "-" and value.kind == "integer":
        return _make_integer(-value.integer)
    if operator != "-" or not value.text.startswith("."):
        raise _NoData
    number = value.text[1:]
    return Value("other", f".{number[1:]}" if number.startswith("-") else f".-{number}")


def _build_tuple(parts: Sequence[Value]) -> Value:
    return Value("tuple", _join_words(f"({len(parts)}", parts), parts=tuple(parts))


def _compute(operator: str, left_value: Value, right_value: Value) -> Value:
    if left_value.kind != "integer" or right_value.kind != "integer":
        raise _NoData
    left_integer = left_value.integer
    right_integer = right_value.integer
    match operator:
        case "+":
            return _make_integer(left_integer + right_integer)
        case "-":
            return _make_integer(left_integer - right_integer)
        case "*":
            return _make_integer(left_integer * right_integer)
    if operator not in "/%":
        raise _NoData
    quotient = (
        abs(left_integer)
        // abs(right_integer)
        * (1 if (left_integer < 0) == (right_integer < 0) else -1)
    )
    return _make_integer(quotient if operator == "/" else left_integer - right_integer * quotient)


def _make_integer(value: int) -> Value:
    return Value("integer", f"i{value}", value)


def _compute_bound(sign: str, size: str, which: str) -> int:
    bits = 64 if size == "size" else int(size)
    if sign == "u":
        return (1 << bits) - 1 if which == "MAX" else 0
    return (1 << bits - 1) - 1 if which == "MAX" else -(1 << bits - 1)


def _join_words(head: str, parts: Sequence[Value]) -> str:
    return " ".join([head, *(part.text for part in parts)])


def _decode_text(text: str) -> Value:
    """Return a string, a byte string, a character or a byte."""
    mark, quote, tail = re.split(r"""(["'])""", text, maxsplit=1)
    if "c" in mark or not tail.endswith(quote + mark.partition("#")[1] * mark.count("#")):
        raise _NoData  # for C, or with a suffix
    inside = tail[: len(tail) - 1 - mark.count("#")]
    if "r" not in mark:
        inside = _ESCAPE.sub(_decode_escape, inside.replace("\r\n", "\n"))
    if quote == "'":
        if "b" in mark:
            return _make_integer(ord(inside))
        return Value("other", f"c{ord(inside)}")
    if "b" in mark:
        return _build_sequence([_make_integer(ord(character)) for character in inside])
    return Value("string", '"' + inside.encode().hex())


def _decode_escape(match: re.Match[str]) -> str:
    if match[1]:
        return chr(int(match[1], 16))
    if match[2]:
        return chr(int(match[2].replace("_", ""), 16))
    return _ESCAPED[match[3]] if match[3] else ""


def _build_sequence(parts: Sequence[Value]) -> Value:
    return Value("sequence", _join_words(f"[{len(parts)}", parts), parts=tuple(parts))


def _build_collection(kind: str, parts: Sequence[Value]) -> Value:
    """Return a collection made of a sequence."""
    if kind == "sequence":
        return _build_sequence(parts)
    by_key = {(part.parts[0] if kind == "map" else part).text: part for part in parts}
    texts = sorted(part.text for part in by_key.values())
    return Value("other", " ".join([f"{{{len(texts)}", *texts]))
