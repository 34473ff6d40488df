"""Tests and answer as two programs, which run in two processes (harness/remote.rs).

The program of the tests has, in place of the answer, *proxies*: functions of the declared types
that send their arguments to the answer's process and return what it sends back. Types whose fields
or variants the signature declares are *open*: both programs have them, and their values are sent.
Values of other types stay with the answer, and tests have handles of them. The answer's program is
its library and a *dispatcher*, which makes the calls. So everything that tests compare, however
they are written, is out of the answer's reach, and only what the signature declares can be called.

The syntax of a signature is read here; what names mean is left to the compiler: a task for which
the texts made here do not compile is judged in one process (`tests_file`).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from tree_sitter import Node

from gradus.tasks.rust import RustTask
from services.graders.rust.signature import Signature
from services.graders.rust.syntax import (
    Field,
    get_field,
    get_name,
    get_text,
    iter_nodes,
    list_fields,
    list_parts,
    parse,
)
from services.graders.rust.tests_file import TestsFile, append_pins, find_item_start
from services.graders.rust.toolchain import HARNESS_CRATE

_UNSUPPORTED_WORDS = re.compile(r"\b(?:thread|crate|downcast\w*|macro_use)\b")
"""Words of tests that need the answer in their own process, or in a crate of its own."""
_OF_PLACES = re.compile(
    r"\b(?:ptr(?=::)|ptr_eq|as_ptr|(?:strong|weak)_count|capacity|size_of\w*|align_of\w*"
    r"|type_name\w*|source(?=\(\)))\b"
)
"""Words of tests for what is lost on the way between processes: where values are, and their sizes.
"""
_UNBOUNDED_WORDS = re.compile(
    r"\b(?:NAN|\w*INFINITY|is_nan|is_(?:in)?finite|is_normal|classify|to_bits|total_cmp|nan|inf"
    r"|infinity)\b|/ *-?0\.|e30[89]",
    re.IGNORECASE,
)
"""Words of tests that speak of floats which are infinite or no number."""
_UNSUPPORTED_NODES = frozenset(
    {
        "abstract_type",
        "dynamic_type",
        "function_type",
        "function_modifiers",
        "const_parameter",
        "type_parameter",
        "where_clause",
        "macro_invocation",
    }
)
_DERIVABLE = ("Debug", "Clone", "Copy", "PartialEq", "Eq", "PartialOrd", "Ord", "Hash", "Default")
_OPERATORS = {
    name: f"fn {name.lower()}(self, other: ARGUMENT) -> Self::Output;"
    for name in ("Add", "Sub", "Mul", "Div", "Rem", "BitAnd", "BitOr", "BitXor", "Shl", "Shr")
}
_ASSIGNMENTS = {
    f"{name}Assign": f"fn {name.lower()}_assign(&mut self, other: ARGUMENT);"
    for name in ("Add", "Sub", "Mul", "Div", "Rem")
}
_METHODS: Mapping[str, str] = {
    **_OPERATORS,
    **_ASSIGNMENTS,
    "Neg": "fn neg(self) -> Self::Output;",
    "Not": "fn not(self) -> Self::Output;",
    "Index": "fn index(&self, at: ARGUMENT) -> &Self::Output;",
    "Iterator": "fn next(&mut self) -> Option<Self::Item>;",
    "DoubleEndedIterator": "fn next_back(&mut self) -> Option<Self::Item>;",
    "FromStr": "fn from_str(text: &str) -> Result<Self, Self::Err>;",
    "PartialOrd": "fn partial_cmp(&self, other: &ARGUMENT) -> Option<::std::cmp::Ordering>;",
    "From": "fn from(value: ARGUMENT) -> Self;",
    "TryFrom": "fn try_from(value: ARGUMENT) -> Result<Self, Self::Error>;",
    "Error": "",
}
"""What a type has to have for a declared `impl` of one of these traits of the standard library; all
else about them is the standard library's own, whatever the answer overrides."""
_MARKER = "GradusSide"
_WIRE = "gradus_wire"
_REMOTE = "gradus_remote"
_IMPORTS = (
    f"use ::{HARNESS_CRATE}::wire as {_WIRE}; use ::{HARNESS_CRATE}::remote as {_REMOTE};"
    f" pub struct {_MARKER};"
)
_ASSERTION = f"""
macro_rules! assert_eq {{
    ($left:expr, $right:expr $(,)?) => {{ assert_eq!(@ ::std::format_args!(""), $left, $right) }};
    ($left:expr, $right:expr, $($said:tt)+) => {{
        assert_eq!(@ ::std::format_args!(": {{}}", ::std::format_args!($($said)+)), $left, $right)
    }};
    (@ $said:expr, $left:expr, $right:expr) => {{
        match (&$left, &$right) {{
            (left, right) => if !(*left == *right) {{
                let texts = [::std::stringify!($left), ::std::stringify!($right)];
                ::{HARNESS_CRATE}::remote::fail_equal(left, right, texts, $said)
            }}
        }}
    }};
}}
"""
"""`assert_eq!` that reports the value where tests are public."""
_ASSERTION_LINE = " ".join(_ASSERTION.split())
_TEXT = """
impl ::std::fmt::{trait} for {name} {{
    fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {{
        let format = {wire}::read_format(f);
        let text: ::std::string::String = {call};
        f.write_str(&text)
    }}
}}
"""
_ORDER = """
impl {trait} for {name} {{
    fn {method}(&self, other: &Self) -> {result} {{
        let order: {result} = {call};
        let reversed: {result} = {reversed};
        if reversed{reverse} != order {{ {remote}::refuse_order() }}
        order
    }}
}}
"""
_EQUALITY = """
impl {trait} for {name} {{
    fn eq(&self, other: &{other}) -> bool {{
        let is_equal: bool = {call};
        {note}
        is_equal
    }}
}}
"""
_HASH = """
impl ::std::hash::Hash for {name} {{
    fn hash<H: ::std::hash::Hasher>(&self, state: &mut H) {{
        let hash: u64 = {call};
        state.write_u64(hash);
    }}
}}
"""
_MISSING_TRAIT = (
    (re.compile(r"binary operation `[=!]=`|can't compare"), "PartialEq"),
    (re.compile(r"binary operation `[<>]=?`"), "PartialOrd"),
    (re.compile(r"doesn't implement `(?:std::fmt::)?(Debug|Display)`"), ""),
    (re.compile(r"the trait bound `[^`]+: (?:\w+::)*(\w+)`"), ""),
    (re.compile(r"no method named `clone`"), "Clone"),
    (re.compile(r"named `default` found"), "Default"),
    (re.compile(r"does not implement the `Copy` trait"), "Copy"),
)
"""Errors of tests against proxies that lack a trait: the trait, or the pattern's group."""


