"""A known hole of the borrow checker (rust-lang/rust#25860), recognised by its shape. Proves nothing about others.

A function may take for granted that one lifetime outlives another because a type in its signature needs that
(`&'a &'b ()`). As a function *pointer* it forgets the condition, and then hands out references to what is gone: safe
code that can write any memory, the harness's too. Answers that use such a function as a value are refused; writing
the bound (`'b: 'a`) closes the hole and is allowed. Functions that a macro names, in an answer with several lifetimes,
are refused too; one whose tokens are put together in yet other ways is not recognised.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from services.graders.rust.lexer import Kind, Token, macro_bodies
from services.graders.rust.signature import Function


def assumed_bounds(found: Sequence[Token]) -> Iterator[Token]:
    """The name of every function that takes a bound between lifetimes for granted and is used as a value."""
    for at, token in enumerate(found):
        if token.text == "fn" and at + 2 < len(found) and found[at + 2].text == "<":
            name = found[at + 1]
            end = next((n for n in range(at, len(found)) if found[n].text in ("{", ";")), len(found))
            if _takes_for_granted(Function.read(found[at:end])) and _is_a_value(found, name):
                yield name
    if len(_lifetimes(found) - {"'static", "'_"}) > 1:
        for body in macro_bodies(found):
            pairs = zip(body, body[1:], strict=False)
            yield from (word for word, name in pairs if word.text == "fn" and name.text == "$")


def _takes_for_granted(function: Function) -> bool:
    lifetimes = {part[0].text for part in function.generics if part[0].kind is Kind.LIFETIME and len(part) == 1}
    bounded = {token.text for token in function.where if token.kind is Kind.LIFETIME}
    free = lifetimes - bounded
    taken = [_lifetimes(part) & free for part in function.takes]
    given = _lifetimes(function.gives) & free
    nested = [some for some in (*taken, given) if len(some) > 1]
    return any(any(part - {out} for part in taken) for out in given) if nested else False


def _lifetimes(part: Sequence[Token]) -> set[str]:
    return {token.text for token in part if token.kind is Kind.LIFETIME}


def _is_a_value(found: Sequence[Token], name: Token) -> bool:
    """Named somewhere other than in its definition or a call."""
    uses = (at for at, token in enumerate(found) if token.kind is Kind.NAME and token.text == name.text)
    return any(
        found[at - 1].text not in ("fn", ".") and (at + 1 == len(found) or found[at + 1].text != "(")
        for at in uses
        if at > 0
    )
