"""What a task declares: names, and the exact types of its functions, as Rust that does not compile
for any others.

    pub fn longest<'a>(a: &'a str, b: &'a str) -> &'a str;
    pub struct Stack<T>;
    impl<T: Clone> Stack<T> { pub fn push(&mut self, x: T); }

A declared function becomes a *pin*, `let _: for<'a> fn(&'a str, &'a str) -> &'a str =
solution::longest;`: a function item turns into a function pointer of its own type only, so nothing
else that behaves like the declared types will do, nor a generic function that is something else for
the types of the tests. Modules are declared with what is in them; `use` brings names that the
declarations need. What cannot be declared is refused here, declarations that are no Rust are found
by `task_check`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from services.graders.rust.lexer import Item, Kind, Token, closing_bracket, code, inner_items, items

_DECLARED = frozenset(
    {"fn", "struct", "enum", "trait", "type", "const", "static", "impl", "mod", "use"}
)
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
    """Types that are to say themselves when their values are equal: `impl PartialEq for T` is
    declared."""
    imports: str = ""
    """The `use` items, in one line."""


@lru_cache(maxsize=256)
def parse_signature(text: str, crate: str) -> Signature:
    declared = list(items(code(text)))
    return Signature(
        _names(declared),
        tuple(_pins_of(declared, f"::{crate}")),
        next(_refused(declared), None),
        frozenset(_own_equality(declared)),
        " ".join(_text(item.body) for item in declared if item.word == "use"),
    )


def _names(declared: Sequence[Item]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(item.name for item in declared if item.name))


def _pins_of(declared: Sequence[Item], path: str) -> Iterator[TypePin]:
    for item in declared:
        if item.word == "mod":
            inner = inner_items(item)
            scope = f"use super::*; use {path}::{item.name}::{{{', '.join(_names(inner))}}};"
            for pin in _pins_of(inner, f"{path}::{item.name}"):
                source = f"mod gradus_inner {{ {scope} const _: () = {{ {pin.source} }}; }}"
                yield TypePin(f"{item.name}::{pin.name}", source)
        else:
            yield from _pins(item, path)


def _refused(declared: Sequence[Item]) -> Iterator[str]:
    """What of the declarations no answer can meet."""
    for item in declared:
        words = [token.text for token in item.body]
        where = f"line {item.first_line} of its signature"
        if "unsafe" in words:
            yield f"{where} declares something `unsafe`, which no answer may have"
        elif item.word == "union":
            yield f"{where} declares a `union`, whose fields only `unsafe` code can read"
        elif item.word == "static" and "mut" in words[:4]:
            yield f"{where} declares a `static mut`, which only `unsafe` code can use"
        elif item.word not in _DECLARED or words[1:2] == ["!"]:
            yield f"{where} has `{' '.join(words[:4])} ...`, which is nothing that can be declared"
        elif item.word == "mod":
            yield from _refused(inner_items(item))


def _own_equality(declared: Sequence[Item]) -> Iterator[str]:
    for item in declared:
        words = [token.text for token in item.body]
        if item.word == "impl" and "for" in words and "PartialEq" in words[: words.index("for")]:
            yield words[words.index("for") + 1]


def _pins(item: Item, root: str) -> Iterator[TypePin]:
    """`root`: the path of the module that the item is in."""
    start = next((at for at, token in enumerate(item.body) if token.text == item.word), 0)
    body = item.body[start:]
    path = f"{root}::{item.name}"
    if item.word == "fn":
        yield _pin(Function.read(item.body), path, item.name)
    elif item.word in ("struct", "enum"):
        generics, rest = split_generics(body[2:])
        yield from _type_pins(item, generics, rest, path)
    elif item.word in ("const", "static"):
        if type_ := declared_type(body):
            yield _place_pin((), "", f"&{path}", [("*gradus_pinned", type_)], item.name)
    elif item.word == "type" and len(body) > 3 and body[2].text == "=":
        yield _place_pin((), path, "", [("*gradus_pinned", _before_body(body[3:]))], item.name)
    elif item.word == "trait":
        generics, rest = split_generics(body[2:])
        head, where = _split_where(rest[: _brace(rest)])
        generics = tuple(_split(part, "=")[0] for part in generics)
        trait: _Tokens = (_token(path), *_arguments(generics))
        receiver = (_token(_IMPLEMENTOR),)
        outer = (*generics, (*receiver, _token(":"), *trait))
        yield from _members(item, receiver, trait, outer, where, item.name)
        if len(head) > 1 and head[0].text == ":" and not generics:
            bound = f"fn has<T: ?Sized + {_text(head[1:])}>() {{}}"
            pinned = f"fn pin<{_text(outer[0])}>() {{ {bound} has::<{_IMPLEMENTOR}>(); }}"
            yield TypePin(item.name, f"#[allow(warnings)] {pinned}")
    elif item.word == "impl":
        generics, rest = split_generics(body[1:])
        owner, where = _split_where(rest[: _brace(rest)])
        owner = [token for token in owner if token.text != ";"]
        if any(token.text == "'_" for token in owner):
            owner = [
                _token(_OWN_LIFETIME, Kind.LIFETIME) if token.text == "'_" else token
                for token in owner
            ]
            generics = ((_token(_OWN_LIFETIME, Kind.LIFETIME),), *generics)
        of_trait = _split(owner, "for")
        implementor = of_trait[-1]
        trait = of_trait[0] if len(of_trait) > 1 else ()
        if not implementor:
            return
        yield from _members(item, implementor, trait, generics, where, implementor[0].text)
        if trait and not generics:
            unsized = "?Sized + " if implementor[0].text in ("str", "[", "dyn") else ""
            bound = f"fn has<T: {unsized}{_text(trait)}>() {{}} has::<{_text(implementor)}>();"
            yield TypePin(implementor[0].text, f"#[allow(warnings)] fn pin() {{ {bound} }}")


def _brace(rest: _Tokens) -> int:
    return next((at for at, token in enumerate(rest) if token.text == "{"), len(rest))


def _arguments(generics: Sequence[_Tokens]) -> _Tokens:
    """`<'a, T, N>` of `'a: 'b, T: Clone, const N: usize`."""
    if not generics:
        return ()
    given = [part[1] if part[0].text == "const" else part[0] for part in generics]
    return [_token("<"), *(token for one in given for token in (one, _token(","))), _token(">")]


def declared_type(body: _Tokens) -> _Tokens:
    """`T` of `const N: T = 1;`."""
    words = [token.text for token in body]
    end = next(
        (at for at, text in enumerate(words) if text == "="), len(words) - (words[-1] == ";")
    )
    return body[words.index(":") + 1 : end] if ":" in words[:end] else ()


def _members(
    item: Item,
    receiver: _Tokens,
    trait: _Tokens,
    generics: tuple[_Tokens, ...],
    where: _Tokens,
    name: str,
) -> Iterator[TypePin]:
    """Functions, constants and types of a trait or an `impl`. `trait`: empty for an `impl` of the
    type's own."""
    owner = f"<{_text(receiver)}{' as ' + _text(trait) if trait else ''}>"
    for inner in inner_items(item):
        path = f"{owner}::{inner.name}"
        if inner.word == "fn":
            yield _pin(
                Function.read(inner.body).of(receiver, generics, where, *trait),
                path,
                f"{name}::{inner.name}",
            )
        elif inner.word == "const" and (type_ := declared_type(inner.body)):
            type_ = _with_receiver(type_, receiver, trait)
            places = [("*gradus_pinned", type_)]
            yield _place_pin(generics, "", f"&{path}", places, f"{name}::{inner.name}", where=where)
        elif inner.word == "type":
            words = [token.text for token in inner.body]
            same = inner.body[words.index("=") + 1 : -1] if "=" in words else ()
            places = [("*gradus_pinned", _with_receiver(same, receiver, trait))] if same else []
            if "<" not in words[: words.index("=") if same else None]:
                yield _place_pin(generics, path, "", places, f"{name}::{inner.name}", where=where)


