"""Rust of benchmarks made into what the grader judges: a public library and an integration test
file.

Benchmarks put tests into the answer's file (`#[cfg(test)] mod tests`), and import much that nothing
uses. Items are cut by the grader's own lexer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from corpus.drafts import Unusable
from services.graders.rust.lexer import Kind, Token, code, compute_group_ends, items

_MADE_PUBLIC = frozenset(
    {"fn", "struct", "enum", "union", "trait", "type", "const", "static", "mod"}
)
_STANDARD = frozenset({"std", "core", "alloc"})


def make_public(source: str) -> str:
    """Return `source` with every item at the top level public."""
    for item in reversed(list(items(code(source)))):
        if item.word in _MADE_PUBLIC:
            first = remove_attributes(item.body)[0]
            if first.text != "pub":
                source = f"{source[: first.start]}pub {source[first.start :]}"
    return source


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


def build_integration_tests(tests: str, crate: str = "solution") -> str:
    """`tests` as a file that names the crate. Raises Unusable when there is no test in them."""
    all_items = list(items(code(tests)))
    module = next(
        (item for item in all_items if item.word == "mod" and "test" in get_words(item.body)), None
    )
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
