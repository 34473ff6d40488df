"""Rust of benchmarks made into what the grader judges: a public library and an integration test
file. Compiles nothing.

Benchmarks put tests into the answer's file (`#[cfg(test)] mod tests`) or behind it (`fn main` with
assertions), and import much that nothing uses. Items are cut by the grader's own lexer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from corpus.drafts import Unusable
from services.graders.rust.lexer import Item, Kind, Token, code, items

_MADE_PUBLIC = frozenset(
    {"fn", "struct", "enum", "union", "trait", "type", "const", "static", "mod"}
)
_STANDARD = frozenset({"std", "core", "alloc"})


def public(source: str) -> str:
    """`source` with every item at the top level public."""
    places = [at for item in items(code(source)) if (at := _unmarked(item)) is not None]
    for at in reversed(places):
        source = f"{source[:at]}pub {source[at:]}"
    return source


def _unmarked(item: Item) -> int | None:
    """Where `pub` is missing."""
    if item.word not in _MADE_PUBLIC:
        return None
    at = depth = 0
    while at < len(item.body) - 1 and (depth or item.body[at].text in ("#", "!", "[")):
        depth += (item.body[at].text == "[") - (item.body[at].text == "]")
        at += 1
    token = item.body[at]
    return None if token.text == "pub" else token.start


def functions(source: str) -> dict[str, str]:
    """Name -> `pub fn f(x: i64) -> i64` of the functions at the top level, in order."""
    return {
        item.name: _head(source, item)
        for item in items(code(source))
        if item.word == "fn" and item.name
    }


def _head(source: str, item: Item) -> str:
    start = next(token for token in item.body if token.text == "fn").start
    end = next(
        (token.start for token in item.body if token.start > start and token.text in "{;"),
        len(source),
    )
    return "pub " + " ".join(source[start:end].split())


def signature(source: str, tests: str) -> str | None:
    """Declarations of the functions of `source` that `tests` name; None when they name another item
    of it.

    For types the tests may need more of them than can be told from here.
    """
    named = {token.text for token in code(tests) if token.kind is Kind.NAME}
    used = [
        item for item in items(code(source)) if item.name in named and item.word in _MADE_PUBLIC
    ]
    if not used or any(item.word != "fn" for item in used):
        return None
    return "".join(f"{_head(source, item)};\n" for item in used)


def without(source: str, *, words: Sequence[str] = (), empty_main: bool = False) -> str:
    """`source` without items of these kinds (`use`), and without a `fn main` that does nothing."""
    for item in reversed(list(items(code(source)))):
        idle = (
            empty_main
            and item.name == "main"
            and [token.text for token in item.body[-2:]] == ["{", "}"]
        )
        if item.word in words or idle:
            last = item.body[-1]
            source = source[: item.body[0].start] + source[last.start + len(last.text) :]
    return source.strip("\n") + "\n"


def imports(source: str, used_in: str) -> str:
    """One `use` line for each name of the standard library that `source` imports and `used_in`
    mentions.

    What comes from other crates is left out: benchmarks import crates that hardly any of their
    tasks use.
    """
    named = {token.text for token in code(used_in) if token.kind is Kind.NAME}
    paths = [
        path for item in items(code(source)) if item.word == "use" for path in _leaves(item.body)
    ]
    kept = [path for path in paths if path[0] in _STANDARD and path[-1] in named]
    return "".join(f"use {'::'.join(path)};\n" for path in dict.fromkeys(kept))


def _leaves(body: Sequence[Token]) -> Iterator[tuple[str, ...]]:
    """Every path that a `use` item brings in, `self` as the module's own."""
    words = [token.text for token in body if token.text not in (":", ";", "pub")]
    stack: list[tuple[str, ...]] = []
    prefix: tuple[str, ...] = ()
    for at, word in enumerate(words[words.index("use") + 1 :], start=words.index("use") + 1):
        if word == "{":
            stack.append(prefix)
        elif word in (",", "}"):
            if words[at - 1] not in ("}", ",", "{"):
                yield _own(prefix)
            prefix = stack[-1] if stack and word == "," else (stack.pop() if stack else ())
        else:
            prefix = (*prefix, word)
    if words[-1] != "}":
        yield _own(prefix)


def _own(path: tuple[str, ...]) -> tuple[str, ...]:
    return path[:-1] if path[-1:] == ("self",) and len(path) > 1 else path


# ------------------------------------------------------------------------------------------- tests


def integration_tests(tests: str, crate: str = "solution") -> str:
    """`tests` as a file that names the crate. Raises Unusable when there is no test in them."""
    found = list(items(code(tests)))
    module = next(
        (item for item in found if item.word == "mod" and "test" in _texts(item.body)), None
    )
    text = tests
    if module:
        opening = next(token for token in module.body if token.text == "{")
        text = tests[opening.start + 1 : module.body[-1].start]
    if not any(_is_test(item) for item in items(code(text))):
        raise Unusable("tests: hold no #[test] function")
    text = text.replace("super::", f"{crate}::")
    if crate not in _texts(code(text)):
        text = f"use {crate}::*;\n\n{text}"
    return text.strip("\n") + "\n"


def _is_test(item: Item) -> bool:
    words = _texts(item.body)
    within = item.word == "fn" and any(
        words[at : at + 3] == ["[", "test", "]"] for at in range(len(words))
    )
    return within or words[:4] == ["#", "[", "test", "]"]


def assertions_of_main(tests: str, uses: str, crate: str = "solution") -> str:
    """MultiPL-E's `fn main` of assertions as one test per assertion. Raises Unusable when it is not
    of that form."""
    text = tests.strip().removeprefix("}")  # closes the function that the prompt opened
    main = next((item for item in items(code(text)) if item.name == "main"), None)
    if main is None:
        raise Unusable("tests: have no `fn main`")
    statements = list(_statements(text, main))
    given = [statement for statement in statements if statement.startswith("let ")]
    checks = [statement for statement in statements if statement.startswith("assert")]
    if not checks or len(given) + len(checks) != len(statements):
        raise Unusable("tests: their `fn main` holds something else than bindings and assertions")
    lines = [f"    {line}\n" for line in given]
    cases = [
        f"#[test]\nfn case_{n}() {{\n{''.join(lines)}    {check}\n}}\n"
        for n, check in enumerate(checks, 1)
    ]
    return f"use {crate}::*;\n{uses}\n" + "\n".join(cases)


def _statements(text: str, main: Item) -> Iterator[str]:
    opening = next(at for at, token in enumerate(main.body) if token.text == "{")
    start, depth = main.body[opening].start + 1, 0
    for token in main.body[opening + 1 : -1]:
        depth += (token.text in "([{") - (token.text in ")]}") if token.kind is Kind.SIGN else 0
        if token.text == ";" and not depth:
            yield text[start : token.start + 1].strip()
            start = token.start + 1


def _texts(body: Sequence[Token]) -> list[str]:
    return [token.text for token in body]
