"""What a task declares: names, and the exact types of its functions, as Rust that does not compile for any others.

    pub fn longest<'a>(a: &'a str, b: &'a str) -> &'a str;
    pub struct Stack<T>;
    impl<T: Clone> Stack<T> { pub fn push(&mut self, x: T); }

A declared function becomes a *pin*, `let _: for<'a> fn(&'a str, &'a str) -> &'a str = solution::longest;`: a function
item turns into a function pointer of its own type only, so nothing else that behaves like the declared types will do,
nor a generic function that is something else for the types of the tests.
Does not check the declarations themselves: one that is wrong fails with every answer, and the task is not admitted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from services.graders.rust.lexer import Item, Kind, Token, code, items

_TYPES = frozenset({"struct", "enum", "union", "trait", "type"})
_SELF_LIFETIME = "'gradus_self"


@dataclass(frozen=True, slots=True)
class TypePin:
    name: str
    """As a person would say it: `push`, `Stack::push`."""
    source: str
    """One line."""


@dataclass(frozen=True, slots=True)
class Signature:
    names: tuple[str, ...]
    """Declared at the crate's root, in order."""
    pins: tuple[TypePin, ...]
    own_equality: frozenset[str] = frozenset()
    """Types that are to say themselves when their values are equal: `impl PartialEq for T` is declared."""


@lru_cache(maxsize=256)
def parse_signature(text: str, crate: str) -> Signature:
    declared = list(items(code(text)))
    names = tuple(dict.fromkeys(item.name for item in declared if item.name))
    pins = [pin for item in declared for pin in _pins(item, crate)]
    return Signature(names, tuple(pins), frozenset(_own_equality(declared)))


def _own_equality(declared: Sequence[Item]) -> Iterator[str]:
    for item in declared:
        words = [token.text for token in item.body]
        if item.word == "impl" and "for" in words and "PartialEq" in words[: words.index("for")]:
            yield words[words.index("for") + 1]


def _pins(item: Item, crate: str) -> Iterator[TypePin]:
    if item.word == "fn":
        yield _pin(Function.read(item.body), f"::{crate}::{item.name}", item.name)
    elif item.word == "impl":
        generics, rest = _generics(item.body[1:])
        brace = next((at for at, token in enumerate(rest) if token.text == "{"), len(rest))
        owner, where = _split_where(rest[:brace])
        of_trait = _split(owner, "for")
        receiver = of_trait[-1]
        for inner in items(rest[brace + 1 : -1]):
            if inner.word == "fn":
                function = Function.read(inner.body).of(receiver, generics, where)
                called = f"<{_text(receiver)}{' as ' + _text(of_trait[0]) if len(of_trait) > 1 else ''}>::{inner.name}"
                yield _pin(function, called, f"{receiver[0].text}::{inner.name}")


def _pin(function: Function, path: str, name: str) -> TypePin:
    lifetimes = [part for part in function.generics if part[0].kind is Kind.LIFETIME]
    others = [part for part in function.generics if part[0].kind is not Kind.LIFETIME]
    bound = ", ".join([*(_text(part[:1]) for part in lifetimes), *([_SELF_LIFETIME] if function.by_reference else [])])
    given = ", ".join(_text(part) for part in others)
    takes = ", ".join(_text(part) for part in function.takes)
    gives = f" -> {_text(function.gives)}" if function.gives else ""
    where = f" where {_text(function.where)}" if function.where else ""
    pointer = f"{f'for<{bound}> ' if bound else ''}fn({takes}){gives}"
    # Left to itself, a function with type parameters has no type: it may not have any that are not declared.
    alone = "" if function.has_types else f"let _ = {path}; "
    return TypePin(name, f"#[allow(warnings)] fn pin<{given}>(){where} {{ {alone}let _: {pointer} = {path}; }}")


_Tokens = Sequence[Token]


