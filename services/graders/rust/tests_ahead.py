"""Tests that are compiled once per task, against a stub of its signature, and then only linked with
each answer.

The stub's functions call pointers, which each answer gets from text of ours at its end. The object
code of tests can only depend on an answer by what they use of it, and here that is functions of
known types alone. Task and answer are looked at for what else of a crate can reach into others, and
the compiler confirms names and types (`pins_text`). An answer that fails any of this is compiled
together with the tests, which decides. Compiles nothing itself.

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

from collections.abc import Iterator, Sequence
from itertools import pairwise, takewhile

from gradus.tasks.rust import RustTask
from services.graders.rust.answer import RustAnswer
from services.graders.rust.glob_imports import globs, is_plain
from services.graders.rust.lexer import (
    MAX_TOKENS,
    Item,
    Kind,
    Token,
    closing_bracket,
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
    """The tests use plain functions of an answer and nothing else, as far as the text shows; a stub
    tells the rest."""
    declared = items(code(task.signature or ""))
    return (
        task.edition != "2015"
        and all(map(_is_plain_function, declared))
        and _names_what_it_uses(task, signature)
    )


def _is_plain_function(item: Item) -> bool:
    if item.word == "use":
        return True
    words = {token.text for token in item.body}
    if item.word != "fn" or words & {"async", "const", "extern", "{"}:
        return False
    function = Function.read(item.body)
    return not (function.is_opaque or function.has_types)


def _names_what_it_uses(task: RustTask, signature: Signature) -> bool:
    words = [token.text for token in code(task.tests, task.edition)]
    if not all(
        is_plain(task.tests[first.start : last.start + 1], task.crate)
        for first, last in globs(task.tests, task.crate)
    ):
        return False
    for at, (one, other) in enumerate(pairwise(words)):
        renamed = other == "as" and one in (task.crate, "self", "crate", "super")
        if (
            renamed
            or one == "extern"
            or (one in signature.names and words[at + 1 : at + 4] == [":", ":", "<"])
        ):
            return False
        if one == "use":
            end = words.index(";", at) if ";" in words[at:] else len(words)
            root = next((word for word in words[at + 1 : end] if word != ":"), "")
            if "*" in words[at:end] and root not in {*_ROOTS, task.crate}:
                return False
    return True


def fits(answer: RustAnswer, signature: Signature) -> bool:
    """The answer has functions of the declared names, and nothing of it reaches into the tests but
    these.

    Raises TooManyTokens.
    """
    functions = {item.name for item in answer.items[answer.entry] if item.word == "fn"}
    closed = functions.issuperset(signature.names) and all(map(_is_closed, answer.tokens.values()))
    return closed and _ends_with_item(answer.files[answer.entry], answer.edition)


def _ends_with_item(text: str, edition: str) -> bool:
    """No attribute or doc comment at the end waits for an item."""
    behind = [
        token
        for token in reversed(tokens(text, edition, MAX_TOKENS))
        if token.kind is not Kind.SPACE
    ]
    last = next((token for token in behind if token.kind is not Kind.COMMENT), None)
    comments = takewhile(lambda token: token.kind is Kind.COMMENT, behind)
    is_plain = not any(one.text.startswith(("///", "/**")) for one in comments)
    return is_plain and last is not None and last.text in ("}", ";")


def _is_closed(found: Sequence[Token]) -> bool:
    names = {token.text for token in found if token.kind is Kind.NAME}
    return (
        names.isdisjoint(_REACHING)
        and _attributes(found) <= _HARMLESS
        and not any(_open_implementations(found))
    )


def _attributes(found: Sequence[Token]) -> set[str]:
    words = [token.text for token in found]
    places = (
        at + (words[at + 1 : at + 2] == ["!"]) for at, word in enumerate(words) if word == "#"
    )
    return {"".join(words[at + 2 : at + 3]) for at in places}


def _open_implementations(found: Sequence[Token]) -> Iterator[int]:
    """Positions of `impl` for a trait with a parameter, or for another type than a struct or enum
    of the answer."""
    words = [token.text for token in found]
    own = {name for word, name in pairwise(words) if word in ("struct", "enum")}
    for at in (
        at for at, token in enumerate(found) if token.kind is Kind.NAME and token.text == "impl"
    ):
        end = next((n for n in range(at, len(words)) if words[n] in ("{", ";")), len(words))
        start = at + 1
        if words[start : start + 1] == ["<"]:
            start = closing_bracket(found, start) + 1
        places = [n for n in range(at, end) if words[n] == "for" and words[n + 1 : n + 2] != ["<"]]
        if places and ("<" in words[start : places[0]] or words[places[0] + 1] not in own):
            yield at


def pins_text(task: RustTask, signature: Signature) -> str:
    """Text at the end of an answer: compiles if its declared functions are public, have their types
    and no second meaning, and puts a pointer to each where tests that were compiled before find
    it."""
    functions = _functions(task)
    names = ", ".join(functions)
    types = [
        f"pub static {_POINTER}{at}: {one.pointer} = {name};"
        for at, (name, one) in enumerate(functions.items())
    ]
    # a function that has parameters for types has no value of its own
    values = [f"let _ = {name};" for name in functions]
    others = [
        f"pub use ::core::primitive::u8 as {name}; pub use ::core::column as {name};"
        for name in functions
    ]
    lines = [
        "const _: () = ();",  # for attributes that an answer might end with
        f"pub mod gradus_pins {{ pub use crate::{{{names}}}; {signature.imports} {' '.join(types)}",
        f"const _: () = {{ {' '.join(values)} }}; }}",
        f"pub mod gradus_names {{ pub use crate::{{{names}}}; {' '.join(others)} }}",
    ]
    return "\n".join([*lines, ""])


def stub_text(task: RustTask, signature: Signature) -> str:
    """A library whose functions call what the pointers of an answer point to. Tests compile them as
    their own code."""
    functions = enumerate(_functions(task).items())
    called = (
        f"#[inline] pub {one.calling(name, f'(gradus_pins::{_POINTER}{at})')}"
        for at, (name, one) in functions
    )
    return "\n".join(
        ["#![allow(warnings)]", signature.imports, *called, pins_text(task, signature)]
    )


def _functions(task: RustTask) -> dict[str, Function]:
    return {
        item.name: Function.read(item.body)
        for item in items(code(task.signature or ""))
        if item.word == "fn"
    }
