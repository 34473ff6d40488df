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

from services.graders.rust.lexer import (
    Item,
    Kind,
    Token,
    code,
    find_closing_bracket,
    items,
    parse_inner_items,
)

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
        _list_names(declared),
        tuple(_build_pins(declared, f"::{crate}")),
        next(_find_refusals(declared), None),
        frozenset(_find_own_equality(declared)),
        " ".join(_render(item.body) for item in declared if item.word == "use"),
    )


def _list_names(declared: Sequence[Item]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(item.name for item in declared if item.name))


def _build_pins(declared: Sequence[Item], path: str) -> Iterator[TypePin]:
    for item in declared:
        if item.word == "mod":
            inner = parse_inner_items(item)
            scope = f"use super::*; use {path}::{item.name}::{{{', '.join(_list_names(inner))}}};"
            for pin in _build_pins(inner, f"{path}::{item.name}"):
                source = f"mod gradus_inner {{ {scope} const _: () = {{ {pin.source} }}; }}"
                yield TypePin(f"{item.name}::{pin.name}", source)
        else:
            yield from _build_item_pins(item, path)


def _find_refusals(declared: Sequence[Item]) -> Iterator[str]:
    """Yield what of the declarations no answer can meet."""
    for item in declared:
        words = [token.text for token in item.body]
        place = f"line {item.first_line} of its signature"
        if "unsafe" in words:
            yield f"{place} declares something `unsafe`, which no answer may have"
        elif item.word == "union":
            yield f"{place} declares a `union`, whose fields only `unsafe` code can read"
        elif item.word == "static" and "mut" in words[:4]:
            yield f"{place} declares a `static mut`, which only `unsafe` code can use"
        elif item.word not in _DECLARED or words[1:2] == ["!"]:
            yield f"{place} has `{' '.join(words[:4])} ...`, which is nothing that can be declared"
        elif item.word == "mod":
            yield from _find_refusals(parse_inner_items(item))


def _find_own_equality(declared: Sequence[Item]) -> Iterator[str]:
    for item in declared:
        words = [token.text for token in item.body]
        if item.word == "impl" and "for" in words and "PartialEq" in words[: words.index("for")]:
            yield words[words.index("for") + 1]


def _build_item_pins(item: Item, root: str) -> Iterator[TypePin]:
    """`root`: the path of the module that the item is in."""
    start = next((at for at, token in enumerate(item.body) if token.text == item.word), 0)
    body = item.body[start:]
    path = f"{root}::{item.name}"
    if item.word == "fn":
        yield _build_function_pin(Function.read(item.body), path, item.name)
    elif item.word in ("struct", "enum"):
        generics, remainder = split_generics(body[2:])
        yield from _build_type_pins(item, generics, remainder, path)
    elif item.word in ("const", "static"):
        if type_ := read_declared_type(body):
            yield _build_place_pin((), "", f"&{path}", [("*gradus_pinned", type_)], item.name)
    elif item.word == "type" and len(body) > 3 and body[2].text == "=":
        yield _build_place_pin((), path, "", [("*gradus_pinned", _take_head(body[3:]))], item.name)
    elif item.word == "trait":
        generics, remainder = split_generics(body[2:])
        head, where_clause = _split_where(remainder[: _find_brace(remainder)])
        generics = tuple(_split(part, "=")[0] for part in generics)
        trait: _Tokens = (_make_token(path), *_build_arguments(generics))
        receiver = (_make_token(_IMPLEMENTOR),)
        outer = (*generics, (*receiver, _make_token(":"), *trait))
        yield from _build_member_pins(item, receiver, trait, outer, where_clause, item.name)
        if len(head) > 1 and head[0].text == ":" and not generics:
            bound = f"fn has<T: ?Sized + {_render(head[1:])}>() {{}}"
            pinned = f"fn pin<{_render(outer[0])}>() {{ {bound} has::<{_IMPLEMENTOR}>(); }}"
            yield TypePin(item.name, f"#[allow(warnings)] {pinned}")
    elif item.word == "impl":
        generics, remainder = split_generics(body[1:])
        owner, where_clause = _split_where(remainder[: _find_brace(remainder)])
        owner = [token for token in owner if token.text != ";"]
        if any(token.text == "'_" for token in owner):
            owner = [
                _make_token(_OWN_LIFETIME, Kind.LIFETIME) if token.text == "'_" else token
                for token in owner
            ]
            generics = ((_make_token(_OWN_LIFETIME, Kind.LIFETIME),), *generics)
        of_trait = _split(owner, "for")
        implementor = of_trait[-1]
        trait = of_trait[0] if len(of_trait) > 1 else ()
        if not implementor:
            return
        yield from _build_member_pins(
            item, implementor, trait, generics, where_clause, implementor[0].text
        )
        if trait and not generics:
            unsized = "?Sized + " if implementor[0].text in ("str", "[", "dyn") else ""
            bound = f"fn has<T: {unsized}{_render(trait)}>() {{}} has::<{_render(implementor)}>();"
            yield TypePin(implementor[0].text, f"#[allow(warnings)] fn pin() {{ {bound} }}")


