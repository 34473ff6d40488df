"""Whether a task can be met at all: found out against a stub of what its signature declares, not
against an answer.

The stub is the signature's own text with bodies. Where it cannot be compiled, the compiler's error
is the signature's, or nothing is known but names: an `impl` may be declared in part. Tests that
do not compile against the stub are the task's fault where no answer can mend the error. Errors of
syntax and of names that the answer cannot bring always are; errors of types are where the stub is
whole, and not of what the signature leaves open about its types.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import lru_cache

from tree_sitter import Node

from gradus.extract import Answer
from gradus.tasks.rust import RustTask
from services.graders.rust.answer import RustAnswer
from services.graders.rust.compile import Compiled, CompilerMessage, CompileStatus
from services.graders.rust.glob_imports import find_globs
from services.graders.rust.lexer import (
    Item,
    Kind,
    compute_group_ends,
    list_texts,
    parse_inner_items,
)
from services.graders.rust.signature import Signature, get_first_word
from services.graders.rust.syntax import (
    Declaration,
    find_child,
    get_field,
    get_text,
    iter_declarations,
    normalize,
    parse,
    read_declarations,
)
from services.graders.rust.tests_file import TestsFile

_UNRESOLVED = frozenset({"E0405", "E0412", "E0425", "E0432", "E0433", "E0463"})
_OF_FORM = frozenset({"E0124", "E0403", "E0415", "E0416", "E0428"})
"""Names that are defined twice."""
_OF_PARTS = frozenset({"E0046", "E0119", "E0184", "E0204", "E0277", "E0392"})
"""Errors of a stub that its signature need not answer for: parts of an `impl` or of a type that it
leaves out."""
_OPEN = frozenset({"E0282", "E0283", "E0284"})
"""Errors of types that may follow from another one."""
_OF_BORROWS = re.compile(r"E0(?:37[23]|38[124]|49\d|50\d|52[01]|59[4-7]|621|71[26]|7\d\d)$")
_OF_MOVES = frozenset({"E0381", "E0382", "E0384", "E0594", "E0596"})
"""Errors that no lifetime mends, but that a type of the answer may: it can be `Copy`."""
_OF_BOUNDS = frozenset({"E0277", "E0599", "E0369"})
_OF_RESULTS = re.compile(r"`(?:[iu](?:8|16|32|64|128|size)|f32|f64|bool|char|&str): Termination`")
"""A test gives what no test may give, and no answer can make it one."""
_NAME = re.compile(r"`(?:r#)?(\w+)[^`]*`")
_WORD = re.compile(r"\w+")
_GENERIC = re.compile(r"<|\b(?:impl|where)\b")
_OPAQUE = re.compile(r"->[^;{]*\bimpl\b|\basync\b")
_OF_TRAIT = re.compile(r"[^{]* for (?!<)")
"""An `impl` of a trait, up to its type."""
_PUBLISHED = frozenset({"fn", "struct", "enum", "trait", "type", "const", "static"})
"""Words of items that are made public where the signature declares them."""
_DERIVED = ("Clone", "Debug", "Default", "PartialEq", "Eq", "PartialOrd", "Ord", "Hash")
_VALUES = {
    "bool": "false",
    "char": "' '",
    "&str": '""',
    "&'static str": '""',
    "String": "String::new()",
} | {
    **dict.fromkeys(
        ("i8", "i16", "i32", "i64", "i128", "isize", "u8", "u16", "u32", "u64", "u128", "usize"),
        "1",
    ),
    **dict.fromkeys(("f32", "f64"), "1.0"),
}
"""What constants of the stub are, by type."""


_Edit = tuple[int, int, str]
"""Start and end in a text, and what goes there; of a tree in bytes, of tokens in characters."""


def build_stub(task: RustTask, signature_text: str | None) -> RustAnswer:
    """Return a library that has what the signature declares, on the same lines; empty without a
    signature."""
    if signature_text is None:
        return build_library(task, "")
    declared = normalize(signature_text)
    source = declared.encode()
    edits = []
    for start, end, new in _iter_edits(list(iter_declarations(parse(declared)))):
        edits.append((len(source[:start].decode()), len(source[:end].decode()), new))
    return build_library(task, f"#![allow(warnings)] {_apply_edits(declared, edits)}\n")


def build_library(task: RustTask, text: str) -> RustAnswer:
    """`text` as the root of the task's crate, whatever fences it holds."""
    entry = "src/lib.rs"
    return RustAnswer(Answer(text), entry, {**task.files, entry: text}, {entry: text}, task.edition)


