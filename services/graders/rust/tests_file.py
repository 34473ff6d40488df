"""The tests as they are compiled: the task's text, and around it what keeps an answer from
redefining their words.

An import of everything from the answer becomes one of names: of those that the task declares, or of
those that the tests lack without it (`imported_names`). Imports of all variants of an enum stay.

Assertions are the harness's own. What they find stands, though the answer that was given a closure
with one catches its panic; their messages hold no values, which a panic hook of the answer could
learn from. Comparing with `assert_eq!` or `assert_ne!` is equality in the answer's own words if one
side is of a type of its own and the other is not: that is refused. Does not look at how the answer
was judged otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from gradus.tasks.rust import RustTask
from services.graders.rust.expected_values import TOLD, split
from services.graders.rust.glob_imports import find_globs, iter_globs
from services.graders.rust.lexer import (
    code,
    list_texts,
)
from services.graders.rust.signature import Signature, TypePin
from services.graders.rust.syntax import get_text, parse
from services.graders.rust.toolchain import HARNESS_CRATE

_COMPARISON = """
macro_rules! {name} {{
    ($left:expr, $right:expr $(,)?) => {{
        match (&$left, &$right) {{
            (left, right) => {{
                {harness}::fair(left, right, "{crate}", {by_name}, {derived});
                if {unlike} {{
                    if {harness}::speaking() {{
                        ::std::panic!("{failed}", "", &*left, &*right)
                    }}
                    {harness}::fail("assertion `left {sign} right` failed")
                }}
            }}
        }}
    }};
    ($left:expr, $right:expr, $($said:tt)+) => {{
        match (&$left, &$right) {{
            (left, right) => {{
                {harness}::fair(left, right, "{crate}", {by_name}, {derived});
                if {unlike} {{
                    if {harness}::speaking() {{
                        let said = ::std::format!(": {{}}", ::std::format_args!($($said)+));
                        ::std::panic!("{failed}", said, &*left, &*right)
                    }}
                    {harness}::fail("assertion `left {sign} right` failed")
                }}
            }}
        }}
    }};
}}
"""
FAILED = "assertion `left {sign} right` failed{{}}\\n\\x20 left: {{:?}}\\n right: {{:?}}"
"""What a failed comparison says, in the standard library's words. No two spaces stand together: the
macros are put in one line."""
_BY_NAME = """
const {{
    {harness}::is_path(::std::stringify!($left)) || {harness}::is_path(::std::stringify!($right))
}}
"""
_ASSERTION = """
macro_rules! assert {{
    ($condition:expr $(,)?) => {{
        match $condition {{
            true => {{}}
            _ if {harness}::speaking() => {{
                {harness}::fail(::std::concat!("assertion failed: ", ::std::stringify!($condition)))
            }}
            _ => {harness}::fail("assertion failed")
        }}
    }};
    ($condition:expr, $($said:tt)+) => {{
        match $condition {{
            true => {{}}
            _ if {harness}::speaking() => ::std::panic!($($said)+),
            _ => {harness}::fail("assertion failed")
        }}
    }};
}}
"""
"""By a pattern: `!` of a condition that is no `bool` would be the answer's word."""


_TOLD = """
macro_rules! {name} {{
    (left $left:expr, $right:expr $(, $($said:tt)*)?) => {{
        match &$left {{
            left => {{
                if false {{ {name}!(typed *left, $right $(, $($said)*)?); }}
                {harness}::told(left)
            }}
        }}
    }};
    (right $left:expr, $right:expr $(, $($said:tt)*)?) => {{
        match &$right {{
            right => {{
                if false {{ {name}!(typed $left, *right $(, $($said)*)?); }}
                {harness}::told(right)
            }}
        }}
    }};
    (typed $left:expr, $right:expr $(,)?) => {{
        let (left, right) = (&$left, &$right);
        let _ = *left == *right;
    }};
    (typed $left:expr, $right:expr, $($said:tt)+) => {{
        let (left, right) = (&$left, &$right);
        let _ = (*left == *right, ::std::format_args!($($said)+));
    }};
}}
"""
"""In place of an assertion whose data is taken out. The compiler sees what is compared and makes no
code of that."""


_COMPUTED = re.compile(r"\bconst (?:_ |\{)")
_FIELDS = ("tests", "signature", "crate", "edition", "dependencies")
"""What of a task the file depends on."""


@dataclass(frozen=True, slots=True)
class TestsFile:
    __test__ = False  # not a test class, whatever pytest thinks of its name
    text: str
    pins: Mapping[int, TypePin]
    """Line -> what is pinned there."""
    added_line: int
    """The line that the task's text does not have."""
    lines: int
    """Lines of the task's text."""
    expected: tuple[tuple[str, str], ...] = ()
    """Values that are taken out: the name of a test and canonical text each."""
    is_program: bool = False
    """It has a `main` of its own, and no tests."""

    @property
    def flags(self) -> tuple[str, ...]:
        """Return flags of the compiler."""
        return () if self.is_program else ("--test",)

    def find_task_line(self, line: int) -> int | None:
        """Return the line of the task's tests that stands at `line`; None for lines that are not
        theirs."""
        task_line = line - (line > self.added_line)
        return task_line if line != self.added_line and task_line <= self.lines else None


