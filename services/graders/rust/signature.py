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
from dataclasses import dataclass, replace
from functools import lru_cache

from services.graders.rust.lexer import Item, Kind, Token, code, items

_TYPES = frozenset({"struct", "enum", "union", "trait", "type"})
_SELF_LIFETIME = "'gradus_self"
_OWN_LIFETIME = "'gradus_own"
"""`'_` in the head of an `impl`."""
_IMPLEMENTOR = "GradusImplementor"
"""A type parameter in pins: anything that implements a declared trait."""


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
    refused: str | None = None
    """Why no answer can meet it, if that is known."""
    own_equality: frozenset[str] = frozenset()
    """Types that are to say themselves when their values are equal: `impl PartialEq for T` is declared."""


@lru_cache(maxsize=256)
def parse_signature(text: str, crate: str) -> Signature:
    declared = list(items(code(text)))
    names = tuple(dict.fromkeys(item.name for item in declared if item.name))
    pins = [pin for item in declared for pin in _pins(item, crate)]
    refused = None
    for item in declared:
        if any(token.text == "unsafe" for token in item.body):
            refused = "its signature declares something `unsafe`, which no answer may have"
        elif item.word == "macro_rules" or [token.text for token in item.body[:2]][1:] == ["!"]:
            begin = " ".join(token.text for token in item.body[:4])
            refused = f"its signature has `{begin} ...`, which is nothing that can be declared"
    return Signature(names, tuple(pins), refused, frozenset(_own_equality(declared)))


def _own_equality(declared: Sequence[Item]) -> Iterator[str]:
    for item in declared:
        words = [token.text for token in item.body]
        if item.word == "impl" and "for" in words and "PartialEq" in words[: words.index("for")]:
            yield words[words.index("for") + 1]


def _pins(item: Item, crate: str) -> Iterator[TypePin]:
    start = next((at for at, token in enumerate(item.body) if token.text == item.word), 0)
    body = item.body[start:]
    path = f"::{crate}::{item.name}"
    if item.word == "fn":
        yield _pin(Function.read(item.body), path, item.name)
    elif item.word in ("struct", "enum"):
        generics, rest = _generics(body[2:])
        yield from _type_pins(item, generics, rest, path)
    elif item.word in ("const", "static") and ":" in (words := [token.text for token in body]):
        end = next((at for at, text in enumerate(words) if text in ("=", ";")), len(words))
        yield _place_pin((), "", f"&{path}", [("*gradus_pinned", body[words.index(":") + 1 : end])], item.name)
    elif item.word == "type" and len(body) > 3 and body[2].text == "=":
        yield _place_pin((), path, "", [("*gradus_pinned", _before_body(body[3:]))], item.name)
    elif item.word == "trait":
        generics, rest = _generics(body[2:])
        if not generics:
            brace = next((at for at, token in enumerate(rest) if token.text == "{"), len(rest))
            receiver = (_token(_IMPLEMENTOR),)
            bound = (*receiver, _token(":"), _token(path))
            for inner in items(rest[brace + 1 : -1]):
                if inner.word == "fn":
                    function = Function.read(inner.body).of(receiver, (bound,), (), _token(path))
                    yield _pin(function, f"<{_IMPLEMENTOR} as {path}>::{inner.name}", f"{item.name}::{inner.name}")
    elif item.word == "impl":
        generics, rest = _generics(body[1:])
        brace = next((at for at, token in enumerate(rest) if token.text == "{"), len(rest))
        owner, where = _split_where(rest[:brace])
        if any(token.text == "'_" for token in owner):
            owner = [_token(_OWN_LIFETIME, Kind.LIFETIME) if token.text == "'_" else token for token in owner]
            generics = ((_token(_OWN_LIFETIME, Kind.LIFETIME),), *generics)
        of_trait = _split(owner, "for")
        implementor = of_trait[-1]
        trait: _Tokens = of_trait[0] if len(of_trait) > 1 else ()
        for inner in items(rest[brace + 1 : -1]):
            if inner.word == "fn":
                function = Function.read(inner.body).of(implementor, generics, where, *trait)
                called = f"<{_text(implementor)}{' as ' + _text(trait) if trait else ''}>::{inner.name}"
                yield _pin(function, called, f"{implementor[0].text}::{inner.name}")