def _type_pins(
    item: Item, generics: tuple[_Tokens, ...], rest: _Tokens, path: str
) -> Iterator[TypePin]:
    """Public fields of a struct, fields of an enum's variants: exactly as declared, and there."""
    generics = tuple(
        _split(part, "=")[0] for part in generics
    )  # without defaults, which functions cannot have
    given = ", ".join(_text(_split(part, ":")[0][-1:]) for part in generics)
    of_type = f"{path}<{given}>" if given else path
    before, where = _split_where(rest[: _brace(rest)])
    if where:
        rest = [*before, *rest[_brace(rest) :]]
        where = where[: -1 if where[-1].text == ";" else None]
    brace = next((at for at, token in enumerate(rest) if token.text in ("{", "(")), None)
    if brace is None:
        return
    inside = rest[brace + 1 : closing_bracket(rest, brace)]
    if item.word == "enum":
        for part in _split(inside, ","):
            variant = _without_attributes(part)
            if variant and variant[0].kind is Kind.NAME:
                name = variant[0].text
                opening = variant[1].text if len(variant) > 1 else ""
                declared = (
                    _fields(variant[2 : closing_bracket(variant, 1)], opening)
                    if opening in ("(", "{")
                    else []
                )
                names = [f"gradus_{number}" for number in range(len(declared))]
                pairs = (f"{one[0]}: {bound}" for one, bound in zip(declared, names, strict=True))
                fields = ", ".join(pairs if opening == "{" else names)
                pattern = f"{path}::{name}" + {"(": f"({fields})", "{": f" {{ {fields} }}"}.get(
                    opening, ""
                )
                places = [(f"*{bound}", one[1]) for bound, one in zip(names, declared, strict=True)]
                yield _place_pin(
                    generics, of_type, "", places, f"{item.name}::{name}", pattern, where
                )
    else:
        public = [
            (name, of) for name, of, is_public in _fields(inside, rest[brace].text) if is_public
        ]
        if public:
            pinned = [(f"gradus_pinned.{name}", of) for name, of in public]
            yield _place_pin(generics, of_type, "", pinned, item.name, where=where)


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
        part = part[closing_bracket(part, 1) + 1 :]
    return part


