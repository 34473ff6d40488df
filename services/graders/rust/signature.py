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

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from tree_sitter import Node

from gradus.tasks.rust import RustTask
from services.graders.rust.syntax import (
    Declaration,
    find_child,
    get_field,
    get_name,
    get_text,
    iter_declarations,
    list_fields,
    list_parts,
    normalize,
    parse,
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
    own_equality: tuple[str, ...] = ()
    """Traits by which types are to say themselves what their values are equal to: `PartialEq`,
    `PartialEq<i64>`."""
    imports: str = ""
    """The `use` items, in one line."""
    is_certain: bool = True
    """Its text can be parsed; else the compiler decides whether it is Rust."""

    @property
    def has_mixed_equality(self) -> bool:
        """Return whether a type is to say itself which values of other types it is equal to."""
        return any("<" in trait for trait in self.own_equality)


def read_signature(task: RustTask) -> Signature | None:
    return parse_signature(task.signature, task.crate) if task.signature else None


@lru_cache(maxsize=256)
def parse_signature(text: str, crate: str) -> Signature:
    root = parse(normalize(text))
    declared = list(iter_declarations(root))
    traits = [get_field(item.node, "trait") for item in declared]
    return Signature(
        _list_names(declared),
        tuple(_build_pins(declared, f"::{crate}")),
        next(_find_refusals(declared), None),
        tuple(trait for trait in traits if "PartialEq" in trait),
        " ".join(get_text(item.node) for item in declared if item.word == "use"),
        not root.has_error,
    )


def _list_names(declared: Sequence[Declaration]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(item.name for item in declared if item.word and item.name))


def _build_pins(declared: Sequence[Declaration], path: str) -> Iterator[TypePin]:
    for item in declared:
        if item.word == "mod":
            inner = item.list_members()
            scope = f"use super::*; use {path}::{item.name}::{{{', '.join(_list_names(inner))}}};"
            for pin in _build_pins(inner, f"{path}::{item.name}"):
                source = f"mod gradus_inner {{ {scope} const _: () = {{ {pin.source} }}; }}"
                yield TypePin(f"{item.name}::{pin.name}", source)
        else:
            yield from _build_item_pins(item, f"{path}::{item.name}")


def _find_refusals(declared: Sequence[Declaration]) -> Iterator[str]:
    """Yield what of the declarations no answer can meet."""
    for item in declared:
        text = get_text(item.node)
        place = f"line {item.first_line} of its signature"
        if re.search(r"\bunsafe\b", text):
            yield f"{place} declares something `unsafe`, which no answer may have"
        elif item.node.type == "union_item":
            yield f"{place} declares a `union`, whose fields only `unsafe` code can read"
        elif item.word == "static" and find_child(item.node, "mutable_specifier"):
            yield f"{place} declares a `static mut`, which only `unsafe` code can use"
        elif not item.word and not item.is_broken:
            beginning = " ".join(re.findall(r"\w+|\S", text)[:4])
            yield f"{place} has `{beginning} ...`, which is nothing that can be declared"
        elif item.word == "mod":
            yield from _find_refusals(item.list_members())


def get_first_word(type_: str) -> str:
    """Return `Stack` of `Stack<T>`, `[` of `[T]`."""
    match = re.match(r"\w+|\S", type_)
    return match[0] if match else ""


def _build_item_pins(item: Declaration, path: str) -> Iterator[TypePin]:
    node = item.node
    match item.word:
        case "fn":
            yield _build_function_pin(Function.read(node), path, item.name)
        case "struct" | "enum":
            yield from _build_type_pins(item, path)
        case "const" | "static":
            type_ = get_field(node, "type")
            if type_:
                yield _build_place_pin(
                    _Scope(), "", f"&{path}", [("*gradus_pinned", type_)], item.name
                )
        case "type":
            type_ = get_field(node, "type")
            if type_:
                yield _build_place_pin(_Scope(), path, "", [("*gradus_pinned", type_)], item.name)
        case "trait":
            yield from _build_trait_pins(item, path)
        case "impl":
            yield from _build_implementation_pins(item)


def _build_trait_pins(item: Declaration, path: str) -> Iterator[TypePin]:
    scope = _Scope.read(item.node)
    trait = scope.apply(path)
    implementor = f"{_IMPLEMENTOR}: {trait}"
    outer = replace(scope, generics=(*scope.generics, implementor))
    yield from _build_member_pins(item, _IMPLEMENTOR, trait, outer, item.name)


def _build_implementation_pins(item: Declaration) -> Iterator[TypePin]:
    scope = _Scope.read(item.node)
    implementor = _name_elided(get_field(item.node, "type"), _OWN_LIFETIME)
    trait = _name_elided(get_field(item.node, "trait"), _OWN_LIFETIME)
    if _OWN_LIFETIME in implementor + trait:
        scope = replace(scope, generics=(_OWN_LIFETIME, *scope.generics))
    name = get_first_word(re.sub(r"&(?:'\w+ | |mut )*", "", implementor))
    yield from _build_member_pins(item, implementor, trait, scope, name)
    if trait and not scope.generics:
        unsized = "?Sized + " if name in ("str", "[", "dyn") else ""
        bound = f"fn has<T: {unsized}{trait}>() {{}} has::<{implementor}>();"
        yield TypePin(name, f"#[allow(warnings)] fn pin() {{ {bound} }}")


@dataclass(frozen=True, slots=True)
class _Scope:
    """Parameters of an item in `<...>`, and bounds behind `where`."""

    generics: tuple[str, ...] = ()
    """Without defaults; lifetimes first."""
    bounds: tuple[str, ...] = ()

    @classmethod
    def read(cls, node: Node) -> _Scope:
        generics = []
        for parameter in list_parts(node, "type_parameters"):
            if parameter.type != "attribute_item":
                generics.append(_read_parameter(parameter))
        bounds = map(get_text, list_parts(find_child(node, "where_clause")))
        return cls(tuple(sorted(generics, key=_is_type)), tuple(bounds))

    def apply(self, path: str) -> str:
        """Return `path<'a, T, N>` for the parameters `'a: 'b, T: Clone, const N: usize`."""
        names = [part.partition(":")[0].removeprefix("const ") for part in self.generics]
        return f"{path}<{', '.join(names)}>" if names else path

    @property
    def parameters(self) -> str:
        return ", ".join(sorted(self.generics, key=_is_type))

    @property
    def where_text(self) -> str:
        return f" where {', '.join(self.bounds)}" if self.bounds else ""


def _read_parameter(node: Node) -> str:
    default = node.child_by_field_name("default_type") or node.child_by_field_name("value")
    text = get_text(node)
    return text.removesuffix(get_text(default)).rstrip("= ") if default else text


def _is_type(parameter: str) -> bool:
    return not parameter.startswith("'")


def _build_member_pins(
    item: Declaration, receiver: str, trait: str, scope: _Scope, name: str
) -> Iterator[TypePin]:
    """Functions, constants and types of a trait or an `impl`. `trait`: empty for an `impl` of the
    type's own."""
    owner = f"<{receiver} as {trait}>" if trait else f"<{receiver}>"
    for inner in item.list_members():
        path = f"{owner}::{inner.name}"
        named = f"{name}::{inner.name}"
        type_ = _replace_self(get_field(inner.node, "type"), receiver, trait)
        places = [("*gradus_pinned", type_)] if type_ else []
        if inner.word == "fn":
            function = Function.read(inner.node).resolve_receiver(receiver, scope, trait)
            yield _build_function_pin(function, path, named)
        elif inner.word == "const" and places:
            yield _build_place_pin(scope, "", f"&{path}", places, named)
        elif inner.word == "type" and not inner.node.child_by_field_name("type_parameters"):
            yield _build_place_pin(scope, path, "", places, named)


def _build_type_pins(item: Declaration, path: str) -> Iterator[TypePin]:
    """Public fields of a struct, fields of an enum's variants: exactly as declared, and there."""
    scope = _Scope.read(item.node)
    of_type = scope.apply(path)
    if item.word == "enum":
        for variant in list_parts(item.node, "body"):
            if variant.type == "enum_variant":
                yield _build_variant_pin(scope, of_type, path, item.name, variant)
        return
    public = []
    for number, field in enumerate(list_fields(item.node.child_by_field_name("body"))):
        if field.is_public:
            public.append((f"gradus_pinned.{field.name or number}", field.type_))
    if public:
        yield _build_place_pin(scope, of_type, "", public, item.name)


def _build_variant_pin(
    scope: _Scope, of_type: str, path: str, type_name: str, variant: Node
) -> TypePin:
    name = get_name(variant)
    body = variant.child_by_field_name("body")
    fields = []
    places = []
    for number, field in enumerate(list_fields(body)):
        bound = f"gradus_{number}"
        fields.append(f"{field.name}: {bound}" if field.name else bound)
        places.append((f"*{bound}", field.type_))
    pattern = f"{path}::{name}"
    if body:
        brackets = get_text(body)
        pattern += f"{brackets[0]} {', '.join(fields)} {brackets[-1]}"
    return _build_place_pin(scope, of_type, "", places, f"{type_name}::{name}", pattern)


def _build_place_pin(
    scope: _Scope,
    of_type: str,
    value: str,
    places: Sequence[tuple[str, str]],
    name: str,
    pattern: str = "",
) -> TypePin:
    """Return raw pointers to places are of exactly the declared types: nothing is converted on the
    way."""
    checks = " ".join(
        f"let _: *const {place_type} = ::std::ptr::addr_of!({place});"
        for place, place_type in places
    )
    parameter = f"gradus_pinned: &{of_type}"
    if value:
        parameter = ""
        checks = f"let gradus_pinned = {value}; {checks}"
    elif pattern:
        checks = f"if let {pattern} = gradus_pinned {{ {checks} }}"
    head = f"fn pin<{scope.parameters}>({parameter}){scope.where_text}"
    return TypePin(name, f"#[allow(warnings)] {head} {{ {checks} }}")


def _build_function_pin(function: Function, path: str, name: str) -> TypePin:
    if function.is_opaque:
        # Such a function has no pointer type that can be written: it is called.
        caller = function.render_caller("call", path)
        return TypePin(name, f"#[allow(warnings)] fn pin() {{ {caller} }}")
    # Named lifetimes are the pin's own: an answer may relate lifetimes (`'b: 'a`), and a function
    # that does is no `for<'a, 'b> fn`.
    scope = function.scope
    # Left to itself, a function with type parameters has no type: it may not have any that are not
    # declared.
    alone = "" if function.has_types else f"let _ = {path}; "
    pointer = function.render_pointer([_SELF_LIFETIME] if function.by_reference else [])
    return TypePin(
        name,
        f"#[allow(warnings)] fn pin<{scope.parameters}>(){scope.where_text} {{ {alone}let _:"
        f" {pointer} = {path}; }}",
    )


@dataclass(frozen=True, slots=True)
class Function:
    """The head of a function, in pieces."""

    scope: _Scope
    """Its own parameters, and those of the `impl` block that it is in."""
    takes: tuple[str, ...]
    """Types."""
    gives: str
    has_types: bool
    """It has type parameters of its own."""
    has_receiver: bool
    by_reference: bool = False
    """It is a method that borrows its receiver, so that elided lifetimes of its result are the
    receiver's."""
    is_async: bool = False
    abi: str = ""
    """`extern "C" `, before its pointer type."""

    @classmethod
    def read(cls, node: Node) -> Function:
        scope = _Scope.read(node)
        takes = []
        has_receiver = False
        for parameter in list_parts(node, "parameters"):
            if parameter.type == "self_parameter":
                takes.append(get_text(parameter).removeprefix("mut ").replace("self", "Self"))
                has_receiver = True
            elif parameter.type == "parameter":
                takes.append(get_field(parameter, "type"))
                has_receiver = has_receiver or get_field(parameter, "pattern") == "self"
            elif parameter.type != "attribute_item":
                takes.append(get_text(parameter))
        modifiers = find_child(node, "function_modifiers")
        extern = get_text(find_child(modifiers, "extern_modifier"))
        return cls(
            scope,
            tuple(takes),
            get_field(node, "return_type"),
            has_types=any(map(_is_type, scope.generics)),
            has_receiver=has_receiver,
            is_async="async" in get_text(modifiers).split(),
            abi=f"{extern} ".lstrip(),
        )

    @property
    def is_opaque(self) -> bool:
        """It is asynchronous, or takes or gives an `impl Trait`."""
        return (
            self.is_async or re.search(r"\bimpl\b", " ".join((*self.takes, self.gives))) is not None
        )

    def render_pointer(self, bound: Sequence[str]) -> str:
        """Return the type of a pointer to it that holds for all lifetimes `bound`."""
        quantifier = f"for<{', '.join(bound)}> " if bound else ""
        return f"{quantifier}{self.abi}fn({', '.join(self.takes)}){self._result}"

    @property
    def _result(self) -> str:
        return f" -> {self.gives}" if self.gives else ""

    def render_caller(self, name: str, callee: str) -> str:
        """Return a function `name` like this one that calls `callee`."""
        scope = self.scope
        if self.by_reference:
            scope = replace(scope, generics=(_SELF_LIFETIME, *scope.generics))
        takes = []
        names = []
        for number, type_ in enumerate(self.takes):
            names.append(f"gradus_{number}")
            takes.append(f"gradus_{number}: {type_}")
        call = f"{callee}({', '.join(names)})"
        head = f"fn {name}<{scope.parameters}>({', '.join(takes)}){self._result}{scope.where_text}"
        if self.is_async:
            return f"async {head} {{ {call}.await }}"
        return f"{head} {{ {call} }}"

    def resolve_receiver(self, receiver: str, outer: _Scope, trait: str) -> Function:
        """Return this function outside of its `impl` block, with `receiver` for `self` and `Self`;
        the block is of `trait`, and `outer` are its parameters."""
        takes = list(self.takes)
        gives = self.gives
        by_reference = self.has_receiver and takes[0].startswith("&")
        if by_reference:
            takes[0] = _name_elided(takes[0], _SELF_LIFETIME)
            gives = _name_elided(gives, _SELF_LIFETIME)
        bounds = (*self.scope.bounds, *outer.bounds)
        scope = _Scope(
            (*outer.generics, *self.scope.generics),
            tuple(_replace_self(bound, receiver, trait) for bound in bounds),
        )
        return replace(
            self,
            scope=scope,
            takes=tuple(_replace_self(part, receiver, trait) for part in takes),
            gives=_replace_self(gives, receiver, trait),
            by_reference=by_reference,
        )


def _replace_self(type_: str, receiver: str, trait: str) -> str:
    """`type_` with the receiver for `Self`; for `Self::Item` with the trait that has the type."""
    if trait:
        type_ = re.sub(r"\bSelf\b(?=\s*::)", lambda _: f"<{receiver} as {trait}>", type_)
    return re.sub(r"\bSelf\b", lambda _: receiver, type_)


def _name_elided(type_: str, lifetime: str) -> str:
    """`type_` with this lifetime where it elides one."""
    named = re.sub(r"'_\b", lifetime, type_)
    return re.sub(r"&(?!\s*')", f"&{lifetime} ", named)
