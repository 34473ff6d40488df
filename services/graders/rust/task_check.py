"""Whether a task can be met at all: found out against a stub of what its signature declares, not
against an answer.

The stub is the signature's own text with bodies. Where it cannot be compiled, the compiler's error
is the signature's, or what it stands at is left out: an `impl` may be declared in part. Tests that
do not compile against the stub are the task's fault where no answer can mend the error. Errors of
syntax and of names that the answer cannot bring always are; errors of types are where the stub is
whole, and not of what the signature leaves open about its types.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from gradus.extract import Answer
from gradus.tasks.rust import RustTask
from services.graders.rust.answer import RustAnswer
from services.graders.rust.compile import Compiled, CompilerMessage, CompileStatus
from services.graders.rust.glob_imports import find_globs, is_plain
from services.graders.rust.lexer import (
    BEFORE_FUNCTION,
    Item,
    Kind,
    Token,
    code,
    compute_group_ends,
    items,
    parse_inner_items,
)
from services.graders.rust.signature import Function, Signature, read_declared_type, split_generics
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
_PUBLISHED = frozenset({"fn", "struct", "enum", "trait", "type", "const", "static"})
"""Words of items that are made public where the signature declares them."""
_DERIVED = ("Clone", "Debug", "Default", "PartialEq", "Eq", "PartialOrd", "Ord", "Hash")
_VALUES = {
    "bool": "false",
    "char": "' '",
    "& str": '""',
    "& 'static str": '""',
    "String": "String::new()",
} | {
    **dict.fromkeys(
        ("i8", "i16", "i32", "i64", "i128", "isize", "u8", "u16", "u32", "u64", "u128", "usize"),
        "1",
    ),
    **dict.fromkeys(("f32", "f64"), "1.0"),
}
"""What constants of the stub are, by type."""


@dataclass(frozen=True, slots=True)
class _Edit:
    start: int
    end: int
    text: str


def build_stub(
    task: RustTask, signature: Signature | None, without: Collection[int] = ()
) -> RustAnswer:
    """Return a library that has what the signature declares, but for its items `without`; empty
    without a signature.

    Line 1 holds what the tests import from elsewhere, which the signature may name; line n + 1 is
    the signature's n.
    """
    text = ""
    if signature is not None and task.signature is not None:
        imported = []
        for item in items(code(task.tests)):
            words = [token.text for token in item.body]
            if item.word == "use" and task.crate not in words[:4] and "super" not in words:
                source = task.tests[item.body[0].start : item.body[-1].start + 1]
                imported.append("pub " + " ".join(source.split()).removeprefix("pub "))
        scope = f"mod gradus_scope {{ {' '.join(imported)} }} use gradus_scope::*;"
        declared = list(items(code(task.signature)))
        stub = _apply_edits(task.signature, _iter_edits(task.signature, declared, without))
        text = f"#![allow(warnings)] {scope}\n{stub}\n"
    return build_library(task, text)


def build_library(task: RustTask, text: str) -> RustAnswer:
    """`text` as the root of the task's crate, whatever fences it holds."""
    entry = "src/lib.rs"
    return RustAnswer(Answer(text), entry, {**task.files, entry: text}, {entry: text}, task.edition)


def _iter_edits(text: str, declared: Sequence[Item], without: Collection[int]) -> Iterator[_Edit]:
    traits: dict[str, set[str]] = {}
    for item in declared:
        words = [token.text for token in item.body]
        if item.word == "impl" and "for" in words:
            traits.setdefault(words[words.index("for") + 1], set()).update(
                words[: words.index("for")]
            )
    for number, item in enumerate(declared):
        if number in without:
            start = item.body[0].start
            end = _compute_end(item.body[-1])
            yield _Edit(start, end, "\n" * text.count("\n", start, end))
        elif item.word == "mod":
            opening = next((token for token in item.body if token.text == "{"), None)
            if opening is not None:
                yield from _make_public(item)
                yield _Edit(_compute_end(opening), _compute_end(opening), " use super::*;")
                yield from _iter_edits(text, parse_inner_items(item), ())
        else:
            yield from _iter_item_edits(text, item, traits.get(item.name, set()))


