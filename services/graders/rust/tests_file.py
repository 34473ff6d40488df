"""The tests as they are compiled: the task's text, and around it what keeps an answer from redefining their words.

An import of everything from the answer becomes one of certain names (`imports`); from a module of the answer it stays,
with the prelude beside it, so that an answer's own `Some` is an error in place of a substitute.

Assertions are the harness's own. What they find stands, though the answer that was given a closure with one catches
its panic; their messages hold no values, which a panic hook of the answer could learn from. Comparing with
`assert_eq!` or `assert_ne!` is equality in the answer's own words if one side is of a type of its own and the other is
not: that is refused. Does not look at how the answer was judged otherwise.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from gradus.tasks.rust import RustTask
from services.graders.rust.glob_imports import globs, is_plain
from services.graders.rust.lexer import Kind, after_group, code, tokens
from services.graders.rust.signature import Signature, TypePin
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


@dataclass(frozen=True, slots=True)
class TestsFile:
    __test__ = False  # not a test class, whatever pytest thinks of its name
    text: str
    pins: dict[int, TypePin]
    """Line -> what is pinned there."""


def write_tests_file(task: RustTask, signature: Signature | None, names: Collection[str] = ()) -> TestsFile:
    """The file to compile in place of `task.tests`.

    `names`: what an import of everything brings; with a signature that is what it declares.
    """
    own = f"extern crate {HARNESS_CRATE}; " if task.edition == "2015" else ""
    start = _after_inner_attributes(task.tests)
    text = (
        task.tests[:start]
        + own
        + _assertions(task)
        + "\n"
        + _with_safe_imports(task, signature.names if signature else names, start)
    )
    if signature is None:
        return TestsFile(text, {})
    names = ", ".join(signature.names)
    lines = [text, f"mod gradus_pins {{ use super::*; use ::{task.crate}::{{{names}}};"]
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
    found = code(task.tests)
    # `const _: () = assert!(..)`: code that is computed by the compiler cannot call the harness.
    if not any(one.text == "const" and next_.text in ("_", "{") for one, next_ in zip(found, found[1:], strict=False)):
        templates.append(_ASSERTION.format(harness=harness))
    return " ".join(" ".join(templates).split())


def _harness(task: RustTask) -> str:
    """In edition 2015 `::` is the crate's own root."""
    return HARNESS_CRATE if task.edition == "2015" else f"::{HARNESS_CRATE}"


def _after_inner_attributes(text: str) -> int:
    """Where items may begin: behind `#![...]` and `//!` at the start."""
    found = list(tokens(text))
    position = at = 0
    while at < len(found):
        token = found[at]
        if token.kind is Kind.COMMENT and token.text.startswith(("//!", "/*!")):
            end = text.find("\n", token.start + len(token.text))
            position, at = len(text) if end < 0 else end + 1, at + 1
        elif token.kind in (Kind.SPACE, Kind.COMMENT):
            at += 1
        elif token.text == "#" and text.startswith("!", token.start + 1):
            at = after_group(found, at + 2)
            position = found[at].start if at < len(found) else len(text)
        else:
            break
    return position


def _with_safe_imports(task: RustTask, names: Collection[str], start: int) -> str:
    text = task.tests
    out: list[str] = []
    position = start
    for first, last in globs(text, task.crate):
        end = last.start + 1
        declaration = text[first.start : end]
        if is_plain(declaration, task.crate):
            declaration = f"use ::{task.crate}::{{{', '.join(sorted(names))}}};"
        else:
            declaration += f" use {_harness(task)}::prelude::*;"
        out += [text[position : first.start], declaration]
        position = end
    return "".join(out) + text[position:]
