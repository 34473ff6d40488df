"""The tests as they are compiled: the task's text, and around it what keeps an answer from redefining their words.

A test file that says `use solution::*;` lets the answer choose what names mean in it. With a signature such an import
brings the declared names only. Without one it stays, with the prelude imported beside it, so that an answer's own
`Some` or `Vec` is an error in place of a substitute; and an answer whose trait has a method that the standard library
has too and the tests call (by value it would win) is not believed: `hijacked`.

Assertions are the harness's own. What they find stands, though the answer that was given a closure with one catches
its panic; their messages hold no values, which a panic hook of the answer could learn from. Comparing with
`assert_eq!` or `assert_ne!` is equality in the answer's own words if one side is of a type of its own and the other is
not: that is refused. Does not look at how the answer was judged otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from gradus.contract import RustTask
from services.graders.rust.answer import RustAnswer
from services.graders.rust.lexer import Kind, Token, code, tokens
from services.graders.rust.signature import Pin, Signature
from services.graders.rust.toolchain import HARNESS_CRATE

_COMPARISON = """
macro_rules! {name} {{
    ($left:expr, $right:expr $(,)?) => {{
        match (&$left, &$right) {{
            (left, right) => {{
                {harness}::fair(left, right, "{crate}");
                if {unlike} {{ {harness}::fail("assertion `left {sign} right` failed") }}
            }}
        }}
    }};
    ($left:expr, $right:expr, $($said:tt)+) => {{
        match (&$left, &$right) {{
            (left, right) => {{
                {harness}::fair(left, right, "{crate}");
                if {unlike} {{
                    if {harness}::speaking() {{ ::std::panic!($($said)+) }}
                    {harness}::fail("assertion `left {sign} right` failed")
                }}
            }}
        }}
    }};
}}
"""
_ASSERTION = """
macro_rules! assert {{
    ($condition:expr $(,)?) => {{
        if !$condition {{ {harness}::fail(::std::concat!("assertion failed: ", ::std::stringify!($condition))) }}
    }};
    ($condition:expr, $($said:tt)+) => {{
        if !$condition {{
            if {harness}::speaking() {{ ::std::panic!($($said)+) }}
            {harness}::fail("assertion failed")
        }}
    }};
}}
"""

STD_METHODS = frozenset((Path(__file__).parent / "std_methods.txt").read_text().split())
"""Methods of the standard library that tests use to judge."""


@dataclass(frozen=True, slots=True)
class TestsFile:
    __test__ = False  # not a test class, whatever pytest thinks of its name
    text: str
    pins: dict[int, Pin]
    """Line -> what is pinned there."""


def write_tests_file(task: RustTask, signature: Signature | None) -> TestsFile:
    """The file to compile in place of `task.tests`."""
    own = f"extern crate {HARNESS_CRATE}; " if task.edition == "2015" else ""
    start = _after_inner_attributes(task.tests)
    text = task.tests[:start] + own + _assertions(task) + "\n" + _with_safe_imports(task, signature, start)
    if signature is None:
        return TestsFile(text, {})
    lines = [text, _pins_head(task, signature)]
    first = sum(part.count("\n") + 1 for part in lines) + 1
    lines += [f"const _: () = {{ {pin.source} }};" for pin in signature.pins]
    return TestsFile("\n".join([*lines, "}"]), dict(enumerate(signature.pins, first)))


def _assertions(task: RustTask) -> str:
    """In one line, so that few lines of the task's text move."""
    harness = _harness(task)
    templates = [
        _COMPARISON.format(name="assert_eq", sign="==", unlike="!(*left == *right)", crate=task.crate, harness=harness),
        _COMPARISON.format(name="assert_ne", sign="!=", unlike="*left == *right", crate=task.crate, harness=harness),
    ]
    if not _asserts_in_constants(code(task.tests)):
        templates.append(_ASSERTION.format(harness=harness))
    return " ".join(" ".join(templates).split())