def _find_brace(remainder: _Tokens) -> int:
    return next((at for at, token in enumerate(remainder) if token.text == "{"), len(remainder))


def _build_arguments(generics: Sequence[_Tokens]) -> _Tokens:
    """`<'a, T, N>` of `'a: 'b, T: Clone, const N: usize`."""
    if not generics:
        return ()
    names = [part[1] if part[0].text == "const" else part[0] for part in generics]
    return [
        _make_token("<"),
        *(token for name in names for token in (name, _make_token(","))),
        _make_token(">"),
    ]


def read_declared_type(body: _Tokens) -> _Tokens:
    """`T` of `const N: T = 1;`."""
    words = [token.text for token in body]
    end = next(
        (at for at, text in enumerate(words) if text == "="), len(words) - (words[-1] == ";")
    )
    return body[words.index(":") + 1 : end] if ":" in words[:end] else ()


def _build_member_pins(
    item: Item,
    receiver: _Tokens,
    trait: _Tokens,
    generics: tuple[_Tokens, ...],
    where_clause: _Tokens,
    name: str,
) -> Iterator[TypePin]:
    """Functions, constants and types of a trait or an `impl`. `trait`: empty for an `impl` of the
    type's own."""
    owner = f"<{_render(receiver)}{' as ' + _render(trait) if trait else ''}>"
    for inner in parse_inner_items(item):
        path = f"{owner}::{inner.name}"
        if inner.word == "fn":
            yield _build_function_pin(
                Function.read(inner.body).resolve_receiver(
                    receiver, generics, where_clause, *trait
                ),
                path,
                f"{name}::{inner.name}",
            )
        elif inner.word == "const" and (type_ := read_declared_type(inner.body)):
            type_ = _replace_self(type_, receiver, trait)
            places = [("*gradus_pinned", type_)]
            yield _build_place_pin(
                generics, "", f"&{path}", places, f"{name}::{inner.name}", where_clause=where_clause
            )
        elif inner.word == "type":
            words = [token.text for token in inner.body]
            same = inner.body[words.index("=") + 1 : -1] if "=" in words else ()
            places = [("*gradus_pinned", _replace_self(same, receiver, trait))] if same else []
            if "<" not in words[: words.index("=") if same else None]:
                yield _build_place_pin(
                    generics, path, "", places, f"{name}::{inner.name}", where_clause=where_clause
                )


