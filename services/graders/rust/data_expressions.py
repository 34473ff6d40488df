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

from services.graders.rust.lexer import Kind, Token, closing_bracket, source_text

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
    text: str, found: Sequence[Token], values: Mapping[str, Value], own: Collection[str]
) -> Value | None:
    """The value of the expression `found`, which is a part of `text`; None when it is not certain
    to be data.

    `values`: names that are bound to data. `own`: names that may mean something else than in the
    standard library.
    """
    reader = _Reader(text, found, values, own)
    try:
        value = reader.whole()
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
        self, text: str, found: Sequence[Token], values: Mapping[str, Value], own: Collection[str]
    ) -> None:
        self._text = text
        self._found = found
        self._values = values
        self._own = own
        self._at = 0

    def whole(self) -> Value:
        value = self._sum(0)
        if self._at != len(self._found):
            raise _NoData
        return value

    def _next(self) -> str:
        return self._found[self._at].text if self._at < len(self._found) else ""

    def _take(self, *texts: str) -> bool:
        """Whether these come next; they are behind then."""
        part = [token.text for token in self._found[self._at : self._at + len(texts)]]
        if part == list(texts):
            self._at += len(texts)
            return True
        return False

    def _expect(self, *texts: str) -> None:
        if not self._take(*texts):
            raise _NoData

    def _name(self) -> str:
        token = self._found[self._at]
        if token.kind is not Kind.NAME or token.text in self._own:
            raise _NoData
        self._at += 1
        return token.text

    # ----------------------------------------------------------------------------------- operators

    def _sum(self, least: int) -> Value:
        left = self._cast()
        while self._next() in _PRECEDENCE and _PRECEDENCE[self._next()] > least:
            operator = self._next()
            self._at += 1
            left = _computed(operator, left, self._sum(_PRECEDENCE[operator]))
        return left

    def _unary(self) -> Value:
        if self._take("-"):
            value = self._unary()
            if value.kind == "integer":
                return _integer(-value.integer)
            if value.text.startswith("."):
                number = value.text[1:]
                return Value(
                    "other", "." + (number[1:] if number.startswith("-") else f"-{number}")
                )
            raise _NoData
        if self._take("&") or self._take("*"):
            self._take("mut")
            return self._unary()
        return self._methods(self._primary())

    def _cast(self) -> Value:
        value = self._unary()
        while self._take("as"):
            if value.kind == "sequence" and self._take("&", "["):
                self._at = (
                    next(n for n in range(self._at, len(self._found)) if self._found[n].text == "]")
                    + 1
                )
                continue
            kind = _TYPE.fullmatch(self._name())
            if value.kind != "integer" or kind is None:
                raise _NoData
            if (
                not _bound(kind[1], kind[2], "MIN")
                <= value.integer
                <= _bound(kind[1], kind[2], "MAX")
            ):
                raise _NoData
        return value

    def _methods(self, value: Value) -> Value:
        while self._take(".") or self._next() == "[":
            if self._take("[", ".", ".", "]") and value.kind in ("string", "sequence"):
                continue
            name = self._name()
            self._expect("(")
            same = _SAME.get(value.kind, _SAME["other"])
            if name in same:
                self._expect(")")
            elif name == "repeat" and value.kind == "string":
                times = self._sum(0)
                if times.kind != "integer" or times.integer * len(value.text) > MAX_TEXT:
                    raise _NoData
                self._expect(")")
                value = Value("string", '"' + value.text[1:] * times.integer)
            else:
                raise _NoData
        return value

    # ------------------------------------------------------------------------------------- primary

    def _primary(self) -> Value:
        token = self._found[self._at]
        if token.kind is Kind.TEXT:
            self._at += 1
            return _of_text(source_text(self._text, token))
        if token.kind is Kind.NUMBER:
            return self._number()
        if self._take("("):
            return self._tuple()
        if self._take("["):
            return self._sequence("]")
        return self._path()

    def _number(self) -> Value:
        text = self._found[self._at].text.replace("_", "")
        self._at += 1
        # `2.` is two tokens, and so is `1e-3`
        while (sign := self._next()) in (".", "-", "+") and self._joined(text, sign):
            text += sign
            self._at += 1
            if (
                self._at < len(self._found)
                and self._found[self._at].kind is Kind.NUMBER
                and sign != "."
            ):
                text += self._next().replace("_", "")
                self._at += 1
        if match := _INTEGER.fullmatch(text):
            digits = match[1].lower()
            return _integer(int(digits, {"0x": 16, "0o": 8, "0b": 2}.get(digits[:2], 10)))
        if match := _FLOAT.fullmatch(text):
            return Value("other", f".{match[1]}")
        raise _NoData

    def _joined(self, text: str, sign: str) -> bool:
        """The sign, right behind the number so far, belongs to it."""
        here = self._found[self._at]
        before = self._found[self._at - 1]
        adjacent = here.start == before.start + len(source_text(self._text, before))
        following = self._found[self._at + 1] if self._at + 1 < len(self._found) else None
        if sign == ".":
            return (
                adjacent
                and text.isdigit()
                and (following is None or following.kind is not Kind.NAME)
            )
        return adjacent and text[-1] in "eE" and not text.startswith("0x")

    def _tuple(self) -> Value:
        parts: list[Value] = []
        comma = False
        while not self._take(")"):
            parts.append(self._sum(0))
            comma = self._take(",")
            if not comma and self._next() != ")":
                raise _NoData
        if len(parts) == 1 and not comma:
            return parts[0]
        return Value("tuple", _joined(f"({len(parts)}", parts), parts=tuple(parts))

    def _sequence(self, closing: str) -> Value:
        parts: list[Value] = []
        while not self._take(closing):
            parts.append(self._sum(0))
            if len(parts) == 1 and self._take(";"):
                times = self._sum(0)
                if times.kind != "integer" or times.integer * (len(parts[0].text) + 1) > MAX_TEXT:
                    raise _NoData
                self._expect(closing)
                return _sequence(parts * times.integer)
            if not self._take(",") and self._next() != closing:
                raise _NoData
        return _sequence(parts)

    def _path(self) -> Value:
        name = self._name()
        if name in self._values:
            return self._values[name]
        while self._take(":", ":"):
            if self._next() == "<":
                self._at = closing_bracket(self._found, self._at) + 1
            else:
                name = f"{name}::{self._name()}"
        return self._named(_STD.sub("", name))

    def _named(self, name: str) -> Value:
        first, _, last = name.rpartition("::")
        if name in ("true", "false"):
            return Value("other", f"b{int(name == 'true')}")
        if name == "None":
            return Value("other", "N")
        if last in _ORDERINGS and first in ("Ordering", ""):
            return Value("other", _ORDERINGS[last])
        if (kind := _TYPE.fullmatch(first)) and last in ("MAX", "MIN"):
            return _integer(_bound(kind[1], kind[2], last))
        if first in ("f32", "f64") and last in ("INFINITY", "NEG_INFINITY"):
            return Value("other", ".inf" if last == "INFINITY" else ".-inf")
        if name == "vec" and self._take("!"):
            opening = self._next()
            self._at += 1
            return self._sequence({"[": "]", "(": ")", "{": "}"}[opening])
        self._expect("(")
        if last == "new" and first in {*_COLLECTIONS, "String"}:
            self._expect(")")
            return (
                Value("string", '"') if first == "String" else _collected(_COLLECTIONS[first], ())
            )
        value = self._sum(0)
        self._take(",")
        self._expect(")")
        if name in _WRAPPERS:
            return Value("other", f"{_WRAPPERS[name]} {value.text}")
        if (name == "String::from" and value.kind == "string") or (
            last == "new" and first in _POINTERS
        ):
            return value
        if last == "from" and first in _COLLECTIONS and value.kind == "sequence":
            return _collected(_COLLECTIONS[first], value.parts)
        raise _NoData