def _place_pin(
    generics: tuple[_Tokens, ...],
    of_type: str,
    value: str,
    places: Sequence[tuple[str, _Tokens]],
    name: str,
    pattern: str = "",
    where: _Tokens = (),
) -> TypePin:
    """Raw pointers to places are of exactly the declared types: nothing is converted on the way."""
    given = ", ".join(_text(part) for part in _lifetimes_first(generics))
    holds = f" where {_text(where)}" if where else ""
    checks = " ".join(
        f"let _: *const {_text(of)} = ::std::ptr::addr_of!({place});" for place, of in places
    )
    if value:
        return TypePin(
            name,
            f"#[allow(warnings)] fn pin<{given}>(){holds} {{ let gradus_pinned = {value};"
            f" {checks} }}",
        )
    if pattern:
        checks = f"if let {pattern} = gradus_pinned {{ {checks} }}"
    return TypePin(
        name, f"#[allow(warnings)] fn pin<{given}>(gradus_pinned: &{of_type}){holds} {{ {checks} }}"
    )


def _lifetimes_first(generics: Sequence[_Tokens]) -> list[_Tokens]:
    return sorted(generics, key=lambda part: part[0].kind is not Kind.LIFETIME)


def _pin(function: Function, path: str, name: str) -> TypePin:
    others = [part for part in function.generics if part[0].kind is not Kind.LIFETIME]
    given = ", ".join(_text(part) for part in (*_lifetimes_first(function.outer), *others))
    where = f" where {_text(function.where)}" if function.where else ""
    if function.is_opaque:
        # Such a function has no pointer type that can be written: it is called.
        own = [[_token(_SELF_LIFETIME)]] if function.by_reference else []
        generics = (*own, *_lifetimes_first((*function.outer, *function.generics)))
        caller = replace(function, generics=generics).calling("call", path)
        return TypePin(name, f"#[allow(warnings)] fn pin() {{ {caller} }}")
    # Left to itself, a function with type parameters has no type: it may not have any that are not
    # declared.
    alone = "" if function.has_types else f"let _ = {path}; "
    return TypePin(
        name,
        f"#[allow(warnings)] fn pin<{given}>(){where} {{ {alone}let _: {function.pointer} ="
        f" {path}; }}",
    )


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
    """It is a method that borrows its receiver, so that elided lifetimes of its result are the
    receiver's."""
    is_async: bool = False
    abi: str = ""
    """`extern "C" `, before its pointer type."""
    outer: tuple[_Tokens, ...] = ()
    """Parameters of the `impl` block that it is in."""

    @classmethod
    def read(cls, body: _Tokens) -> Function:
        after_name = next(at for at, token in enumerate(body) if token.text == "fn") + 2
        generics, rest = split_generics(body[after_name:])
        closing = closing_bracket(rest, 0)
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
        return self.is_async or any(
            token.text == "impl" for part in (*self.takes, self.gives) for token in part
        )

    @property
    def pointer(self) -> str:
        """The type of a pointer to it; of one that is not opaque."""
        lifetimes = [_text(part[:1]) for part in self.generics if part[0].kind is Kind.LIFETIME]
        bound = ", ".join([*lifetimes, *([_SELF_LIFETIME] if self.by_reference else [])])
        takes = ", ".join(map(_text, self.takes))
        gives = f" -> {_text(self.gives)}" if self.gives else ""
        return f"{f'for<{bound}> ' if bound else ''}{self.abi}fn({takes}){gives}"

    def calling(self, name: str, callee: str) -> str:
        """A function `name` like this one that calls `callee`."""
        names = [f"gradus_{number}" for number in range(len(self.takes))]
        takes = ", ".join(f"{one}: {_text(of)}" for one, of in zip(names, self.takes, strict=True))
        gives = f" -> {_text(self.gives)}" if self.gives else ""
        where = f" where {_text(self.where)}" if self.where else ""
        generics = ", ".join(map(_text, self.generics))
        call = f"{callee}({', '.join(names)})"
        head = f"fn {name}<{generics}>({takes}){gives}{where}"
        return f"async {head} {{ {call}.await }}" if self.is_async else f"{head} {{ {call} }}"

    def of(
        self, receiver: _Tokens, generics: tuple[_Tokens, ...], where: _Tokens, *trait: Token
    ) -> Function:
        """This function outside of its `impl` block, with `receiver` for `self` and `Self`; the
        block is of `trait`."""
        takes = list(self.takes)
        by_reference = (
            bool(takes) and takes[0][0].text == "&" and takes[0][-1].text in ("self", "Self")
        )
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
        at = closing_bracket(tail, at) + 1 if tail[at].text in ("<", "(", "[") else at + 1
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


def split_generics(body: _Tokens) -> tuple[tuple[_Tokens, ...], _Tokens]:
    """The parameters in `<...>` at the start, and what follows."""
    if not body or body[0].text != "<":
        return (), body
    closing = closing_bracket(body, 0)
    return tuple(part for part in _split(body[1:closing], ",") if part), body[closing + 1 :]


def _split_where(body: _Tokens) -> tuple[_Tokens, _Tokens]:
    parts = _split(body, "where")
    return parts[0], parts[1] if len(parts) > 1 else ()


def _split(body: _Tokens, separator: str) -> list[_Tokens]:
    """Cut at `separator` outside of brackets."""
    parts: list[_Tokens] = []
    start = at = 0
    while at < len(body):
        if body[at].text in ("<", "(", "[", "{"):
            at = closing_bracket(body, at)
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