def _build_type_pins(
    item: Item, generics: tuple[_Tokens, ...], remainder: _Tokens, path: str
) -> Iterator[TypePin]:
    """Public fields of a struct, fields of an enum's variants: exactly as declared, and there."""
    generics = tuple(
        _split(part, "=")[0] for part in generics
    )  # without defaults, which functions cannot have
    arguments = ", ".join(_render(_split(part, ":")[0][-1:]) for part in generics)
    of_type = f"{path}<{arguments}>" if arguments else path
    before, where_clause = _split_where(remainder[: _find_brace(remainder)])
    if where_clause:
        remainder = [*before, *remainder[_find_brace(remainder) :]]
        where_clause = where_clause[: -1 if where_clause[-1].text == ";" else None]
    brace = next((at for at, token in enumerate(remainder) if token.text in ("{", "(")), None)
    if brace is None:
        return
    inside = remainder[brace + 1 : find_closing_bracket(remainder, brace)]
    if item.word == "enum":
        for part in _split(inside, ","):
            variant = _remove_attributes(part)
            if variant and variant[0].kind is Kind.NAME:
                name = variant[0].text
                opening = variant[1].text if len(variant) > 1 else ""
                if opening in ("(", "{"):
                    declared = _read_fields(variant[2 : find_closing_bracket(variant, 1)], opening)
                else:
                    declared = []
                names = [f"gradus_{number}" for number in range(len(declared))]
                pairs = (
                    f"{field[0]}: {bound}" for field, bound in zip(declared, names, strict=True)
                )
                fields = ", ".join(pairs if opening == "{" else names)
                pattern = f"{path}::{name}" + {"(": f"({fields})", "{": f" {{ {fields} }}"}.get(
                    opening, ""
                )
                places = []
                for bound, field in zip(names, declared, strict=True):
                    places.append((f"*{bound}", field[1]))
                yield _build_place_pin(
                    generics, of_type, "", places, f"{item.name}::{name}", pattern, where_clause
                )
    else:
        public = []
        for name, field_type, is_public in _read_fields(inside, remainder[brace].text):
            if is_public:
                public.append((name, field_type))
        if public:
            pinned = [(f"gradus_pinned.{name}", field_type) for name, field_type in public]
            yield _build_place_pin(
                generics, of_type, "", pinned, item.name, where_clause=where_clause
            )


def _read_fields(inside: _Tokens, opening: str) -> list[tuple[str, _Tokens, bool]]:
    """Return name or number, type, and whether it is public, of each field."""
    fields = []
    for number, part in enumerate(part for part in _split(inside, ",") if part):
        field = _remove_attributes(part)
        is_public = bool(field) and field[0].text == "pub"
        if is_public:
            restricted = len(field) > 1 and field[1].text == "(" and opening == "{"
            field, is_public = field[1:], not restricted
        if opening == "{":
            if len(field) > 2 and field[0].kind is Kind.NAME:
                fields.append((field[0].text, field[2:], is_public))
        else:
            fields.append((str(number), field, is_public))
    return fields


def _remove_attributes(part: _Tokens) -> _Tokens:
    while len(part) > 1 and part[0].text == "#":
        part = part[find_closing_bracket(part, 1) + 1 :]
    return part


def _build_place_pin(
    generics: tuple[_Tokens, ...],
    of_type: str,
    value: str,
    places: Sequence[tuple[str, _Tokens]],
    name: str,
    pattern: str = "",
    where_clause: _Tokens = (),
) -> TypePin:
    """Return raw pointers to places are of exactly the declared types: nothing is converted on the
    way."""
    parameters = ", ".join(_render(part) for part in _sort_lifetimes_first(generics))
    holds = f" where {_render(where_clause)}" if where_clause else ""
    checks = " ".join(
        f"let _: *const {_render(place_type)} = ::std::ptr::addr_of!({place});"
        for place, place_type in places
    )
    if value:
        return TypePin(
            name,
            f"#[allow(warnings)] fn pin<{parameters}>(){holds} {{ let gradus_pinned = {value};"
            f" {checks} }}",
        )
    if pattern:
        checks = f"if let {pattern} = gradus_pinned {{ {checks} }}"
    return TypePin(
        name,
        f"#[allow(warnings)] fn pin<{parameters}>(gradus_pinned: &{of_type}){holds} {{ {checks} }}",
    )


def _sort_lifetimes_first(generics: Sequence[_Tokens]) -> list[_Tokens]:
    return sorted(generics, key=lambda part: part[0].kind is not Kind.LIFETIME)