def _asserts_in_constants(found: Sequence[Token]) -> bool:
    """`const _: () = assert!(..)`: code that is computed by the compiler cannot call the harness."""
    pairs = zip(found, found[1:], strict=False)
    return any(first.text == "const" and second.text in ("_", "{") for first, second in pairs)


def _harness(task: RustTask) -> str:
    """In edition 2015 `::` is the crate's own root."""
    return HARNESS_CRATE if task.edition == "2015" else f"::{HARNESS_CRATE}"


def _pins_head(task: RustTask, signature: Signature) -> str:
    return f"mod gradus_pins {{ use super::*; use ::{task.crate}::{{{', '.join(signature.names)}}};"


def _after_inner_attributes(text: str) -> int:
    """Where items may begin: behind `#![...]` and `//!` at the start."""
    found = list(tokens(text))
    position = at = 0
    while at < len(found):
        token = found[at]
        if token.kind is Kind.COMMENT and token.text.startswith(("//!", "/*!")):
            position, at = _end_of_line(text, token.start + len(token.text)), at + 1
        elif token.kind in (Kind.SPACE, Kind.COMMENT):
            at += 1
        elif token.text == "#" and text.startswith("!", token.start + 1):
            at = _closing_bracket(found, at + 2) + 1
            position = found[at].start if at < len(found) else len(text)
        else:
            break
    return position


def _end_of_line(text: str, position: int) -> int:
    end = text.find("\n", position)
    return len(text) if end < 0 else end + 1


def _closing_bracket(found: Sequence[Token], at: int) -> int:
    depth = 0
    while at < len(found):
        depth += (found[at].text in "([{") - (found[at].text in ")]}") if found[at].kind is Kind.SIGN else 0
        if depth == 0:
            return at
        at += 1
    return at


# --------------------------------------------------------------------------------------------------------- imports


def _with_safe_imports(task: RustTask, signature: Signature | None, start: int) -> str:
    text = task.tests
    out: list[str] = []
    position = start
    for first, last in _globs(text, task.crate):
        end = last.start + 1
        declaration = text[first.start : end]
        if signature is not None and _is_plain(declaration, task.crate):
            declaration = f"use ::{task.crate}::{{{', '.join(signature.names)}}};"
        else:
            declaration += f" use {_harness(task)}::prelude::*;"
        out += [text[position : first.start], declaration]
        position = end
    return "".join(out) + text[position:]


def _is_plain(declaration: str, crate: str) -> bool:
    return "".join(declaration.split()).removeprefix("use").removeprefix("::") == f"{crate}::*;"


def _globs(text: str, crate: str) -> Iterator[tuple[Token, Token]]:
    """First and last token of every import of everything from the answer's crate."""
    found = code(text)
    at = 0
    while at < len(found):
        if found[at].kind is Kind.NAME and found[at].text == "use":
            end = next((n for n in range(at, len(found)) if found[n].text == ";"), len(found) - 1)
            words = [token.text for token in found[at : end + 1]]
            if crate in words[:4] and "*" in words:
                yield found[at], found[end]
            at = end
        at += 1


def hijacked(task: RustTask, signature: Signature | None, answer: RustAnswer) -> str | None:
    """A method of the standard library which tests call and which a trait of this answer may stand in for."""
    if signature is not None or not any(True for _ in _globs(task.tests, task.crate)):
        return None
    called = _called(code(task.tests)) & STD_METHODS
    named: set[str] = set()
    has_trait = False
    for found in answer.tokens.values():
        has_trait = has_trait or any(token.kind is Kind.NAME and token.text == "trait" for token in found)
        named |= _not_called(found)
    both = sorted(called & named) if has_trait else []
    return both[0] if both else None


def _called(found: Sequence[Token]) -> set[str]:
    return {found[n].text for n in range(1, len(found)) if found[n - 1].text == "." and found[n].kind is Kind.NAME}


def _not_called(found: Sequence[Token]) -> set[str]:
    """Names that may be definitions: a macro can take any name that it is given for a method's."""
    return {
        found[n].text
        for n in range(len(found))
        if found[n].kind is Kind.NAME and (n == 0 or found[n - 1].text not in (".", ":"))
    }