def _iter_item_edits(text: str, item: Item, traits: Collection[str]) -> Iterator[_Edit]:
    words = [token.text for token in item.body]
    last = item.body[-1]
    closed = last.text in (";", "}")
    after_last = _compute_end(last) - (last.text == ";")
    if item.word in _PUBLISHED:
        yield from _make_public(item)
    if item.word == "fn":
        yield from _add_body(text, item)
    elif item.word in ("const", "static"):
        yield from _add_value(item)
    elif (
        item.word in ("struct", "enum", "trait")
        and "{" not in words
        and "(" not in words[words.index(item.name) :]
    ):
        if item.word != "trait" and "derive" not in words:
            derived = ", ".join(
                name for name in _DERIVED if name not in traits and item.word == "struct"
            )
            yield _Edit(item.body[0].start, item.body[0].start, f"#[derive({derived})] ")
        generics = _build_generic_uses(item)
        if generics and item.word == "struct":
            struct_end = f"(::std::marker::PhantomData<({generics})>);"
        else:
            struct_end = ";"
        yield _Edit(after_last, _compute_end(last), struct_end if item.word == "struct" else " {}")
    elif item.word == "impl":
        if "{" not in words:
            yield _Edit(after_last, _compute_end(last), " {}")
        for inner in parse_inner_items(item):
            if "for" not in words[: words.index("{")] and inner.word in ("fn", "const"):
                yield from _make_public(inner)
            if inner.word == "fn":
                yield from _add_body(text, inner)
            elif inner.word == "const":
                yield from _add_value(inner)
    elif not closed:
        yield _Edit(after_last, after_last, ";")


def _compute_end(token: Token) -> int:
    return token.start + len(token.text)


def publish_declared(text: str, own: Iterable[Item], signature_text: str) -> str:
    """Return `text` with `pub` at its private items and methods that the signature declares.
    `own`: its items."""
    names, methods = _collect_declared(signature_text)
    edits: list[_Edit] = []
    for item in own:
        if item.word in _PUBLISHED and item.name in names:
            edits += _make_public(item)
        elif item.word == "impl" and not _is_of_trait(item):
            for inner in parse_inner_items(item):
                if inner.word in ("fn", "const") and inner.name in methods:
                    edits += _make_public(inner)
    return _apply_edits(text, edits)


def _collect_declared(signature_text: str) -> tuple[set[str], set[str]]:
    """Return names of declared items, and of functions and constants of types."""
    names: set[str] = set()
    methods: set[str] = set()
    for item in items(code(signature_text)):
        names.add(item.name)
        if item.word == "impl" and not _is_of_trait(item):
            methods.update(inner.name for inner in parse_inner_items(item))
    return names, methods


def _is_of_trait(item: Item) -> bool:
    """Return whether an `impl` is of a trait."""
    for token, following in pairwise(item.body):
        if token.text == "{":
            return False
        if token.text == "for" and following.text != "<":
            return True
    return False


def _apply_edits(text: str, edits: Iterable[_Edit]) -> str:
    parts = []
    position = 0
    for edit in sorted(edits, key=lambda edit: edit.start):
        parts += [text[position : edit.start], edit.text]
        position = max(position, edit.end)
    return "".join([*parts, text[position:]])


def _make_public(item: Item) -> Iterator[_Edit]:
    """`pub` where it is missing, and in place of `pub(crate)`."""
    at = next(
        n
        for n, token in enumerate(item.body)
        if token.kind is Kind.NAME and token.text == item.word
    )
    while at and (item.body[at - 1].text in BEFORE_FUNCTION or item.body[at - 1].kind is Kind.TEXT):
        at -= 1
    before = item.body[at - 1].text if at else ""
    if before == ")":
        opening = max(n for n in range(at) if item.body[n].text == "(")
        yield _Edit(item.body[opening].start, _compute_end(item.body[at - 1]), "")
    elif before != "pub":
        yield _Edit(item.body[at].start, item.body[at].start, "pub ")


def _add_body(text: str, item: Item) -> Iterator[_Edit]:
    group_ends = compute_group_ends(item.body)
    at = next(n for n, token in enumerate(item.body) if token.text == "fn")
    while at < len(item.body) and item.body[at].text not in ("{", ";"):
        at = group_ends[at]
    body = " { loop {} }"
    gives = Function.read(item.body).gives
    if gives and gives[0].text == "impl":
        result_type = text[_compute_end(gives[0]) : _compute_end(gives[-1])]
        body = (
            f" {{ let gradus: ::std::boxed::Box<dyn {' '.join(result_type.split())}> = loop {{}};"
            " gradus }"
        )
    end = _compute_end(item.body[-1])
    start = item.body[at].start if at < len(item.body) else end
    yield _Edit(start, end, body + "\n" * text.count("\n", start, end))


def _add_value(item: Item) -> Iterator[_Edit]:
    type_ = read_declared_type(item.body)
    if type_ and all(token.text != "=" for token in item.body):
        value = _VALUES.get(" ".join(token.text for token in type_), "loop {}")
        yield _Edit(_compute_end(type_[-1]), _compute_end(item.body[-1]), f" = {value};")


def _build_generic_uses(item: Item) -> str:
    """Return what makes use of the parameters of `struct S<'a, T: Clone, const N: usize>;`, as the
    arguments of a tuple."""
    name = next(at for at, token in enumerate(item.body) if token.text == item.name)
    generics, _ = split_generics(item.body[name + 1 :])
    names = [part[0].text for part in generics if part[0].text != "const"]
    return " ".join(
        f"&{generic} ()," if generic.startswith("'") else f"fn() -> {generic}," for generic in names
    )