def _build_function_pin(function: Function, path: str, name: str) -> TypePin:
    bounds = f" where {_render(function.where_clause)}" if function.where_clause else ""
    if function.is_opaque:
        # Such a function has no pointer type that can be written: it is called.
        self_lifetime = [[_make_token(_SELF_LIFETIME)]] if function.by_reference else []
        inner = (*self_lifetime, *_sort_lifetimes_first((*function.outer, *function.generics)))
        caller = replace(function, generics=inner).render_caller("call", path)
        return TypePin(name, f"#[allow(warnings)] fn pin() {{ {caller} }}")
    # Named lifetimes are the pin's own: an answer may relate lifetimes (`'b: 'a`), and a function
    # that does is no `for<'a, 'b> fn`.
    generics = _sort_lifetimes_first((*function.outer, *function.generics))
    parameters = ", ".join(map(_render, generics))
    # Left to itself, a function with type parameters has no type: it may not have any that are not
    # declared.
    alone = "" if function.has_types else f"let _ = {path}; "
    pointer = function.render_pointer([_SELF_LIFETIME] if function.by_reference else [])
    return TypePin(
        name,
        f"#[allow(warnings)] fn pin<{parameters}>(){bounds} {{ {alone}let _: {pointer} ="
        f" {path}; }}",
    )


_Tokens = Sequence[Token]


@dataclass(frozen=True, slots=True)
class Function:
    """The head of a function, in pieces."""

    generics: tuple[_Tokens, ...]
    takes: tuple[_Tokens, ...]
    gives: _Tokens
    where_clause: _Tokens
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
        generics, remainder = split_generics(body[after_name:])
        closing = find_closing_bracket(remainder, 0)
        parameters = []
        for part in _split(remainder[1:closing], ","):
            if part:
                parameters.append(_read_type(part))
        tail = _take_head(remainder[closing + 1 :])
        gives, where_clause = _split_where(tail)
        if len(gives) > 1 and (gives[0].text, gives[1].text) == ("-", ">"):
            gives = gives[2:]
        else:
            gives = ()
        has_types = any(part[0].kind is not Kind.LIFETIME for part in generics)
        is_async = any(token.text == "async" for token in body[:after_name])
        before = [token.text for token in body[: after_name - 2]]
        if "extern" in before:
            abi = " ".join(before[before.index("extern") :]) + " "
        else:
            abi = ""
        return cls(
            generics, tuple(parameters), gives, where_clause, has_types, is_async=is_async, abi=abi
        )

    @property
    def is_opaque(self) -> bool:
        """It is asynchronous, or takes or gives an `impl Trait`."""
        return self.is_async or any(
            token.text == "impl" for part in (*self.takes, self.gives) for token in part
        )

    @property
    def pointer(self) -> str:
        """The type of a pointer to it, for all lifetimes; of one that is not opaque."""
        lifetimes = []
        for part in self.generics:
            if part[0].kind is Kind.LIFETIME:
                lifetimes.append(_render(part[:1]))
        if self.by_reference:
            lifetimes.append(_SELF_LIFETIME)
        return self.render_pointer(lifetimes)

    def render_pointer(self, bound: Sequence[str]) -> str:
        """Return the type of a pointer to it that holds for all lifetimes `bound`."""
        quantifier = f"for<{', '.join(bound)}> " if bound else ""
        takes = ", ".join(map(_render, self.takes))
        gives = f" -> {_render(self.gives)}" if self.gives else ""
        return f"{quantifier}{self.abi}fn({takes}){gives}"

    def render_caller(self, name: str, callee: str) -> str:
        """Return a function `name` like this one that calls `callee`."""
        names = [f"gradus_{number}" for number in range(len(self.takes))]
        takes = ", ".join(
            f"{parameter}: {_render(parameter_type)}"
            for parameter, parameter_type in zip(names, self.takes, strict=True)
        )
        gives = f" -> {_render(self.gives)}" if self.gives else ""
        where_text = f" where {_render(self.where_clause)}" if self.where_clause else ""
        generics = ", ".join(map(_render, self.generics))
        call = f"{callee}({', '.join(names)})"
        head = f"fn {name}<{generics}>({takes}){gives}{where_text}"
        if self.is_async:
            return f"async {head} {{ {call}.await }}"
        return f"{head} {{ {call} }}"

    def resolve_receiver(
        self, receiver: _Tokens, generics: tuple[_Tokens, ...], where_clause: _Tokens, *trait: Token
    ) -> Function:
        """Return this function outside of its `impl` block, with `receiver` for `self` and `Self`;
        the block is of `trait`."""
        takes = list(self.takes)
        by_reference = (
            bool(takes) and takes[0][0].text == "&" and takes[0][-1].text in ("self", "Self")
        )
        if takes and takes[0][-1].text in ("self", "Self"):
            takes[0] = _build_receiver_type(takes[0], receiver)
        gives = _add_receiver_lifetime(self.gives) if by_reference else self.gives
        parts = [_replace_self(part, receiver, trait) for part in (*takes, gives)]
        both = list(self.where_clause)
        if self.where_clause and where_clause and self.where_clause[-1].text != ",":
            both.append(_make_token(","))
        both += where_clause
        return replace(
            self,
            outer=generics,
            takes=tuple(parts[:-1]),
            gives=parts[-1],
            where_clause=_replace_self(both, receiver, trait),
            by_reference=by_reference,
        )


