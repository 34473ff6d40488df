"""Literals of a type for calls of functions, in any language.

Values are drawn from the literals of the tests and the reference answer and from their neighbours,
so that they stay near what the task speaks of: a negative number only where the tests have one, an
empty list or text likewise.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from corpus.hardening.known_calls import ReadCalls, build_filter

_MAX_LENGTH = 4
_TRIES = 20
"""Calls that are drawn for one that the tests' calls admit."""


class Kind(StrEnum):
    INTEGER = "integer"
    BOOLEAN = "boolean"
    FLOAT = "float"
    CHARACTER = "character"
    TEXT = "text"
    UNIT = "unit"
    LIST = "list"
    OPTION = "option"
    RESULT = "result"
    TUPLE = "tuple"


@dataclass(frozen=True, slots=True)
class Type:
    """A type that values can be made of."""

    kind: Kind
    name: str
    """The type as the language spells it, without its arguments."""
    arguments: tuple[Type, ...] = ()
    bounds: tuple[int, int] | None = None
    """The smallest and the largest integer; None: those of the tests bound it enough."""

    def holds_floats(self) -> bool:
        return self.kind is Kind.FLOAT or any(inner.holds_floats() for inner in self.arguments)


@dataclass(frozen=True, slots=True)
class Function:
    name: str
    parameters: tuple[Type, ...]
    returned: Type


class UnknownType(Exception):
    """A type that no value can be made of."""


Render = Callable[[Type, str, Sequence[str]], str]
"""(type, word, parts) -> literal. `word` is a number, `true`, the inside of a text or character, or
a constructor (`Some`, `None`, `Ok`, `Error`); `parts` are literals of what the value holds."""


class Values:
    """Draws literals of a type."""

    def __init__(
        self,
        tests: str,
        solution: str,
        seed: str,
        render: Render,
        *,
        negative: str,
        empty_list: str,
    ) -> None:
        """`negative` and `empty_list`: patterns of a negative number and of an empty list."""
        self._draw = random.Random(seed)
        self._render = render
        has_negative = re.search(negative, tests) is not None
        numbers = [int(text) for text in re.findall(r"(?<![\w.])\d{1,9}(?![\w.])", tests)]
        constants = [int(text) for text in re.findall(r"(?<![\w.])\d{1,6}(?![\w.])", solution)]
        bound = max(numbers, default=3) + 1
        near = {0, 1, 2, 3}
        for number in {*numbers, *constants}:
            near |= {number - 1, number, number + 1}
        if has_negative:
            near |= {-number for number in near}
        lowest = -bound if has_negative else 0
        self._ints = sorted(number for number in near if lowest <= number <= bound)
        self._floats: list[str] = sorted(set(re.findall(r"(?<![\w.])\d+\.\d*", tests))) or [
            "1.",
            "2.5",
        ]
        texts = re.findall(r'"((?:[^"\\\n]|\\.)*)"', tests)
        self._texts: list[str] = sorted({*texts, "a", "ab"} - {""})
        self._chars: list[str] = sorted({*re.findall(r"'([^'\\\n])'", tests), "a", "b"})
        self._has_empty_text = '""' in tests
        self._has_empty_list = re.search(empty_list, tests) is not None

    def draw(self, drawn: Type) -> str:
        """Return a literal, in parentheses where it needs them."""
        word = ""
        parts: list[str] = []
        match drawn.kind:
            case Kind.INTEGER:
                word = str(self._draw_integer(drawn))
            case Kind.BOOLEAN:
                word = self._draw.choice(("true", "false"))
            case Kind.FLOAT:
                word = self._draw.choice(self._floats)
            case Kind.CHARACTER:
                word = self._draw.choice(self._chars)
            case Kind.TEXT:
                word = self._draw_text()
            case Kind.LIST:
                length = self._draw.randint(0 if self._has_empty_list else 1, _MAX_LENGTH)
                parts = [self.draw(drawn.arguments[0]) for _ in range(length)]
            case Kind.OPTION:
                word = "None" if self._draw.random() < 0.3 else "Some"
                parts = [self.draw(drawn.arguments[0])] if word == "Some" else []
            case Kind.RESULT:
                word = "Ok" if self._draw.random() < 0.6 else "Error"
                parts = [self.draw(drawn.arguments[word == "Error"])]
            case Kind.TUPLE:
                parts = [self.draw(inner) for inner in drawn.arguments]
        return self._render(drawn, word, parts)

    def _draw_integer(self, drawn: Type) -> int:
        if drawn.bounds is None:
            return self._draw.choice(self._ints)
        lowest, greatest = drawn.bounds
        return self._draw.choice([n for n in self._ints if lowest <= n <= greatest])

    def _draw_text(self) -> str:
        """Return a text of the tests, a part of one, or two of them."""
        draw = self._draw
        text = draw.choice(self._texts)
        kind = draw.random()
        if "\\" not in text and kind < 0.3:
            at = draw.randrange(len(text))
            return text[at:] if self._has_empty_text or at else text
        if kind < 0.4 and self._has_empty_text:
            return ""
        return text + draw.choice(self._texts) if kind > 0.8 else text


def draw_calls(
    functions: Sequence[Function],
    values: Values,
    number: int,
    render_call: Callable[[str, Sequence[str]], str],
    tests: str,
    read_calls: ReadCalls,
) -> dict[str, Type]:
    """Return up to `number` different calls of each function, each with the type of its result.
    They have what the calls in the tests share."""
    calls: dict[str, Type] = {}
    for function in functions:
        admit = build_filter(tests, function.name, len(function.parameters), read_calls)
        for _ in range(number):
            for _ in range(_TRIES):
                arguments = [values.draw(drawn) for drawn in function.parameters]
                call = render_call(function.name, arguments)
                if admit(call):
                    calls[call] = function.returned
                    break
    return calls
