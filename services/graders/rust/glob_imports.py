"""What `use solution::*;` in tests brings in. With such an import the answer would choose what
words mean there.

It becomes a list of names: those that the task declares, or else those that the tests mention and
the answer defines, but for words of the language, its prelude and its primitive types, and for
constants, types and traits named like variables. Traits come in only if the tests do not compile
without a method of theirs.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from gradus.tasks.rust import RustTask
from services.graders.rust.answer import RustAnswer
from services.graders.rust.lexer import (
    Item,
    Kind,
    Token,
    code,
    compute_group_ends,
    items,
    iter_macro_bodies,
)

_RESERVED = (Path(__file__).parent / "reserved_names.txt").read_text().split()
RESERVED = frozenset(name for name in _RESERVED if not name.endswith("!"))
"""What a name means of itself: no answer may give it another meaning in tests."""
RESERVED_MACROS = frozenset(name.removesuffix("!") for name in _RESERVED if name.endswith("!"))
"""An answer without macros may have functions of these names."""
STD_METHODS = frozenset((Path(__file__).parent / "std_methods.txt").read_text().split())
"""Methods of the standard library that tests use to judge."""
_CAPITALISED = frozenset({"const", "static", "struct", "enum", "union", "trait", "type"})
_JUDGING = frozenset(
    {"is_ok", "is_err", "is_some", "is_none", "unwrap", "unwrap_err", "expect_err"}
)
"""Methods of the standard library by which tests judge a `Result` or an `Option`."""
_OPERATORS = frozenset(
    ("Not", "Neg", "Add", "Sub", "Mul", "Div", "Rem", "BitAnd", "BitOr", "BitXor", "Shl", "Shr"),
)
_PLAIN = frozenset(
    (
        "bool",
        "i8",
        "i16",
        "i32",
        "i64",
        "i128",
        "isize",
        "u8",
        "u16",
        "u32",
        "u64",
        "u128",
        "usize",
        "f32",
        "f64",
    ),
)
_JUDGED = frozenset({"Result", "Option"})
_QUOTED = re.compile(r"`(?:r#)?(\w+)!?`")


def find_globs(text: str, crate: str) -> Iterator[tuple[Token, Token]]:
    """Yield first and last token of every import of everything from the answer's crate or a module
    of it."""
    tokens = code(text)
    for at, token in enumerate(tokens):
        if token.kind is Kind.NAME and token.text == "use":
            end = next(
                (n for n in range(at, len(tokens)) if tokens[n].text == ";"), len(tokens) - 1
            )
            words = [token.text for token in tokens[at : end + 1]]
            if crate in words[:4] and "*" in words:
                yield token, tokens[end]


def is_plain(declaration: str, crate: str) -> bool:
    """Is it `use solution::*;`, and not of a module?"""
    return "".join(declaration.split()).removeprefix("use").removeprefix("::") == f"{crate}::*;"


def list_names_to_import(task: RustTask, answer: RustAnswer) -> set[str]:
    """Return what tests mention and the answer defines at its root, as far as can be read; no
    traits but those named.

    Constants, types and traits in small letters are left out: patterns and variables of the tests
    may have their names.
    """
    defined = set()
    for item in answer.items[answer.entry]:
        if item.name and not (item.word in _CAPITALISED and item.name[0].islower()):
            defined.add(item.name)
    return defined & _collect_mentioned_names(task, answer)


def list_missed_names(task: RustTask, answer: RustAnswer, complaints: Collection[str]) -> set[str]:
    """Return what else to import after the compiler's `complaints` about the tests: names, and
    traits with such methods."""
    quoted = {name for complaint in complaints for name in _QUOTED.findall(complaint)}
    methods = quoted & _collect_called_methods(task)
    traits = set()
    for item in _iter_traits(answer):
        if methods & _list_trait_methods(item, answer):
            traits.add(item.name)
    return (quoted & _collect_mentioned_names(task, answer)) | traits


def find_shadowed_method(
    task: RustTask, answer: RustAnswer, imported: Collection[str]
) -> str | None:
    """Return a method of the standard library that tests call and a trait in their scope may stand
    in for."""
    called = _collect_called_methods(task) & STD_METHODS
    if any(
        not is_plain(task.tests[a.start : b.start + 1], task.crate)
        for a, b in find_globs(task.tests, task.crate)
    ):
        trait_methods = [*_iter_traits(answer)] and _collect_function_names(
            answer
        )  # whatever that module holds is in scope
    else:
        trait_methods = set()
        for item in _iter_traits(answer):
            if item.name in imported:
                for name in _list_trait_methods(item, answer):
                    trait_methods.add(name)
    return min(called & set(trait_methods), default=None) or _find_lying_method(task, answer)


def _find_lying_method(task: RustTask, answer: RustAnswer) -> str | None:
    """Return a method by which tests judge a result, and that the answer defines for a type of its
    own, or an operator."""
    judging = _collect_called_methods(task) & _JUDGING
    own_methods = set()
    for tokens in answer.tokens.values():
        for token in _iter_public_methods(tokens):
            own_methods.add(token)
    return min(judging & own_methods, default=None) or next(
        _find_lying_operators(task, answer, bool(judging)), None
    )


def _find_lying_operators(task: RustTask, answer: RustAnswer, judging: bool) -> Iterator[str]:
    """Operators of types that public functions give and the tests do not name: `assert!(!f(1))`,
    `(f(1) - 2.0).abs()`.

    They count where they take or give a number or a `bool`. `judging`: tests call methods of
    `Result` or `Option`, which a `Deref` to one would answer.
    """
    named = {token.text for token in code(task.tests)}
    for tokens in answer.tokens.values():
        words = [token.text for token in tokens]
        group_ends = compute_group_ends(tokens)
        renamed = {}
        for at in range(len(words) - 2):
            if words[at + 1] == "as":
                renamed[words[at + 2]] = words[at]
        aliases = {words[at + 1] for at, word in enumerate(words[:-1]) if word == "type"} - {
            "Output",
            "Target",
        }
        result_types = {"$"}
        for at in (at for at, pair in enumerate(pairwise(words)) if pair == ("pub", "fn")):
            result = words[
                at : next((n for n in range(at, len(words)) if words[n] in ("{", ";")), len(words))
            ]
            result_types |= {*result[result.index("-") :]} if "-" in result else set()
        if opaque := result_types & _OPERATORS:
            yield min(opaque)
        for at in (at for at, word in enumerate(words) if word == "impl"):
            end = next((n for n in range(at, len(words)) if words[n] == "{"), at)
            head = words[at:end]
            target_types = set(head[head.index("for") :] if "for" in head else ())
            if (
                named & target_types
                or not target_types & result_types
                and not aliases & result_types
            ):
                continue
            if "for" in head:
                trait = {renamed.get(word, word) for word in head[: head.index("for")]}
            else:
                trait = set()
            body = words[end : group_ends[end]]
            start = next(
                (n + 2 for n, word in enumerate(body) if word in ("Output", "Target")), len(body)
            )
            value = set(body[start : body.index(";", start)] if ";" in body[start:] else ())
            hidden = {"$", *aliases}
            if (operators := trait & _OPERATORS) and (
                operators & {"Not", "Neg"} or (value | trait) & (_PLAIN | hidden)
            ):
                yield min(operators)
            elif "$" in trait and value & (_PLAIN | hidden):
                yield "an operator"
            elif judging and "Deref" in trait and value & (_JUDGED | hidden):
                yield "Deref"


def _iter_public_methods(tokens: Sequence[Token]) -> Iterator[str]:
    """Yield names of public methods."""
    words = [token.text for token in tokens]
    if any(
        part == "fn" and following == "$" for part, following in pairwise(words)
    ):  # a macro names them
        yield from (following for part, following in pairwise(words) if part not in (".", ":"))
    for at, token in enumerate(tokens):
        public = token.text == "fn" and any(
            part.text == "pub" for part in tokens[max(0, at - 2) : at]
        )
        if public and any(part.text == "self" for part in tokens[at + 2 : at + 12]):
            yield tokens[at + 1].text


def _collect_mentioned_names(task: RustTask, answer: RustAnswer) -> set[str]:
    """Return names that tests use by themselves and neither define nor import from elsewhere."""
    tokens = code(task.tests)
    own_names: set[str] = set()
    for item in items(tokens):
        if item.word != "mod":  # a module and a function can have one name
            own_names.add(item.name)
        if item.word == "use" and task.crate not in [token.text for token in item.body[:4]]:
            own_names |= {
                token.text for token in item.body[2:]
            }  # the first word may be of the answer: `use Error::*;`
    names = set()
    for n, token in enumerate(tokens):
        if token.kind is Kind.NAME and not _is_qualified(tokens, n):
            names.add(token.text)
    has_macros = any(
        token.text == "macro_rules" for body in answer.tokens.values() for token in body
    )
    return names - own_names - RESERVED - (RESERVED_MACROS if has_macros else set())


def _collect_called_methods(task: RustTask) -> set[str]:
    """Return names of methods and associated functions."""
    tokens = code(task.tests)
    qualified = set()
    for n, token in enumerate(tokens):
        if token.kind is Kind.NAME and _is_qualified(tokens, n):
            qualified.add(token.text)
    return qualified


def _is_qualified(tokens: Sequence[Token], at: int) -> bool:
    """Is the name at `at` behind a point or a path?"""
    before = [token.text for token in tokens[max(0, at - 2) : at]]
    return before[-1:] == ["."] or before == [":", ":"]


def _iter_traits(answer: RustAnswer) -> Iterator[Item]:
    for file_items in answer.items.values():
        yield from (item for item in file_items if item.word == "trait")


def _list_trait_methods(trait: Item, answer: RustAnswer) -> set[str]:
    """Return names of its functions; of one with macros in it, any name of the answer."""
    body = trait.body
    if any(token.text == "!" for token in body):
        return _collect_function_names(answer)
    return {body[n].text for n in range(1, len(body)) if body[n - 1].text == "fn"}


def _collect_function_names(answer: RustAnswer) -> set[str]:
    """Return names that may be a function's: where there are macros, all; else those behind
    `fn`."""
    names: set[str] = set()
    for tokens in answer.tokens.values():
        anything = any(True for _ in iter_macro_bodies(tokens))
        names |= {
            token.text
            for n, token in enumerate(tokens)
            if anything or (n and tokens[n - 1].text == "fn")
        }
    return names