class _Unsupported(Exception):
    """The signature declares what cannot be called in another process."""


@dataclass(frozen=True, slots=True)
class RemoteTexts:
    tests: TestsFile
    """The program of the tests."""
    dispatcher: TestsFile
    """What is compiled against the answer, in place of tests."""
    appended: str
    """The dispatcher as text at the end of an answer, but for its `main`; empty where only another
    crate shows whether what is declared is public."""
    methods: frozenset[str]
    """Names of declared methods."""


@dataclass(frozen=True, slots=True)
class Needs:
    """What tests use of declared types beyond what the signature says: the answer must have it."""

    traits: frozenset[tuple[str, str]] = frozenset()
    """Name of a type, and of a trait."""
    units: frozenset[str] = frozenset()
    """Types that are used as values."""


def render_remote(task: RustTask, signature: Signature, needs: Needs) -> RemoteTexts | None:
    """Return the texts of both programs; None for a task that needs answer and tests in one
    process."""
    source = task.signature or ""
    root = parse(source)
    is_elsewhere = task.files or task.dependencies or task.edition == "2015"
    if is_elsewhere or root.has_error or _UNSUPPORTED_WORDS.search(task.tests):
        return None
    if not set(_OF_PLACES.findall(task.tests)).issubset(re.findall(r"\w+", source)):
        return None
    try:
        programs = _Programs(task, needs)
        programs.add_items(root)
    except _Unsupported:
        return None
    names = ", ".join(signature.names)
    start = find_item_start(task.tests)
    is_finite = not _UNBOUNDED_WORDS.search(task.tests)
    tests = [
        f"{task.tests[:start]} extern crate self as {task.crate};",
        f"mod gradus_proxies {{ {_IMPORTS} const FINITE: bool = {str(is_finite).lower()};",
        signature.imports,
        *programs.proxies,
        f"}} pub use gradus_proxies::{{{names}}}; mod gradus_tests {{ {_ASSERTION_LINE}",
        task.tests[start:],
        "}",
    ]
    kept = f"{_REMOTE}::keep_for_ever();" if "'static" in source else ""
    calls = [
        f"pub mod gradus_calls {{ pub use ::{task.crate}::{{{names}}}; {signature.imports}",
        _IMPORTS,
        *programs.implementations,
        f"pub fn dispatch(number: u32, from: &mut {_WIRE}::Reader, to: &mut {_WIRE}::Writer)",
        f"-> ::std::option::Option<()> {{ {kept} match number {{",
        *(f"{number} => {{ {arm} }}" for number, arm in enumerate(programs.arms)),
        "_ => return ::std::option::Option::None, } ::std::option::Option::Some(()) }",
    ]
    main = f"fn main() {{ ::{HARNESS_CRATE}::remote::serve(gradus_calls::dispatch) }}"
    dispatcher = "\n".join(["#![allow(warnings)]", *calls, "}", main])
    text, pins = append_pins(dispatcher, signature, task.crate)
    appended = ""
    if not programs.has_fields:
        checks = []
        for pin in signature.pins:
            source = pin.source.replace("fn pin", "fn _pin")  # the linter remarks on unused names
            checks.append(f"const _: () = {{ {source} }};")
        # the first item is for attributes that an answer might end with
        within = "\n".join(["const _: () = ();", *calls, *checks, "}", ""])
        appended = within.replace(f"::{task.crate}::", "crate::")
    return RemoteTexts(
        TestsFile("\n".join(tests), {}, 0, 0),
        TestsFile(text, pins, 0, 0, is_program=True),
        appended,
        frozenset(programs.methods),
    )


