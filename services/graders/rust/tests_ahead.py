"""Tests that are compiled once per task, against a stub of its signature, and then only linked with
each answer.

The stub's functions call pointers, which each answer gets from text of ours at its end. The object
code of tests can only depend on an answer by what they use of it, and here that is functions of
known types alone. Task and answer are looked at for what else of a crate can reach into others, and
the compiler confirms names and types (`render_pins`). An answer that fails any of this is compiled
together with the tests, which decides.

What an answer could change in tests, and what forbids it here:
- which function a name means, and its type: the pins, and the pointer's own type
- how it is called: attributes other than harmless ones (`track_caller` adds an argument,
  `target_feature` registers)
- what else names mean: no macros, tests that import everything only where it is read as a list of
  names
- how types are inferred: no implementation of a trait that has a parameter, or for what is not the
  answer's own type
- what our text means: it stands behind a whole item, and what it defines may be defined once only
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import pairwise, takewhile

from gradus.tasks.rust import RustTask
from services.graders.rust.answer import RustAnswer
from services.graders.rust.glob_imports import find_globs, is_plain
from services.graders.rust.lexer import (
    MAX_TOKENS,
    Item,
    Kind,
    Token,
    code,
    items,
    tokens,
)
from services.graders.rust.signature import Function, Signature

_HARMLESS = frozenset(
    (
        "allow",
        "cfg",
        "clippy",
        "default",
        "deny",
        "deprecated",
        "derive",
        "doc",
        "expect",
        "forbid",
        "inline",
    )
    + ("must_use", "non_exhaustive", "repr", "rustfmt", "test", "warn")
)
"""Attributes that change nothing outside of the answer."""
_POINTER = "GRADUS_"
_REACHING = frozenset({"extern", "include", "macro", "macro_rules"})
"""Words of an answer that may bring what its tokens do not show."""
_ROOTS = frozenset({"alloc", "core", "crate", "self", "std", "super"})
"""Where tests may import everything from, beside the answer."""


def can_be_ahead(task: RustTask, signature: Signature) -> bool:
    """Return whether the tests use plain functions of an answer and nothing else, as far as the
    text shows; a stub tells the rest."""
    declared = items(code(task.signature or ""))
    return (
        task.edition != "2015"
        and all(map(_is_plain_function, declared))
        and _has_explicit_names(task, signature)
    )


def _is_plain_function(item: Item) -> bool:
    if item.word == "use":
        return True
    words = {token.text for token in item.body}
    if item.word != "fn" or words & {"async", "const", "extern", "{"}:
        return False
    function = Function.read(item.body)
    return not (function.is_opaque or function.has_types)


def _has_explicit_names(task: RustTask, signature: Signature) -> bool:
    words = [token.text for token in code(task.tests, task.edition)]
    if not all(
        is_plain(task.tests[first.start : last.start + 1], task.crate)
        for first, last in find_globs(task.tests, task.crate)
    ):
        return False
    for at, (current, following) in enumerate(pairwise(words)):
        renamed = following == "as" and current in (task.crate, "self", "crate", "super")
        if (
            renamed
            or current == "extern"
            or (current in signature.names and words[at + 1 : at + 4] == [":", ":", "<"])
        ):
            return False
        if current == "use":
            end = words.index(";", at) if ";" in words[at:] else len(words)
            root = next((word for word in words[at + 1 : end] if word != ":"), "")
            if "*" in words[at:end] and root not in {*_ROOTS, task.crate}:
                return False
    return True


def is_linkable(answer: RustAnswer, signature: Signature) -> bool:
    """Return whether the answer has functions of the declared names, and nothing of it reaches into
    the tests but these.

    Raises TooManyTokens.
    """
    functions = set()
    for item in answer.items[answer.entry]:
        if item.word == "fn":
            functions.add(item.name)
    closed = functions.issuperset(signature.names) and all(map(_is_closed, answer.tokens.values()))
    return closed and _has_final_item(answer.files[answer.entry], answer.edition)


def _has_final_item(text: str, edition: str) -> bool:
    """Return whether no attribute or doc comment at the end waits for an item."""
    reversed_tokens = []
    for token in reversed(tokens(text, edition, MAX_TOKENS)):
        if token.kind is not Kind.SPACE:
            reversed_tokens.append(token)
    last = next((token for token in reversed_tokens if token.kind is not Kind.COMMENT), None)
    comments = takewhile(lambda token: token.kind is Kind.COMMENT, reversed_tokens)
    is_plain = not any(comment.text.startswith(("///", "/**")) for comment in comments)
    return is_plain and last is not None and last.text in ("}", ";")


def _is_closed(file_tokens: Sequence[Token]) -> bool:
    names = {token.text for token in file_tokens if token.kind is Kind.NAME}
    return (
        names.isdisjoint(_REACHING)
        and _collect_attributes(file_tokens) <= _HARMLESS
        and not _has_open_implementation(file_tokens)
    )


def _collect_attributes(file_tokens: Sequence[Token]) -> set[str]:
    words = [token.text for token in file_tokens]
    places = (
        at + (words[at + 1 : at + 2] == ["!"]) for at, word in enumerate(words) if word == "#"
    )
    return {"".join(words[at + 2 : at + 3]) for at in places}


def _has_open_implementation(file_tokens: Sequence[Token]) -> bool:
    """Return whether there is an `impl` for a trait with a parameter, or for another type than a
    struct or enum of the answer. What is not certain counts as one.

    Each token is looked at once: a second `impl` before the brace is not certain.
    """
    own_types = set()
    for token, following in pairwise(file_tokens):
        if token.text in ("struct", "enum"):
            own_types.add(following.text)
    head: list[str] | None = None
    for token in file_tokens:
        if token.kind is Kind.NAME and token.text == "impl":
            if head is not None:
                return True
            head = []
        elif head is not None and token.text in ("{", ";"):
            if "[" in head or _is_open_head(head, own_types):
                return True
            head = None
        elif head is not None:
            head.append(token.text)
    return head is not None


def _is_open_head(head: Sequence[str], own_types: Collection[str]) -> bool:
    """Return whether `head`, the words behind `impl`, is of a trait with a parameter, or for a type
    that is not of `own_types`."""
    start = _skip_generics(head)
    for at in range(start, len(head)):
        following = head[at + 1] if at + 1 < len(head) else ""
        if head[at] == "for" and following != "<":
            return "<" in head[start:at] or following not in own_types
    return False


def _skip_generics(head: Sequence[str]) -> int:
    """Return where `<...>` at the start ends; `->` closes nothing."""
    if not head or head[0] != "<":
        return 0
    depth = 0
    for at, word in enumerate(head):
        if word == "<":
            depth += 1
        elif word == ">" and head[at - 1] not in ("-", "="):
            depth -= 1
        if depth == 0:
            return at + 1
    return len(head)


def render_pins(task: RustTask, signature: Signature) -> str:
    """Return text at the end of an answer: compiles if its declared functions are public, have
    their types and no second meaning, and puts a pointer to each where tests that were compiled
    before find it."""
    functions = _read_functions(task)
    names = ", ".join(functions)
    types = []
    for at, (name, function) in enumerate(functions.items()):
        types.append(f"pub static {_POINTER}{at}: {function.pointer} = {name};")
    # a function that has parameters for types has no value of its own
    values = [f"let _ = {name};" for name in functions]
    second_meanings = []
    for name in functions:
        second_meanings.append(
            f"pub use ::core::primitive::u8 as {name}; pub use ::core::column as {name};"
        )
    lines = [
        "const _: () = ();",  # for attributes that an answer might end with
        f"pub mod gradus_pins {{ pub use crate::{{{names}}}; {signature.imports} {' '.join(types)}",
        f"const _: () = {{ {' '.join(values)} }}; }}",
        f"pub mod gradus_names {{ pub use crate::{{{names}}}; {' '.join(second_meanings)} }}",
    ]
    return "\n".join([*lines, ""])


def render_stub(task: RustTask, signature: Signature) -> str:
    """Return a library whose functions call what the pointers of an answer point to. Tests compile
    them as their own code."""
    functions = enumerate(_read_functions(task).items())
    called = (
        f"#[inline] pub {function.render_caller(name, f'(gradus_pins::{_POINTER}{at})')}"
        for at, (name, function) in functions
    )
    return "\n".join(
        ["#![allow(warnings)]", signature.imports, *called, render_pins(task, signature)]
    )


def _read_functions(task: RustTask) -> dict[str, Function]:
    functions = {}
    for item in items(code(task.signature or "")):
        if item.word == "fn":
            functions[item.name] = Function.read(item.body)
    return functions