def _computed(operator: str, left: Value, right: Value) -> Value:
    if left.kind != "integer" or right.kind != "integer":
        raise _NoData
    one = left.integer
    two = right.integer
    match operator:
        case "+":
            return _integer(one + two)
        case "-":
            return _integer(one - two)
        case "*":
            return _integer(one * two)
    quotient = abs(one) // abs(two) * (1 if (one < 0) == (two < 0) else -1)
    return _integer(quotient if operator == "/" else one - two * quotient)


def _integer(value: int) -> Value:
    return Value("integer", f"i{value}", value)


def _bound(sign: str, size: str, which: str) -> int:
    bits = 64 if size == "size" else int(size)
    if sign == "u":
        return (1 << bits) - 1 if which == "MAX" else 0
    return (1 << bits - 1) - 1 if which == "MAX" else -(1 << bits - 1)


def _joined(head: str, parts: Sequence[Value]) -> str:
    return " ".join([head, *(part.text for part in parts)])


def _of_text(text: str) -> Value:
    """A string, a byte string, a character or a byte."""
    mark, quote, rest = re.split(r"""(["'])""", text, maxsplit=1)
    if "c" in mark or not rest.endswith(quote + mark.partition("#")[1] * mark.count("#")):
        raise _NoData  # for C, or with a suffix
    inside = rest[: len(rest) - 1 - mark.count("#")]
    if "r" not in mark:
        inside = _ESCAPE.sub(_unescaped, inside.replace("\r\n", "\n"))
    if quote == "'":
        return _integer(ord(inside)) if "b" in mark else Value("other", f"c{ord(inside)}")
    if "b" in mark:
        return _sequence([_integer(ord(one)) for one in inside])
    return Value("string", '"' + inside.encode().hex())


def _unescaped(match: re.Match[str]) -> str:
    if match[1]:
        return chr(int(match[1], 16))
    if match[2]:
        return chr(int(match[2].replace("_", ""), 16))
    return _ESCAPED[match[3]] if match[3] else ""


def _sequence(parts: Sequence[Value]) -> Value:
    return Value("sequence", _joined(f"[{len(parts)}", parts), parts=tuple(parts))


def _collected(kind: str, parts: Sequence[Value]) -> Value:
    """A collection made of a sequence."""
    if kind == "sequence":
        return _sequence(parts)
    by_key = {(part.parts[0] if kind == "map" else part).text: part for part in parts}
    texts = sorted(part.text for part in by_key.values())
    return Value("other", " ".join([f"{{{len(texts)}", *texts]))