def _replace_self(part: _Tokens, receiver: _Tokens, trait: _Tokens) -> _Tokens:
    """`part` with the receiver for `Self`; for `Self::Item` with the trait that has the type."""
    out: list[Token] = []
    for at, token in enumerate(part):
        qualified = trait and [following.text for following in part[at + 1 : at + 3]] == [":", ":"]
        if token.text != "Self":
            out.append(token)
        elif qualified:
            out += [_make_token("<"), *receiver, _make_token("as"), *trait, _make_token(">")]
        else:
            out += receiver
    return out


def _take_head(tail: _Tokens) -> _Tokens:
    """Return what stands before the body or the semicolon of a function."""
    at = 0
    while at < len(tail) and tail[at].text not in ("{", ";"):
        if tail[at].text in ("<", "(", "["):
            at = find_closing_bracket(tail, at) + 1
        else:
            at = at + 1
    return tail[:at]


def _build_receiver_type(parameter: _Tokens, receiver: _Tokens) -> _Tokens:
    """`&'a mut self` as a type."""
    if parameter[0].text != "&":
        return receiver
    modifiers = [token for token in parameter[1:-1]]
    named = modifiers and modifiers[0].kind is Kind.LIFETIME
    lifetime = [] if named else [_make_token(_SELF_LIFETIME)]
    return [parameter[0], *lifetime, *modifiers, *receiver]


def _add_receiver_lifetime(gives: _Tokens) -> _Tokens:
    """`gives` with the receiver's lifetime where it elides one."""
    out: list[Token] = []
    for at, token in enumerate(gives):
        following = gives[at + 1] if at + 1 < len(gives) else None
        out.append(_make_token(_SELF_LIFETIME) if token.text == "'_" else token)
        if token.text == "&" and (following is None or following.kind is not Kind.LIFETIME):
            out.append(_make_token(_SELF_LIFETIME))
    return out


def _read_type(parameter: _Tokens) -> _Tokens:
    """Return the type `T` of a parameter `mut x: T`; the whole parameter for `&mut self`."""
    for at, token in enumerate(parameter):
        beside = []
        for n in (at - 1, at + 1):
            if 0 <= n < len(parameter):
                beside.append(parameter[n].text)
        if token.text == ":" and ":" not in beside:
            return [*parameter[at + 1 :]]
    return [token for token in parameter if token.text != "mut" or parameter[0].text == "&"]


def split_generics(body: _Tokens) -> tuple[tuple[_Tokens, ...], _Tokens]:
    """Return the parameters in `<...>` at the start, and what follows."""
    if not body or body[0].text != "<":
        return (), body
    closing = find_closing_bracket(body, 0)
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
            at = find_closing_bracket(body, at)
        elif body[at].text == separator:
            parts.append(body[start:at])
            start = at + 1
        at += 1
    return [*parts, body[start:]]


def _render(body: _Tokens) -> str:
    """Return tokens as source; without a space only where Rust wants none."""
    out = ""
    for at, token in enumerate(body):
        glued = at and token.text in (":", ">", "=") and body[at - 1].text in (":", "-", "=")
        out += token.text if glued or not out else " " + token.text
    return out


def _make_token(text: str, kind: Kind = Kind.SIGN) -> Token:
    return Token(kind, text, 0, 0)