def _iter_edits(declared: Sequence[Declaration]) -> Iterator[_Edit]:
    traits: dict[str, str] = {}
    for item in declared:
        trait = get_field(item.node, "trait")
        if trait:
            name = get_first_word(get_field(item.node, "type"))
            traits[name] = f"{traits.get(name, '')} {trait}"
    for item in declared:
        node = item.node
        body = node.child_by_field_name("body")
        if item.word == "mod" and body:
            yield _make_public(node)
            yield body.start_byte + 1, body.start_byte + 1, " use super::*;"
            yield from _iter_edits(item.list_members())
        else:
            yield from _iter_item_edits(item, _WORD.findall(traits.get(item.name, "")))


def _iter_item_edits(item: Declaration, traits: Collection[str]) -> Iterator[_Edit]:
    node = item.node
    has_body = node.child_by_field_name("body") is not None
    last = node.end_byte - 1  # the semicolon, where there is one
    is_derived = any("derive" in get_text(attribute) for attribute in item.attributes)
    if item.word == "struct" and not has_body and not is_derived:
        derived = [name for name in _DERIVED if name not in traits]
        yield item.start, item.start, f"#[derive({', '.join(derived)})] "
    if item.word in _PUBLISHED:
        yield _make_public(node)
    if item.word == "fn":
        yield _add_body(node)
    elif item.word in ("const", "static"):
        yield from _add_value(node)
    elif item.word == "impl":
        if not has_body:
            yield last, last + 1, " {}"
        for inner in item.list_members():
            if not node.child_by_field_name("trait") and inner.word in ("fn", "const"):
                yield _make_public(inner.node)
            if inner.word == "fn":
                yield _add_body(inner.node)
            elif inner.word == "const":
                yield from _add_value(inner.node)


def _make_public(node: Node) -> _Edit:
    """`pub` where it is missing, and in place of `pub(crate)`."""
    visibility = find_child(node, "visibility_modifier")
    end = visibility.end_byte if visibility else node.start_byte
    return node.start_byte, end, "pub "


def _add_body(node: Node) -> _Edit:
    body = node.child_by_field_name("body")
    start = node.end_byte - 1
    lines = 0
    if body:
        start = body.start_byte
        lines = body.end_point[0] - body.start_point[0]
    return start, node.end_byte, " { loop {} }" + "\n" * lines


def _add_value(node: Node) -> Iterator[_Edit]:
    type_ = node.child_by_field_name("type")
    if type_ and not node.child_by_field_name("value"):
        yield type_.end_byte, node.end_byte, f" = {_VALUES.get(get_text(type_), 'loop {}')};"


def _apply_edits(text: str, edits: Iterable[_Edit]) -> str:
    parts = []
    position = 0
    for start, end, new in sorted(edits, key=lambda edit: edit[0]):
        parts += [text[position:start], new]
        position = max(position, end)
    return "".join([*parts, text[position:]])


def publish_declared(text: str, items: Iterable[Item], signature_text: str) -> str:
    """Return `text` with `pub` at its private items and methods that the signature declares.
    `items`: those of the text."""
    names, methods = _collect_declared(signature_text)
    edits: list[_Edit] = []
    for item in items:
        if item.word in _PUBLISHED and item.name in names:
            edits += _publish_item(item)
        elif item.word == "impl":
            head = " ".join(token.text for token in item.body if token.kind is not Kind.TEXT)
            if _OF_TRAIT.match(head):
                continue
            for inner in parse_inner_items(item):
                if inner.word in ("fn", "const") and inner.name in methods:
                    edits += _publish_item(inner)
    return _apply_edits(text, edits)


@lru_cache(maxsize=256)
def _collect_declared(signature_text: str) -> tuple[set[str], set[str]]:
    """Return names of declared items, and of functions and constants of types. Kept, because a
    task has many answers."""
    names: set[str] = set()
    methods: set[str] = set()
    for item in read_declarations(signature_text):
        names.add(item.name)
        if item.word == "impl" and not item.node.child_by_field_name("trait"):
            methods.update(inner.name for inner in item.list_members())
    return names, methods


def _publish_item(item: Item) -> Iterator[_Edit]:
    """`pub` where it is missing, and in place of `pub(crate)`."""
    words = list_texts(item.body)
    group_ends = compute_group_ends(item.body)
    at = 0
    while words[at] == "#":
        at = group_ends[words.index("[", at)]
    start = item.body[at].start
    if words[at] != "pub":
        yield start, start, "pub "
    elif words[at + 1] == "(":
        yield start, item.body[group_ends[at + 1]].start, "pub "


# ----------------------------------------------------------------------------------------- judging