def _type_pins(item: Item, generics: tuple[_Tokens, ...], rest: _Tokens, path: str) -> Iterator[TypePin]:
    """Public fields of a struct, fields of an enum's variants: exactly as declared, and there."""
    generics = tuple(_split(part, "=")[0] for part in generics)  # without defaults, which functions cannot have
    given = ", ".join(_text(_split(part, ":")[0][-1:]) for part in generics)
    of_type = f"{path}<{given}>" if given else path
    brace = next((at for at, token in enumerate(rest) if token.text in ("{", "(")), None)
    if brace is None:
        return
    inside = rest[brace + 1 : _closing(rest, brace)]
    if item.word == "enum":
        for part in _split(inside, ","):
            variant = _without_attributes(part)
            if variant and variant[0].kind is Kind.NAME:
                name = variant[0].text
                opening = variant[1].text if len(variant) > 1 else ""
                declared = _fields(variant[2 : _closing(variant, 1)], opening) if opening in ("(", "{") else []
                names = [f"gradus_{number}" for number in range(len(declared))]
                pairs = (f"{one[0]}: {bound}" for one, bound in zip(declared, names, strict=True))
                fields = ", ".join(pairs if opening == "{" else names)
                pattern = f"{path}::{name}" + {"(": f"({fields})", "{": f" {{ {fields} }}"}.get(opening, "")
                places = [(f"*{bound}", one[1]) for bound, one in zip(names, declared, strict=True)]
                yield _place_pin(generics, of_type, "", places, f"{item.name}::{name}", pattern)
    else:
        public = [(name, of) for name, of, is_public in _fields(inside, rest[brace].text) if is_public]
        if public:
            yield _place_pin(generics, of_type, "", [(f"gradus_pinned.{name}", of) for name, of in public], item.name)


def _fields(inside: _Tokens, opening: str) -> list[tuple[str, _Tokens, bool]]:
    """Name or number, type, and whether it is public, of each field."""
    found = []
    for number, part in enumerate(part for part in _split(inside, ",") if part):
        field = _without_attributes(part)
        is_public = bool(field) and field[0].text == "pub"
        if is_public:
            restricted = len(field) > 1 and field[1].text == "(" and opening == "{"
            field, is_public = field[1:], not restricted
        if opening == "{":
            if len(field) > 2 and field[0].kind is Kind.NAME:
                found.append((field[0].text, field[2:], is_public))
        else:
            found.append((str(number), field, is_public))
    return found


def _without_attributes(part: _Tokens) -> _Tokens:
    while len(part) > 1 and part[0].text == "#":
        part = part[_closing(part, 1) + 1 :]
    return part


def _place_pin(
    generics: tuple[_Tokens, ...],
    of_type: str,
    value: str,
    places: Sequence[tuple[str, _Tokens]],
    name: str,
    pattern: str = "",
) -> TypePin:
    """Raw pointers to places are of exactly the declared types: nothing is converted on the way."""
    given = ", ".join(_text(part) for part in generics)
    checks = " ".join(f"let _: *const {_text(of)} = ::std::ptr::addr_of!({place});" for place, of in places)
    if value:
        return TypePin(name, f"#[allow(warnings)] fn pin() {{ let gradus_pinned = {value}; {checks} }}")
    if pattern:
        checks = f"if let {pattern} = gradus_pinned {{ {checks} }}"
    return TypePin(name, f"#[allow(warnings)] fn pin<{given}>(gradus_pinned: &{of_type}) {{ {checks} }}")


def _lifetimes_first(generics: Sequence[_Tokens]) -> list[_Tokens]:
    return sorted(generics, key=lambda part: part[0].kind is not Kind.LIFETIME)