def write_tests_file(
    task: RustTask,
    signature: Signature | None,
    names: Collection[str] = (),
    enums: Collection[str] = (),
    *,
    derived: bool = True,
) -> TestsFile:
    """Return the file to compile in place of `task.tests`. The last 128 are kept: a task has many
    answers.

    `names`: what imports of everything from the answer bring that the signature does not declare.
    `enums`: of the answer, whose variants may all be imported.
    `derived`: the answer derives `PartialEq`, or the task declares that it need not.
    """
    derived = derived or (signature is not None and signature.own_equality)
    fields = tuple((field, getattr(task, field)) for field in _FIELDS)
    return _build_tests_file(fields, signature, tuple(sorted(names)), frozenset(enums), derived)


@lru_cache(maxsize=128)
def _build_tests_file(
    fields: tuple[tuple[str, Any], ...],
    signature: Signature | None,
    names: tuple[str, ...],
    enums: frozenset[str],
    derived: bool,
) -> TestsFile:
    """Return the file of a task with these `_FIELDS`."""
    task = RustTask(**dict(fields))
    taken_out = split(task, {*names, *(signature.names if signature else ())})
    task = task.model_copy(update={"tests": taken_out.tests})
    extern_crate = f"extern crate {HARNESS_CRATE}; " if task.edition == "2015" else ""
    start = find_item_start(task.tests)
    text = (
        task.tests[:start]
        + extern_crate
        + _render_assertions(task, derived)
        + "\n"
        + _replace_globs(task, signature, names, enums, start)
    )
    added_line = task.tests[:start].count("\n") + 1
    count = task.tests.count("\n") + 1
    if signature is None:
        return TestsFile(text, {}, added_line, count, taken_out.expected)
    text, pins = append_pins(text, signature, task.crate)
    return TestsFile(text, pins, added_line, count, taken_out.expected)


def append_pins(text: str, signature: Signature, crate: str) -> tuple[str, dict[int, TypePin]]:
    """Return `text` and the pins behind it, and what is pinned by line."""
    names = ", ".join(signature.names)
    lines = [
        text,
        f"mod gradus_pins {{ use super::*; use ::{crate}::{{{names}}}; {signature.imports}",
    ]
    first = sum(part.count("\n") + 1 for part in lines) + 1
    lines += [f"const _: () = {{ {pin.source} }};" for pin in signature.pins]
    pins = dict(enumerate(signature.pins, first))
    return "\n".join([*lines, "}"]), pins


def _render_assertions(task: RustTask, derived: bool) -> str:
    """In one line, so that few lines of the task's text move."""
    harness = _get_harness_path(task)
    common_fields = {
        "crate": task.crate,
        "harness": harness,
        "derived": str(derived).lower(),
        "by_name": _BY_NAME.format(harness=harness),
    }
    templates = [
        _COMPARISON.format(
            name="assert_eq",
            sign="==",
            unlike="!(*left == *right)",
            failed=FAILED.format(sign="=="),
            **common_fields,
        ),
        _COMPARISON.format(
            name="assert_ne",
            sign="!=",
            unlike="*left == *right",
            failed=FAILED.format(sign="!="),
            **common_fields,
        ),
    ]
    if TOLD in task.tests:
        templates.append(_TOLD.format(name=TOLD, harness=harness))
    test_tokens = code(task.tests)
    # `const _: () = assert!(..)`: code that is computed by the compiler cannot call the harness.
    if not _COMPUTED.search(" ".join(list_texts(test_tokens))):
        templates.append(_ASSERTION.format(harness=harness))
    return " ".join(" ".join(templates).split())


def _get_harness_path(task: RustTask) -> str:
    """In edition 2015 `::` is the crate's own root."""
    return HARNESS_CRATE if task.edition == "2015" else f"::{HARNESS_CRATE}"


def find_item_start(text: str) -> int:
    """Return where items may begin: behind `#![...]` and `//!` at the start."""
    position = 0
    for node in parse(text).named_children:
        is_inner = get_text(node).startswith(("//!", "/*!"))
        if is_inner or node.type in ("inner_attribute_item", "shebang"):
            position = node.end_byte
        elif "comment" not in node.type:
            break
    return len(text.encode()[:position].decode())


def _replace_globs(
    task: RustTask,
    signature: Signature | None,
    names: Sequence[str],
    enums: Collection[str],
    start: int,
) -> str:
    """Return the text from `start` with imports by name for imports of everything."""
    text = task.tests
    out: list[str] = []
    position = start
    paths = []
    of_crate = find_globs(text, task.crate)
    for glob in iter_globs(text):
        declaration = text[glob.start : glob.end]
        if glob.owner in enums:
            path = declaration.removeprefix("use").rpartition("::")[0]
            new = f"{declaration} const _: fn({path}) = |_| ();"  # a module would be an error
        elif glob not in of_crate:
            continue
        elif signature is not None and glob.is_plain(task.crate):
            new = f"use ::{task.crate}::{{{', '.join(sorted(signature.names))}}};"
        else:
            paths.append(f"pub {declaration}")
            new = "use crate::gradus_names::*;"
        out += [text[position : glob.start], new]
        position = glob.end
    out.append(text[position:])
    if paths:
        everything = f"mod everything {{ {' '.join(dict.fromkeys(paths))} }}"
        brought = f"pub use self::everything::{{{', '.join(names)}}};"
        out.append(f"\nmod gradus_names {{ {everything} {brought} }}")
    return "".join(out)