def find_needs(needs: Needs, signature: Signature, errors: Iterable[str]) -> Needs:
    """Return `needs`, and what these errors of the tests, compiled with proxies, are about."""
    traits = set(needs.traits)
    units = set(needs.units)
    for error in errors:
        types = []
        for name in signature.names:
            if re.search(rf"\b{name}\b", error):
                types.append(name)
        if "expected value, found struct" in error:
            units.update(types)
        for pattern, named in _MISSING_TRAIT:
            if match := pattern.search(error):
                trait = named or match[1]
                traits.update((name, trait) for name in types)
    return Needs(frozenset(traits), frozenset(units))


class _Programs:
    """Proxies, and what makes their calls, of the items of a signature."""

    def __init__(self, task: RustTask, needs: Needs) -> None:
        self._task = task
        self._needs = needs
        self._open: set[str] = set()
        self._closed: set[str] = set()
        self._only_read: set[str] = set()
        """Open structs that no test builds. They may have private fields beside the declared ones,
        so that the answer's process cannot make values of them."""
        self._kept: set[str] = set()
        """Closed types whose values live until the end: they are compared then, or are copied."""
        self.proxies: list[str] = []
        self.implementations: list[str] = []
        """What the dispatcher needs beside `arms`."""
        self.arms: list[str] = []
        """Code for each call, by its number."""
        self.methods: set[str] = set()
        self.has_fields = False
        """A struct declares its fields."""

    def add_items(self, root: Node) -> None:
        derived: set[str] = set()
        kinds = {"struct_item": self._add_type, "enum_item": self._add_type}
        types = [child for child in root.named_children if child.type in kinds]
        for node in types:
            self._sort_type(node)
        for node in root.named_children:
            if _has_unsupported_part(node):
                raise _Unsupported
            match node.type:
                case "attribute_item":
                    derived.update(re.findall(r"\w+", get_text(node)))
                    continue
                case "struct_item" | "enum_item":
                    self._add_type(node, derived)
                case "function_signature_item" | "function_item":
                    head = f"::{self._task.crate}::{get_name(node)}"
                    self.proxies.append(f"pub {self._render_function(node, head, '')}")
                case "impl_item":
                    self._add_implementation(node)
                case "use_declaration" | "line_comment" | "block_comment" | "empty_statement":
                    pass
                case _:
                    raise _Unsupported
            derived.clear()
        for name in sorted(self._closed - self._kept):
            self._add_dropping(name)

    # ----------------------------------------------------------------------------------- types

    def _sort_type(self, node: Node) -> None:
        """Note whether the type is open."""
        name = get_name(node)
        body = node.child_by_field_name("body")
        if node.child_by_field_name("type_parameters") is not None:
            raise _Unsupported
        if name in self._needs.units or node.type == "enum_item":
            self._open.add(name)
        elif body is None:
            self._closed.add(name)
        else:
            fields = list_fields(body)
            opening = re.escape(_get_brackets(body)[0])
            if not all(field.is_public for field in fields):
                raise _Unsupported
            if not re.search(rf"\b{name}\s*{opening}", self._task.tests):
                self._only_read.add(name)
            self._open.add(name)
            self.has_fields = True

    def _add_type(self, node: Node, derived: Collection[str]) -> None:
        name = get_name(node)
        needed = {trait for type_name, trait in self._needs.traits if type_name == name}
        traits = []
        for trait in (*_DERIVABLE, "Display"):
            if trait in {*derived, *needed}:
                traits.append(trait)
        if name in self._open:
            derivable = [trait for trait in traits if trait in _DERIVABLE]
            if "Display" in traits:
                raise _Unsupported
            self.proxies.append(f"#[derive({', '.join(derivable)})] {get_text(node)}")
            self._add_open_type(node, name, derivable)
        else:
            self.proxies.append(f"pub struct {name} {{ handle: u64 }}")
            self._add_handle(name, is_copied="Copy" in traits)
            for trait in traits:
                self._add_trait(name, trait, is_copied="Copy" in traits)

    def _add_open_type(self, node: Node, name: str, derived: Sequence[str]) -> None:
        path = f"::{self._task.crate}::{name}"
        variants: list[tuple[str, str, list[Field]]] = []
        if node.type == "enum_item":
            for variant in list_parts(node, "body"):
                if variant.type == "enum_variant":
                    fields = variant.child_by_field_name("body")
                    listed = list_fields(fields)
                    variants.append((f"::{get_name(variant)}", _get_brackets(fields), listed))
        else:
            body = node.child_by_field_name("body")
            variants.append(("", _get_brackets(body), list_fields(body)))
        self.proxies.append(_render_wire(name, variants))
        is_only_put = name in self._only_read
        self.implementations.append(_render_wire(path, variants, is_only_put=is_only_put))
        bounds = {"Debug": "::std::fmt::Debug", "Hash": "::std::hash::Hash"}
        if derived:
            bound = " + ".join(bounds.get(trait, trait) for trait in derived)
            check = f"const _: () = {{ fn has<T: {bound}>() {{}} let _ = has::<{path}>; }};"
            self.implementations.append(check)

    def _add_handle(self, name: str, *, is_copied: bool) -> None:
        path = f"::{self._task.crate}::{name}"
        self.proxies.append(
            f"impl {_WIRE}::Put<{_MARKER}> for {name} {{ fn put(&self, to: &mut {_WIRE}::Writer)"
            f" {{ to.put_handle(self.handle) }} }} impl {_WIRE}::Lend<{_MARKER}> for {name} {{}}"
            f" impl {_WIRE}::Take<{_MARKER}> for {name} {{ fn take(from: &mut {_WIRE}::Reader)"
            f" -> ::std::option::Option<Self> {{ from.take_handle().map(|handle| Self {{ handle }})"
            " } }"
        )
        taken = f"{_REMOTE}::take_held(from)"
        if is_copied:
            self._kept.add(name)
            taken = f"{_REMOTE}::lend_held(from).map(|held: &mut Self| *held)"
        self.implementations.append(
            f"impl {_WIRE}::Put<{_MARKER}> for {path} {{ fn put(&self, to: &mut {_WIRE}::Writer)"
            f" {{ {_REMOTE}::put_held(self, to) }} }}"
            f" impl {_WIRE}::Take<{_MARKER}> for {path} {{ fn take(from: &mut {_WIRE}::Reader)"
            f" -> ::std::option::Option<Self> {{ {taken} }}"
            f" fn lend<'a>(from: &mut {_WIRE}::Reader) -> ::std::option::Option<&'a mut Self>"
            f" where Self: 'a {{ {_REMOTE}::lend_held(from) }} }}"
        )

    def _add_trait(self, name: str, trait: str, *, is_copied: bool = False) -> None:
        """Add what the proxy needs to have a trait of the standard library that answers derive."""
        path = f"::{self._task.crate}::{name}"
        match trait:
            case "Debug" | "Display":
                made = (
                    f"{{ fn make(value: &{path}, format: {_WIRE}::Format) -> ::std::string::String"
                    f" {{ {_WIRE}::render(format, &|f| ::std::fmt::{trait}::fmt(value, f)) }}"
                    " make }"
                )
                call = self._add_call(made, ["self", "format"])
                proxy = _TEXT.format(trait=trait, name=name, call=call, wire=_WIRE)
            case "Clone":
                call = "*self" if is_copied else self._add_cloning(path)
                proxy = f"impl Clone for {name} {{ fn clone(&self) -> Self {{ {call} }} }}"
            case "Default":
                call = self._add_call(
                    f"<{path} as Default>::default", [], moves=name in self._closed
                )
                proxy = f"impl Default for {name} {{ fn default() -> Self {{ {call} }} }}"
            case "PartialEq":
                self._kept.add(name)
                number = len(self.arms)
                call = self._add_call(f"<{path} as PartialEq>::eq", ["self", "other"])
                note = ""
                if name in self._closed:
                    handles = f"{number}, self.handle, other.handle"
                    note = f"if is_equal {{ {_REMOTE}::compared({handles}); }}"
                proxy = _EQUALITY.format(
                    trait="PartialEq", other="Self", name=name, call=call, note=note
                )
            case "PartialOrd" | "Ord":
                method, result, reverse = {
                    "Ord": ("cmp", "::std::cmp::Ordering", ".reverse()"),
                    "PartialOrd": (
                        "partial_cmp",
                        "::std::option::Option<::std::cmp::Ordering>",
                        ".map(::std::cmp::Ordering::reverse)",
                    ),
                }[trait]
                callee = f"<{path} as {trait}>::{method}"
                call = self._add_call(callee, ["self", "other"])
                reversed_call = self._add_call(callee, ["other", "self"])
                proxy = _ORDER.format(
                    trait=trait,
                    name=name,
                    method=method,
                    result=result,
                    call=call,
                    reversed=reversed_call,
                    reverse=reverse,
                    remote=_REMOTE,
                )
            case "Hash":
                made = (
                    f"{{ fn make(value: &{path}) -> u64 {{ let mut hasher ="
                    " ::std::collections::hash_map::DefaultHasher::new();"
                    " ::std::hash::Hash::hash(value, &mut hasher);"
                    " ::std::hash::Hasher::finish(&hasher) } make }"
                )
                proxy = _HASH.format(name=name, call=self._add_call(made, ["self"]))
            case _:
                self.implementations.append(f"const _: () = {{ {_render_bound(path, trait)} }};")
                proxy = f"impl {trait} for {name} {{}}"
        self.proxies.append(proxy)

    def _add_equality(self, name: str, other: str) -> None:
        """Add `PartialEq` with another type, of which the values are sent."""
        self._kept.add(name)
        number = len(self.arms)
        callee = f"<::{self._task.crate}::{name} as PartialEq<{other}>>::eq"
        call = self._add_call(callee, ["self", "other"])
        note = ""
        if name in self._closed and self._closed.isdisjoint(re.findall(r"\w+", other)):
            put = f"|to| {_WIRE}::Put::<{_MARKER}>::put(other, to)"
            note = f"if is_equal {{ {_REMOTE}::matched({number}, self.handle, {put}); }}"
        self.proxies.append(
            _EQUALITY.format(
                trait=f"PartialEq<{other}>", other=other, name=name, call=call, note=note
            )
        )

    def _add_dropping(self, name: str) -> None:
        """Drop the answer's value with its handle, if no call has taken it."""
        number = len(self.arms)
        self.arms.append(
            f"let _ = <::{self._task.crate}::{name} as {_WIRE}::Take<{_MARKER}>>::take(from);"
        )
        self.proxies.append(
            f"impl Drop for {name} {{ fn drop(&mut self) {{ let mut request ="
            f" {_REMOTE}::Request::new({number}); request.to.put_handle(self.handle);"
            " request.send(); } }"
        )

    def _add_cloning(self, path: str) -> str:
        return self._add_call(f"<{path} as Clone>::clone", ["self"], moves=True)

    # ----------------------------------------------------------------------------------- calls

    def _add_implementation(self, node: Node) -> None:
        type_ = get_field(node, "type")
        trait_node = node.child_by_field_name("trait")
        is_generic = node.child_by_field_name("type_parameters") is not None
        if is_generic or type_ not in self._open | self._closed:
            raise _Unsupported
        path = f"::{self._task.crate}::{type_}"
        if trait_node is None:
            for inner in list_parts(node, "body"):
                proxy = self._render_function(inner, f"<{path}>::{get_name(inner)}", type_)
                self.proxies.append(f"impl {type_} {{ pub {proxy} }}")
                self.methods.add(get_name(inner))
            return
        trait = get_text(trait_node)
        plain = re.sub(r"<.*", "", trait).rpartition("::")[2]
        if plain in (*_DERIVABLE, "Display") and "<" not in trait:
            self._add_trait(type_, plain)
            return
        argument = re.search(r"<(.*)>", trait)
        if plain == "PartialEq" and argument:
            self._add_equality(type_, argument[1])
            return
        if plain not in _METHODS:
            raise _Unsupported
        method = _METHODS[plain].replace("ARGUMENT", argument[1] if argument else "Self")
        types = []
        for inner in list_parts(node, "body"):
            if inner.type in ("type_item", "associated_type"):
                types.append(get_text(inner))
        members = list(types)
        for inner in parse(method).named_children:
            callee = f"<{path} as {trait}>::{get_name(inner)}"
            members.append(self._render_function(inner, callee, type_, " ".join(types)))
        self.implementations.append(f"const _: () = {{ {_render_bound(path, trait)} }};")
        self.proxies.append(f"impl {trait} for {type_} {{ {' '.join(members)} }}")

    def _render_function(self, node: Node, callee: str, owner: str, associated: str = "") -> str:
        """Return the proxy of a function. `owner`: the type that has it, or an empty string.
        `associated`: types that `Self::...` may mean."""
        if node.type not in ("function_signature_item", "function_item"):
            raise _Unsupported
        result = get_field(node, "return_type")
        lifetimes = get_field(node, "type_parameters")
        declared: list[str] = []
        arguments: list[str] = []
        changed: dict[str, str] = {}
        for number, parameter in enumerate(list_parts(node, "parameters")):
            if parameter.type == "self_parameter":
                text = get_text(parameter).removeprefix("mut ")
                declared.append(text)
                name = "self"
                type_ = text.replace("self", "Self")
            elif parameter.type == "parameter":
                name = f"gradus_{number}"
                type_ = get_field(parameter, "type")
                declared.append(f"{name}: {type_}")
            elif parameter.type == "attribute_item":
                continue
            else:
                raise _Unsupported
            arguments.append(name)
            if match := re.match(r"&\s*(?:'\w+\s+)?mut\b\s*", type_):
                changed[name] = type_[match.end() :]
        words = re.findall(r"\w+", f"{result} {associated}".replace("Self", owner))
        moves = not self._closed.isdisjoint(words)
        if not owner and "Self" in result:
            raise _Unsupported
        call = self._add_call(callee, arguments, changed, moves=moves, owner=owner)
        returned = result or "()"
        return f"fn {get_name(node)}{lifetimes}({', '.join(declared)}) -> {returned} {{ {call} }}"

    def _add_call(
        self,
        callee: str,
        arguments: Sequence[str],
        changed: Mapping[str, str] = {},
        *,
        moves: bool = False,
        owner: str = "",
    ) -> str:
        """Add a call of `callee`, a path in the dispatcher; return the proxy's expression for it.

        `changed`: what `&mut` parameters refer to, by name. `moves`: the result may hold values
        that stay with the answer.
        """
        number = len(self.arms)
        request = [f"let mut request = {_REMOTE}::Request::new({number});"]
        reply = [f"let result = {_WIRE}::Take::<{_MARKER}>::take(&mut reply.from);"]
        taken: list[str] = []
        given: list[str] = []
        put_back: list[str] = []
        for at, name in enumerate(arguments):
            local = f"gradus_{at}"
            target = changed.get(name)
            type_ = ""
            value = f"&{name}"
            given.append(local)
            if target is not None:
                path = f"::{self._task.crate}::{owner}"
                elided = re.sub(r"'\w+", "'_", target)
                type_ = f": &mut {elided.replace('Self', path)}"
                value = f"&*{name}"
                given[-1] = f"&mut *{local}"
                if target.replace("Self", owner) in self._closed:
                    request.append(f"request.change({name}.handle);")
                else:
                    back = f"{_WIRE}::PutBack::<{_MARKER}>"
                    put_back.append(f"{back}::put_back(&*{local}, to);")
                    taken_back = f"{back}::take_back({name}, &mut reply.from).map(|()| value)"
                    reply.append(f"let result = result.and_then(|value| {taken_back});")
            request.append(f"{_WIRE}::Put::<{_MARKER}>::put({value}, &mut request.to);")
            taken.append(f"let {local}{type_} = {_WIRE}::Take::<{_MARKER}>::take(from)?;")
        arm = [
            *taken,
            f"let result = ({callee})({', '.join(given)});",
            f"{_WIRE}::Put::<{_MARKER}>::put(&result, to);",
            *put_back,
        ]
        if moves:
            arm.append(f"{_REMOTE}::forget(result);")
        self.arms.append(" ".join(arm))
        parts = [*request, "let mut reply = request.send();", *reply]
        return f"{{ {' '.join(parts)} reply.finish(result, FINITE) }}"


