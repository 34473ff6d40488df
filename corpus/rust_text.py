"""Rust of benchmarks made into what the grader judges: a public library and an integration test
file.

Benchmarks put tests into the answer's file (`#[cfg(test)] mod tests`), and import much that nothing
uses. Items are cut by the grader's own lexer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tree_sitter import Node

from corpus.drafts import Unusable
from services.graders.rust.lexer import Kind, Token, code, compute_group_ends, items
from services.graders.rust.syntax import find_child, iter_declarations, parse

_MADE_PUBLIC = frozenset(
    {"fn", "struct", "enum", "union", "trait", "type", "const", "static", "mod"}
)
_STANDARD = frozenset({"std", "core", "alloc"})


def make_public(source: str, *, members: bool = False) -> str:
    """Return `source` with every item at the top level public; with `members` also their fields and
    methods."""
    if members:
        source = _make_members_public(source)
    for item in reversed(list(items(code(source)))):
        if item.word in _MADE_PUBLIC:
            first = remove_attributes(item.body)[0]
            if first.text != "pub":
                source = f"{source[: first.start]}pub {source[first.start :]}"
    return source


def _make_members_public(source: str) -> str:
    data = source.encode()
    starts = []
    for declaration in iter_declarations(parse(source)):
        node = declaration.node
        body = node.child_by_field_name("body")
        if body is None or node.child_by_field_name("trait") is not None:
            continue
        if node.type == "impl_item":
            private = [each.node for each in iter_declarations(body)]
        elif body.type == "ordered_field_declaration_list":
            private = _list_tuple_fields(body)
        elif node.type == "struct_item":
            private = [child for child in body.named_children if child.type == "field_declaration"]
        else:
            continue
        starts += [
            member.start_byte
            for member in private
            if find_child(member, "visibility_modifier") is None
        ]
    for start in sorted(starts, reverse=True):
        data = data[:start] + b"pub " + data[start:]
    return data.decode()


def _list_tuple_fields(body: Node) -> list[Node]:
    """Return the types of a tuple struct's fields that are not public."""
    private = []
    is_public = False
    for child in body.named_children:
        if child.type == "visibility_modifier":
            is_public = True
        elif child.type not in ("attribute_item", "line_comment", "block_comment"):
            if not is_public:
                private.append(child)
            is_public = False
    return private


def remove_attributes(body: Sequence[Token]) -> list[Token]:
    """Return the tokens without `#[...]`, wherever they stand."""
    ends = compute_group_ends(body)
    tokens = []
    at = 0
    while at < len(body):
        if body[at].text == "#" and at + 1 < len(body) and body[at + 1].text in ("[", "!"):
            at = ends[at + 1 + (body[at + 1].text == "!")]
        else:
            tokens.append(body[at])
            at += 1
    return tokens


def remove_items(source: str, *, words: Sequence[str] = (), empty_main: bool = False) -> str:
    """`source` without items of these kinds (`use`), and without a `fn main` that does nothing."""
    for item in reversed(list(items(code(source)))):
        idle = empty_main and item.name == "main" and get_words(item.body[-2:]) == ["{", "}"]
        if item.word in words or idle:
            last = item.body[-1]
            source = source[: item.body[0].start] + source[last.start + len(last.text) :]
    return source.strip("\n") + "\n"


def remove_test_modules(source: str) -> str:
    """Return `source` without the modules that hold tests."""
    for item in reversed(list(items(code(source)))):
        if item.word == "mod" and "# [ test ]" in " ".join(get_words(item.body)):
            last = item.body[-1]
            source = source[: item.body[0].start] + source[last.start + len(last.text) :]
    return source.strip("\n") + "\n"


def extract_imports(source: str, used_in: str) -> str:
    """Return one `use` line for each name of the standard library that `source` imports and
    `used_in` mentions.

    What comes from other crates is left out: benchmarks import crates that hardly any of their
    tasks use.
    """
    named = extract_names(used_in)
    lines: dict[str, None] = {}
    for item in items(code(source)):
        if item.word != "use":
            continue
        for path in _iter_paths(item.body):
            if path[0] in _STANDARD and path[-1] in named:
                lines[f"use {'::'.join(path)};\n"] = None
    return "".join(lines)


def _iter_paths(body: Sequence[Token]) -> Iterator[tuple[str, ...]]:
    """Yield every path that a `use` item brings in, `self` as the module's own."""
    words = [token.text for token in body if token.text not in (":", ";", "pub")]
    stack: list[tuple[str, ...]] = []
    prefix: tuple[str, ...] = ()
    first = words.index("use") + 1
    for at, word in enumerate(words[first:], start=first):
        if word == "{":
            stack.append(prefix)
        elif word in (",", "}"):
            if words[at - 1] not in ("}", ",", "{"):
                yield _drop_self(prefix)
            prefix = stack[-1] if stack else ()
            if word == "}" and stack:
                stack.pop()
        else:
            prefix = (*prefix, word)
    if words[-1] != "}":
        yield _drop_self(prefix)


def _drop_self(path: tuple[str, ...]) -> tuple[str, ...]:
    return path[:-1] if path[-1:] == ("self",) and len(path) > 1 else path


# ------------------------------------------------------------------------------------------- tests


def build_integration_tests(
    tests: str, crate: str = "solution", *, only_module: bool = False
) -> str:
    """Return `tests` as a file that names the crate. Raises Unusable when there is no test in them,
    or with `only_module` no module of tests."""
    all_items = list(items(code(tests)))
    module = next(
        (item for item in all_items if item.word == "mod" and "test" in get_words(item.body)), None
    )
    if module is None and only_module:
        raise Unusable("tests: there is no module of tests")
    text = tests
    if module:
        opening = module.body[get_words(module.body).index("{")]
        text = tests[opening.start + 1 : module.body[-1].start]
    if "# [ test ]" not in " ".join(get_words(code(text))):
        raise Unusable("tests: hold no #[test] function")
    text = text.replace("super::", f"{crate}::")
    if crate not in get_words(code(text)):
        text = f"use {crate}::*;\n\n{text}"
    return text.strip("\n") + "\n"


def get_words(body: Sequence[Token]) -> list[str]:
    return [token.text for token in body]


def extract_names(source: str) -> set[str]:
    """Return the identifiers and keywords in `source`."""
    return {token.text for token in code(source) if token.kind is Kind.NAME}
