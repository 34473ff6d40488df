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

from services.graders.rust.lexer import Kind, Token, find_closing_bracket, get_source_text

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
_PRECEDENCE = {"+": 1, "-": 1, "*": 2, "/": 2, "%": 2}


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


def read_data(
    text: str, tokens: Sequence[Token], values: Mapping[str, Value], own_names: Collection[str]
) -> Value | None:
    """Return the value of the expression `tokens`, which is a part of `text`; None when it is not
    certain to be data.

    `values`: names that are bound to data. `own_names`: names that may mean something else than in
    the standard library.
    """
    reader = _Reader(text, tokens, values, own_names)
    try:
        value = reader.read_all()
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

    def __init__(
        self,
        text: str,
        tokens: Sequence[Token],
        values: Mapping[str, Value],
        own_names: Collection[str],
    ) -> None:
        self._text = text
        self._tokens = tokens
        self._values = values
        self._own_names = own_names
        self._at = 0

    def read_all(self) -> Value:
        value = self._read_sum(0)
        if self._at != len(self._tokens):
            raise _NoData
        return value

    def _next(self) -> str:
        return self._tokens[self._at].text if self._at < len(self._tokens) else ""

    def _take(self, *texts: str) -> bool:
        """Return whether these come next; they are behind then."""
        part = [token.text for token in self._tokens[self._at : self._at + len(texts)]]
        if part == list(texts):
            self._at += len(texts)
            return True
        return False

    def _require(self, *texts: str) -> None:
        if not self._take(*texts):
            raise _NoData

    def _read_name(self) -> str:
        token = self._tokens[self._at]
        if token.kind is not Kind.NAME or token.text in self._own_names:
            raise _NoData
        self._at += 1
        return token.text

    # ----------------------------------------------------------------------------------- operators

    def _read_sum(self, precedence: int) -> Value:
        value = self._read_cast()
        while self._next() in _PRECEDENCE and _PRECEDENCE[self._next()] > precedence:
            operator = self._next()
            self._at += 1
            value = _compute(operator, value, self._read_sum(_PRECEDENCE[operator]))
        return value

    def _read_unary(self) -> Value:
        if self._take("-"):
            value = self._read_unary()
            if value.kind == "integer":
                return _make_integer(-value.integer)
            if value.text.startswith("."):
                number = value.text[1:]
                return Value(
                    "other", "." + (number[1:] if number.startswith("-") else f"-{number}")
                )
            raise _NoData
        if self._take("&") or self._take("*"):
            self._take("mut")
            return self._read_unary()
        return self._read_methods(self._read_primary())

    def _read_cast(self) -> Value:
        value = self._read_unary()
        while self._take("as"):
            if value.kind == "sequence" and self._take("&", "["):
                self._at = (
                    next(
                        n for n in range(self._at, len(self._tokens)) if self._tokens[n].text == "]"
                    )
                    + 1
                )
                continue
            kind = _TYPE.fullmatch(self._read_name())
            if value.kind != "integer" or kind is None:
                raise _NoData
            if (
                not _compute_bound(kind[1], kind[2], "MIN")
                <= value.integer
                <= _compute_bound(kind[1], kind[2], "MAX")
            ):
                raise _NoData
        return value

    def _read_methods(self, value: Value) -> Value:
        while self._take(".") or self._next() == "[":
            if self._take("[", ".", ".", "]") and value.kind in ("string", "sequence"):
                continue
            name = self._read_name()
            self._require("(")
            same = _SAME.get(value.kind, _SAME["other"])
            if name in same:
                self._require(")")
            elif name == "repeat" and value.kind == "string":
                times = self._read_sum(0)
                if times.kind != "integer" or times.integer * len(value.text) > MAX_TEXT:
                    raise _NoData
                self._require(")")
                value = Value("string", '"' + value.text[1:] * times.integer)
            else:
                raise _NoData
        return value

    # ------------------------------------------------------------------------------------- primary

    def _read_primary(self) -> Value:
        token = self._tokens[self._at]
        if token.kind is Kind.TEXT:
            self._at += 1
            return _decode_text(get_source_text(self._text, token))
        if token.kind is Kind.NUMBER:
            return self._read_number()
        if self._take("("):
            return self._read_tuple()
        if self._take("["):
            return self._build_sequence("]")
        return self._read_path()

    def _read_number(self) -> Value:
        text = self._tokens[self._at].text.replace("_", "")
        self._at += 1
        # `2.` is two tokens, and so is `1e-3`
        while (sign := self._next()) in (".", "-", "+") and self._is_number_sign(text, sign):
            text += sign
            self._at += 1
            if (
                self._at < len(self._tokens)
                and self._tokens[self._at].kind is Kind.NUMBER
                and sign != "."
            ):
                text += self._next().replace("_", "")
                self._at += 1
        if match := _INTEGER.fullmatch(text):
            digits = match[1].lower()
            return _make_integer(int(digits, {"0x": 16, "0o": 8, "0b": 2}.get(digits[:2], 10)))
        if match := _FLOAT.fullmatch(text):
            return Value("other", f".{match[1]}")
        raise _NoData

    def _is_number_sign(self, text: str, sign: str) -> bool:
        """Return whether the sign, right behind the number so far, belongs to it."""
        sign_token = self._tokens[self._at]
        before = self._tokens[self._at - 1]
        adjacent = sign_token.start == before.start + len(get_source_text(self._text, before))
        following = self._tokens[self._at + 1] if self._at + 1 < len(self._tokens) else None
        if sign == ".":
            return (
                adjacent
                and text.isdigit()
                and (following is None or following.kind is not Kind.NAME)
            )
        return adjacent and text[-1] in "eE" and not text.startswith("0x")

    def _read_tuple(self) -> Value:
        parts: list[Value] = []
        comma = False
        while not self._take(")"):
            parts.append(self._read_sum(0))
            comma = self._take(",")
            if not comma and self._next() != ")":
                raise _NoData
        if len(parts) == 1 and not comma:
            return parts[0]
        return Value("tuple", _join_words(f"({len(parts)}", parts), parts=tuple(parts))

    def _build_sequence(self, closing: str) -> Value:
        parts: list[Value] = []
        while not self._take(closing):
            parts.append(self._read_sum(0))
            if len(parts) == 1 and self._take(";"):
                times = self._read_sum(0)
                if times.kind != "integer" or times.integer * (len(parts[0].text) + 1) > MAX_TEXT:
                    raise _NoData
                self._require(closing)
                return _build_sequence(parts * times.integer)
            if not self._take(",") and self._next() != closing:
                raise _NoData
        return _build_sequence(parts)

    def _read_path(self) -> Value:
        name = self._read_name()
        if name in self._values:
            return self._values[name]
        while self._take(":", ":"):
            if self._next() == "<":
                self._at = find_closing_bracket(self._tokens, self._at) + 1
            else:
                name = f"{name}::{self._read_name()}"
        return self._resolve_name(_STD.sub("", name))

    def _resolve_name(self, name: str) -> Value:
        first, _, last = name.rpartition("::")
        if name in ("true", "false"):
            return Value("other", f"b{int(name == 'true')}")
        if name == "None":
            return Value("other", "N")
        if last in _ORDERINGS and first in ("Ordering", ""):
            return Value("other", _ORDERINGS[last])
        if (kind := _TYPE.fullmatch(first)) and last in ("MAX", "MIN"):
            return _make_integer(_compute_bound(kind[1], kind[2], last))
        if first in ("f32", "f64") and last in ("INFINITY", "NEG_INFINITY"):
            return Value("other", ".inf" if last == "INFINITY" else ".-inf")
        if name == "vec" and self._take("!"):
            opening = self._next()
            self._at += 1
            return self._build_sequence({"[": "]", "(": ")", "{": "}"}[opening])
        self._require("(")
        if last == "new" and first in {*_COLLECTIONS, "String"}:
            self._require(")")
            return (
                Value("string", '"')
                if first == "String"
                else _build_collection(_COLLECTIONS[first], ())
            )
        value = self._read_sum(0)
        self._take(",")
        self._require(")")
        if name in _WRAPPERS:
            return Value("other", f"{_WRAPPERS[name]} {value.text}")
        if (name == "String::from" and value.kind == "string") or (
            last == "new" and first in _POINTERS
        ):
            return value
        if last == "from" and first in _COLLECTIONS and value.kind == "sequence":
            return _build_collection(_COLLECTIONS[first], value.parts)
        raise _NoData


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
        return _make_integer(ord(inside)) if "b" in mark else Value("other", f"c{ord(inside)}")
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