def find_declaration_error(compiled: Compiled) -> str | None:
    """Return what of the signature is no Rust, with its line."""
    for error in compiled.errors:
        if error.code not in _OF_PARTS | _UNRESOLVED:
            return f"line {error.line} of its signature: {error.text}"
    return None


def find_task_error(
    task: RustTask,
    signature: Signature | None,
    compiled: Compiled,
    tests: TestsFile,
    *,
    is_complete: bool,
) -> str | None:
    """Return what is wrong with the tests, with its line, as their compilation against the stub
    shows.

    `is_complete`: the stub has all that the signature declares.
    """
    if compiled.status is not CompileStatus.REFUSED:
        return None
    of_tests = []
    for error in compiled.errors:
        line = tests.find_task_line(error.outer_line)
        if line is not None:
            of_tests.append((line, error))
    for line, error in of_tests:
        if _is_task_error(task, signature, error, is_complete=is_complete):
            return f"line {line} of its tests: {error.text}"
    if not of_tests or not is_complete or signature is None or task.signature is None:
        return None
    declared = normalize(task.signature)
    open_names = {*_iter_declared_types(iter_declarations(parse(declared))), task.crate}
    is_generic = _GENERIC.search(declared) is not None
    for _, error in of_tests:
        if _can_be_mended(error, open_names, generic=is_generic):
            return None  # other errors may follow from it
    line, error = of_tests[0]
    return None if _OPAQUE.search(declared) else f"line {line} of its tests: {error.text}"


def _iter_declared_types(declared: Iterable[Declaration]) -> Iterator[str]:
    for item in declared:
        if item.word in ("struct", "enum", "trait", "type", "mod"):
            yield item.name
            if item.word == "mod":
                yield from _iter_declared_types(item.list_members())


def _can_be_mended(error: CompilerMessage, open_names: Collection[str], *, generic: bool) -> bool:
    """Return whether the error is of what the signature leaves open: names, parts of its types,
    bounds that an answer may lack. `open_names`: the crate, and types that are the answer's."""
    if error.code is None or error.code in _UNRESOLVED:
        return True
    if error.code in _OF_MOVES:
        return len(open_names) > 1
    if _OF_BORROWS.match(error.code):
        return True
    return (generic and error.code in _OF_BOUNDS | _OPEN) or not set(
        _WORD.findall(error.text)
    ).isdisjoint(open_names)


def find_signature_error(
    signature: Signature | None, compiled: Compiled, tests: TestsFile, *, is_complete: bool
) -> str | None:
    """Return the declaration that not even a stub made of it meets. `is_complete`: the stub has all
    that is declared."""
    for error in compiled.errors:
        pin = tests.pins.get(error.line)
        name = _NAME.search(error.text)
        if pin is None:
            continue
        if "in this scope" in error.text and not (
            name and signature and name[1] in signature.names
        ):
            return f"in its signature, of `{pin.name}`: {error.text}"
        if is_complete:
            return f"no answer can be what its signature declares as `{pin.name}`: {error.text}"
    return None


def _is_task_error(
    task: RustTask, signature: Signature | None, error: CompilerMessage, *, is_complete: bool
) -> bool:
    """Return whether it is an error of syntax, or of a name that no answer can bring to where the
    tests use it."""
    globs = find_globs(task.tests, task.crate)
    brings_any = any(signature is None or not glob.is_plain(task.crate) for glob in globs)
    if error.code is None:
        is_name = error.text.startswith("cannot find")  # a macro or an attribute
        return not is_name or not (brings_any or "macro_use" in task.tests)
    if error.code in _OF_FORM or _OF_RESULTS.search(error.text):
        return True
    if signature is None and error.code == "E0308":
        return True  # what has its type from the answer is not known, and then not compared
    if error.code == "E0463":
        return f"`{task.crate}`" not in error.text
    name_match = _NAME.search(error.text)
    if error.code not in _UNRESOLVED or name_match is None:
        return False
    pattern = rf"import `{task.crate}::(\w+)`|`(\w+)` in crate `{task.crate}`"
    of_root = re.search(pattern, error.text)
    if of_root:
        name = of_root[1] or of_root[2]
        if any(path.startswith((f"src/{name}.", f"src/{name}/")) for path in task.files):
            return False
        return is_complete and signature is not None and not re.search(rf"\b{name}\s*!", task.tests)
    if brings_any or f"`{task.crate}" in error.text:
        return False
    is_import = error.text.startswith("unresolved import")
    is_declared = signature is not None and name_match[1] in signature.names
    return ("in this scope" in error.text or is_import) and not (is_declared and not is_complete)