def _get_brackets(body: Node | None) -> str:
    return {"field_declaration_list": "{}"}.get(body.type, "()") if body else ""


def _render_wire(
    path: str, variants: Sequence[tuple[str, str, list[Field]]], *, is_only_put: bool = False
) -> str:
    """Return how values of an open type are put and taken. `variants`: end of the path, brackets
    and fields of each. `is_only_put`: there may be other fields."""
    puts: list[str] = []
    takes: list[str] = []
    for number, (variant, brackets, fields) in enumerate(variants):
        names = [f"gradus_{at}" for at in range(len(fields))]
        prefixes = [f"{field.name}: " if field.name else "" for field in fields]
        others_too = [".."] if is_only_put else []
        pattern = _enclose(brackets, [*map(str.__add__, prefixes, names), *others_too])
        put = " ".join(f"{_WIRE}::Put::<{_MARKER}>::put({name}, to);" for name in names)
        puts.append(f"{path}{variant}{pattern} => {{ to.write(&[{number}]); {put} }}")
        take = f"{_WIRE}::Take::<{_MARKER}>::take(from)?"
        values = _enclose(brackets, (f"{prefix}{take}" for prefix in prefixes))
        takes.append(f"{number} => {path}{variant}{values},")
    put_whole = (
        f"impl {_WIRE}::Put<{_MARKER}> for {path} {{ #[allow(unreachable_patterns)] fn put(&self,"
        f' to: &mut {_WIRE}::Writer) {{ match self {{ {" ".join(puts)} _ => ::std::panic!("a'
        f' variant that is not declared") }} }} }} impl {_WIRE}::Lend<{_MARKER}> for {path} {{}}'
    )
    if is_only_put:
        return put_whole
    return (
        f"{put_whole} impl {_WIRE}::Take<{_MARKER}> for {path} {{"
        f" fn take(from: &mut {_WIRE}::Reader) -> ::std::option::Option<Self> {{ let variant: u8 ="
        f" {_WIRE}::Take::<{_MARKER}>::take(from)?;"
        f" ::std::option::Option::Some(match variant {{ {' '.join(takes)} _ => return"
        " ::std::option::Option::None }) } }"
    )


def _enclose(brackets: str, parts: Iterable[str]) -> str:
    if not brackets:
        return ""
    return f"{brackets[0]} {', '.join(parts)} {brackets[1]}"


def _render_bound(path: str, trait: str) -> str:
    return f"fn has<T: {trait}>() {{}} let _ = has::<{path}>;"


def _has_unsupported_part(node: Node) -> bool:
    return any(part.type in _UNSUPPORTED_NODES for part in iter_nodes(node))
