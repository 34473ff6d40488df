"""Calls of an answer that are compiled once per task, against a stub of its signature, and then
only linked with each answer.

The stub's functions call pointers, which each answer gets from text of ours at its end. The
compiler confirms their names and types (`render_pins`). An answer that fails this is compiled
together with the calls, which decides. What is linked is the program that makes calls for the
tests' process (`remote_answer`): whatever else an answer could change in it is in its own process
and judges nothing.
"""

from __future__ import annotations

from services.graders.rust.answer import RustAnswer
from services.graders.rust.lexer import MAX_TOKENS, Kind, tokens
from services.graders.rust.signature import Signature

_POINTER = "GRADUS_"


def is_linkable(answer: RustAnswer) -> bool:
    """Return whether no attribute or doc comment at the end of the answer would belong to text
    behind it, and it has no second panic handler, which only the compiler refuses to link. Raises
    TooManyTokens."""
    if any("panic_handler" in text for text in answer.own_files.values()):
        return False
    for token in reversed(tokens(answer.files[answer.entry], answer.edition, MAX_TOKENS)):
        if token.kind is Kind.COMMENT and token.text.startswith(("///", "/**")):
            return False
        if token.kind not in (Kind.SPACE, Kind.COMMENT):
            return token.text in ("}", ";")
    return False


def render_pins(signature: Signature) -> str:
    """Return text at the end of an answer: compiles if its declared functions are public, have
    their types and no second meaning, and puts a pointer to each where tests that were compiled
    before find it."""
    functions = dict(signature.functions)
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


def render_stub(signature: Signature) -> str:
    """Return a library whose functions call what the pointers of an answer point to. Tests compile
    them as their own code."""
    functions = enumerate(signature.functions)
    called = (
        f"#[inline] pub {function.render_caller(name, f'(gradus_pins::{_POINTER}{at})')}"
        for at, (name, function) in functions
    )
    return "\n".join(["#![allow(warnings)]", signature.imports, *called, render_pins(signature)])