@dataclass(frozen=True, slots=True)
class Function:
    """The head of a function, in pieces."""

    generics: tuple[_Tokens, ...]
    takes: tuple[_Tokens, ...]
    gives: _Tokens
    where: _Tokens
    has_types: bool
    """It has type parameters of its own."""
    by_reference: bool = False
    """It is a method that borrows its receiver, so that elided lifetimes of its result are the receiver's."""

    @classmethod
    def read(cls, body: _Tokens) -> Function:
        after_name = next(at for at, token in enumerate(body) if token.text == "fn") + 2
        generics, rest = _generics(body[after_name:])
        closing = _closing(rest, 0)
        parameters = [_type_of(part) for part in _split(rest[1:closing], ",") if part]
        tail = [token for token in rest[closing + 1 :] if token.text != ";"]
        gives, where = _split_where(tail)
        gives = gives[2:] if len(gives) > 1 and (gives[0].text, gives[1].text) == ("-", ">") else ()
        has_types = any(part[0].kind is not Kind.LIFETIME for part in generics)
        return cls(generics, tuple(parameters), gives, where, has_types)

    def of(self, receiver: _Tokens, generics: tuple[_Tokens, ...], where: _Tokens) -> Function:
        """The same as a function of an `impl` block."""
        takes = list(self.takes)
        by_reference = bool(takes) and takes[0][0].text == "&" and takes[0][-1].text == "self"
        if takes and takes[0][-1].text in ("self", "Self"):
            takes[0] = _self_type(takes[0], receiver)
        gives = _borrowed(self.gives) if by_reference else self.gives
        own = [
            [one for token in part for one in (receiver if token.text == "Self" else (token,))]
            for part in (*takes, gives)
        ]
        comma = (_token(","),) if self.where and where and self.where[-1].text != "," else ()
        both = (*self.where, *comma, *where)
        return Function((*generics, *self.generics), tuple(own[:-1]), own[-1], both, self.has_types, by_reference)


def _self_type(parameter: _Tokens, receiver: _Tokens) -> _Tokens:
    """`&'a mut self` as a type."""
    if parameter[0].text != "&":
        return receiver
    kept = [token for token in parameter[1:-1]]
    named = kept and kept[0].kind is Kind.LIFETIME
    lifetime = [] if named else [_token(_SELF_LIFETIME)]
    return [parameter[0], *lifetime, *kept, *receiver]


def _borrowed(gives: _Tokens) -> _Tokens:
    """`gives` with the receiver's lifetime where it elides one."""
    out: list[Token] = []
    for at, token in enumerate(gives):
        following = gives[at + 1] if at + 1 < len(gives) else None
        out.append(_token(_SELF_LIFETIME) if token.text == "'_" else token)
        if token.text == "&" and (following is None or following.kind is not Kind.LIFETIME):
            out.append(_token(_SELF_LIFETIME))
    return out


def _type_of(parameter: _Tokens) -> _Tokens:
    """Of `mut x: T` the type, of `&mut self` all of it."""
    for at, token in enumerate(parameter):
        beside = [parameter[n].text for n in (at - 1, at + 1) if 0 <= n < len(parameter)]
        if token.text == ":" and ":" not in beside:
            return [*parameter[at + 1 :]]
    return [token for token in parameter if token.text != "mut" or parameter[0].text == "&"]


def _generics(body: _Tokens) -> tuple[tuple[_Tokens, ...], _Tokens]:
    """The parameters in `<...>` at the start, and what follows."""
    if not body or body[0].text != "<":
        return (), body
    closing = _closing(body, 0)
    return tuple(part for part in _split(body[1:closing], ",") if part), body[closing + 1 :]


def _split_where(body: _Tokens) -> tuple[_Tokens, _Tokens]:
    parts = _split(body, "where")
    return parts[0], parts[1] if len(parts) > 1 else ()


def _closing(body: _Tokens, opening: int) -> int:
    """Where the bracket that opens at `opening` closes; `->` closes nothing."""
    depth = 0
    for at in range(opening, len(body)):
        text = body[at].text
        if text in ("<", "(", "[", "{"):
            depth += 1
        elif text in (")", "]", "}") or (text == ">" and body[at - 1].text not in ("-", "=")):
            depth -= 1
        if depth == 0:
            return at
    return len(body) - 1


def _split(body: _Tokens, separator: str) -> list[_Tokens]:
    """Cut at `separator` outside of brackets."""
    parts: list[_Tokens] = []
    start = at = 0
    while at < len(body):
        if body[at].text in ("<", "(", "[", "{"):
            at = _closing(body, at)
        elif body[at].text == separator:
            parts.append(body[start:at])
            start = at + 1
        at += 1
    return [*parts, body[start:]]


def _text(body: _Tokens) -> str:
    """Tokens as source; without a space only where Rust wants none."""
    out = ""
    for at, token in enumerate(body):
        glued = at and token.text in (":", ">", "=") and body[at - 1].text in (":", "-", "=")
        out += token.text if glued or not out else " " + token.text
    return out


def _token(text: str) -> Token:
    return Token(Kind.SIGN, text, 0, 0)