def _pin(function: Function, path: str, name: str) -> TypePin:
    lifetimes = [part for part in function.generics if part[0].kind is Kind.LIFETIME]
    others = [part for part in function.generics if part[0].kind is not Kind.LIFETIME]
    given = ", ".join(_text(part) for part in (*_lifetimes_first(function.outer), *others))
    where = f" where {_text(function.where)}" if function.where else ""
    takes = ", ".join(_text(part) for part in function.takes)
    gives = f" -> {_text(function.gives)}" if function.gives else ""
    if function.is_opaque:
        # Such a function has no pointer type that can be written: it is called.
        own = [[_token(_SELF_LIFETIME)]] if function.by_reference else []
        all_given = ", ".join(_text(part) for part in (*own, *_lifetimes_first((*function.outer, *function.generics))))
        names = [f"gradus_{number}" for number in range(len(function.takes))]
        taken = ", ".join(f"{one}: {_text(of)}" for one, of in zip(names, function.takes, strict=True))
        call = f"{path}({', '.join(names)})"
        asynchronous = "async " if function.is_async else ""
        call = f"{call}.await" if function.is_async else call
        inner = f"{asynchronous}fn call<{all_given}>({taken}){gives}{where} {{ {call} }}"
        return TypePin(name, f"#[allow(warnings)] fn pin() {{ {inner} }}")
    bound = ", ".join([*(_text(part[:1]) for part in lifetimes), *([_SELF_LIFETIME] if function.by_reference else [])])
    pointer = f"{f'for<{bound}> ' if bound else ''}{function.abi}fn({takes}){gives}"
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
    is_async: bool = False
    abi: str = ""
    """`extern "C" `, before its pointer type."""
    outer: tuple[_Tokens, ...] = ()
    """Parameters of the `impl` block that it is in."""

    @classmethod
    def read(cls, body: _Tokens) -> Function:
        after_name = next(at for at, token in enumerate(body) if token.text == "fn") + 2
        generics, rest = _generics(body[after_name:])
        closing = _closing(rest, 0)
        parameters = [_type_of(part) for part in _split(rest[1:closing], ",") if part]
        tail = _before_body(rest[closing + 1 :])
        gives, where = _split_where(tail)
        gives = gives[2:] if len(gives) > 1 and (gives[0].text, gives[1].text) == ("-", ">") else ()
        has_types = any(part[0].kind is not Kind.LIFETIME for part in generics)
        is_async = any(token.text == "async" for token in body[:after_name])
        before = [token.text for token in body[: after_name - 2]]
        abi = " ".join(before[before.index("extern") :]) + " " if "extern" in before else ""
        return cls(generics, tuple(parameters), gives, where, has_types, is_async=is_async, abi=abi)

    @property
    def is_opaque(self) -> bool:
        """It is asynchronous, or takes or gives an `impl Trait`."""
        return self.is_async or any(part and part[0].text == "impl" for part in (*self.takes, self.gives))

    def of(self, receiver: _Tokens, generics: tuple[_Tokens, ...], where: _Tokens, *trait: Token) -> Function:
        """This function outside of its `impl` block, with `receiver` for `self` and `Self`; the block is of `trait`."""
        takes = list(self.takes)
        by_reference = bool(takes) and takes[0][0].text == "&" and takes[0][-1].text == "self"
        if takes and takes[0][-1].text in ("self", "Self"):
            takes[0] = _self_type(takes[0], receiver)
        gives = _borrowed(self.gives) if by_reference else self.gives
        own = [_with_receiver(part, receiver, trait) for part in (*takes, gives)]
        comma = (_token(","),) if self.where and where and self.where[-1].text != "," else ()
        both = (*self.where, *comma, *where)
        return replace(
            self,
            outer=generics,
            takes=tuple(own[:-1]),
            gives=own[-1],
            where=_with_receiver(both, receiver, trait),
            by_reference=by_reference,
        )


def _with_receiver(part: _Tokens, receiver: _Tokens, trait: _Tokens) -> _Tokens:
    """`part` with the receiver for `Self`; for `Self::Item` with the trait that has the type."""
    out: list[Token] = []
    for at, token in enumerate(part):
        qualified = trait and [one.text for one in part[at + 1 : at + 3]] == [":", ":"]
        if token.text != "Self":
            out.append(token)
        elif qualified:
            out += [_token("<"), *receiver, _token("as"), *trait, _token(">")]
        else:
            out += receiver
    return out


def _before_body(tail: _Tokens) -> _Tokens:
    """What stands before the body or the semicolon of a function."""
    at = 0
    while at < len(tail) and tail[at].text not in ("{", ";"):
        at = _closing(tail, at) + 1 if tail[at].text in ("<", "(", "[") else at + 1
    return tail[:at]


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
    """The type `T` of a parameter `mut x: T`; the whole parameter for `&mut self`."""
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


def _token(text: str, kind: Kind = Kind.SIGN) -> Token:
    return Token(kind, text, 0, 0)