# ----------------------------------------------------------------------------------------- judging


def find_declaration_error(signature_text: str, compiled: Compiled) -> tuple[str | None, set[int]]:
    """Return what of the signature is no Rust, with its line; else the numbers of the items that
    the stub has to lack."""
    spans = [(item.first_line, item.last_line) for item in items(code(signature_text))]
    without: set[int] = set()
    for error in compiled.errors:
        line = error.line - 1
        if error.code not in _OF_PARTS | _UNRESOLVED and line > 0:
            return f"line {line} of its signature: {error.text}", set()
        without |= {number for number, (first, last) in enumerate(spans) if first <= line <= last}
    return None, without


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
    located_errors = [(tests.find_task_line(error.outer_line), error) for error in compiled.errors]
    of_tests = []
    for line, error in located_errors:
        if line is not None:
            of_tests.append((line, error))
    for line, error in of_tests:
        if _is_task_error(task, signature, error, is_complete=is_complete):
            return f"line {line} of its tests: {error.text}"
    if is_complete and signature is not None and task.signature is not None:
        open_names = {*_iter_declared_types(items(code(task.signature))), task.crate}
        generic = bool({"<", "impl", "where"} & {token.text for token in code(task.signature)})
        opaque = (
            "impl" in (returned := _collect_result_words(task.signature)) or "async" in returned
        )
        is_closed = _has_plain_functions(items(code(task.signature)))
        mended = []
        for _, error in of_tests:
            if _can_be_mended(error, open_names, generic=generic, is_closed=is_closed):
                mended.append(error)
        for line, error in of_tests:
            if error not in mended and not opaque and not (mended and error.code in _OPEN):
                return f"line {line} of its tests: {error.text}"
    return None


def _iter_declared_types(declared: Iterable[Item]) -> Iterator[str]:
    for item in declared:
        if item.word in ("struct", "enum", "trait", "type", "mod"):
            yield item.name
            if item.word == "mod":
                yield from _iter_declared_types(parse_inner_items(item))


def _collect_result_words(signature_text: str) -> set[str]:
    """Return words that stand in results of the declared functions, and `async`."""
    words = [token.text for token in code(signature_text)]
    result_words = set()
    inside = False
    for at, word in enumerate(words):
        inside = inside or (word == ">" and words[at - 1 : at] == ["-"])
        inside = inside and word not in (";", "{")
        if inside or word == "async":
            result_words.add(word)
    return result_words


def _has_plain_functions(declared: Iterable[Item]) -> bool:
    """Return whether all that is declared are functions of types that the answer does not make."""
    for item in declared:
        if item.word == "use":
            continue
        if item.word != "fn":
            return False
        function = Function.read(item.body)
        if function.has_types or function.is_opaque:
            return False
    return True


def _can_be_mended(
    error: CompilerMessage, open_names: Collection[str], *, generic: bool, is_closed: bool
) -> bool:
    """Return whether the error is of what the signature leaves open: names, parts of its types,
    bounds that an answer may lack. `is_closed`: no type is the answer's."""
    if error.code is None or error.code in _UNRESOLVED:
        return True
    if error.code in _OF_MOVES:
        return not is_closed
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
        if pin := tests.pins.get(error.line):
            name = _NAME.search(error.text)
            unknown = (
                error.code in _UNRESOLVED and "in this scope" in error.text and name is not None
            )
            if unknown and not (signature and name and name[1] in signature.names):
                return f"in its signature, of `{pin.name}`: {error.text}"
            if is_complete:
                return f"no answer can be what its signature declares as `{pin.name}`: {error.text}"
    return None


def _is_task_error(
    task: RustTask, signature: Signature | None, error: CompilerMessage, *, is_complete: bool
) -> bool:
    """Return whether it is an error of syntax, or of a name that no answer can bring to where the
    tests use it."""
    imported = []
    for a, b in find_globs(task.tests, task.crate):
        imported.append(task.tests[a.start : b.start + 1])
    brings_any = any(
        signature is None or not is_plain(declaration, task.crate) for declaration in imported
    )
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
    declared = signature.names if signature is not None and not is_complete else ()
    if of_root := re.search(
        rf"import `{task.crate}::(\w+)`|`(\w+)` in crate `{task.crate}`", error.text
    ):
        name = of_root[1] or of_root[2]
        if any(path.startswith((f"src/{name}.", f"src/{name}/")) for path in task.files):
            return False
        return is_complete and signature is not None and not re.search(rf"\b{name}\s*!", task.tests)
    if brings_any or f"`{task.crate}" in error.text:
        return False
    is_import = error.text.startswith("unresolved import")
    return ("in this scope" in error.text or is_import) and name_match[1] not in declared
