"""What `use solution::*;` in tests brings in. With such an import the answer would choose what
words mean there.

It becomes a list of names where the task declares them. Else it stays, with the prelude beside it
and a function that binds the words of the tests (`tests_file`): a word with a second meaning is an
error. Searched for here is what is none: macros, and methods in place of the standard library's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from pathlib import Path

from gradus.tasks.rust import RustTask
from services.graders.rust.answer import RustAnswer
from services.graders.rust.lexer import (
    Kind,
    code,
    compute_group_ends,
    list_texts,
)

STD_MACROS = frozenset((Path(__file__).parent / "std_macros.txt").read_text().split())
"""Macros that every program has without an import."""
STD_METHODS = frozenset((Path(__file__).parent / "std_methods.txt").read_text().split())
"""Methods of the standard library that tests use to judge."""
_BEFORE_NOT = frozenset({"if", "while", "match", "return", "in", "else", "break", "as"})
"""Keywords that `!` may follow as an operator."""
_MACRO_CALL = re.compile(r"(: )?\b([^\W\d]\w*) ! [(\[{]")
_MACRO = re.compile(r"\bmacro_rules ! (\w+)")
_IMPORTED = re.compile(r"[:{,] (\w+) (?=[;,}])")
_BEHIND_TRAIT = frozenset({"{", ":", "<", "where"})
"""What follows the name of a trait that no macro is given in pieces."""
_JUDGING = frozenset(
    {"is_ok", "is_err", "is_some", "is_none", "unwrap", "unwrap_err", "expect_err"}
)
"""Methods of the standard library by which tests judge a `Result` or an `Option`."""
_OPERATORS = frozenset(
    ("Not", "Neg", "Add", "Sub", "Mul", "Div", "Rem", "BitAnd", "BitOr", "BitXor", "Shl", "Shr"),
)
_METHOD = re.compile(r"(?:\.|: :) ([^\W\d]\w*)")
_FUNCTION = re.compile(r"\bpub fn ([^{;]*)")
_RENAMING = re.compile(r"\b(\w+) as (\w+)")
_TYPE = re.compile(r"\b(struct|enum|union|type) (\w+)")
_HEAD = re.compile(r"\bimpl\b((?:[^{};]|\{[^{};]*\}){0,1000})\{")
"""The head of an `impl`, which may have constants in braces."""


@dataclass(frozen=True, slots=True)
class GlobImport:
    """An import of everything from somewhere."""

    start: int
    end: int
    words: tuple[str, ...]
    """From `use` to the semicolon."""

    def is_plain(self, crate: str) -> bool:
        """Is it `use solution::*;`, and not of a module?"""
        return "".join(self.words).removeprefix("use").removeprefix("::") == f"{crate}::*;"

    @property
    def owner(self) -> str:
        """What everything is imported from: `Shape` of `use solution::Shape::*;`."""
        return self.words[-5] if self.words[-4:] == (":", ":", "*", ";") else ""


def find_globs(text: str, crate: str) -> list[GlobImport]:
    """Return the imports of everything from the answer's crate or a module of it."""
    return [glob for glob in iter_globs(text) if crate in glob.words[:4]]


def iter_globs(text: str) -> Iterator[GlobImport]:
    """Yield the imports of everything from anywhere."""
    words: list[str] = []
    start = 0
    for token in code(text):
        if token.kind is Kind.NAME and token.text == "use":
            start = token.start
            words = []
        if words or token.text == "use":
            words.append(token.text)
        if words and token.text == ";":
            if "*" in words:
                yield GlobImport(start, token.start + 1, tuple(words))
            words = []


def may_call_macros(task: RustTask) -> bool:
    """Return whether tests may call macros of an answer: others than the standard library's and
    their own, or by a path, or with more in scope than they name."""
    globs = find_globs(task.tests, task.crate)
    is_scope_open = any(not glob.is_plain(task.crate) for glob in globs)
    text = " ".join(list_texts(code(task.tests, task.edition)))
    called = set(map("".join, _MACRO_CALL.findall(text)))
    called -= STD_MACROS | _BEFORE_NOT | set(_MACRO.findall(text))
    imported = STD_MACROS.intersection(_IMPORTED.findall(text))
    return bool(is_scope_open or called or imported or "macro_use" in text)


def find_shadowed_method(task: RustTask, answer: RustAnswer) -> str | None:
    """Return a method of the standard library that tests call and a trait in their scope may stand
    in for."""
    called = _collect_called_methods(task) & STD_METHODS
    has_globs = bool(find_globs(task.tests, task.crate))
    trait_methods = called & _collect_trait_methods(answer) if has_globs else set()
    return min(trait_methods, default=None) or _find_lying_method(task, answer)


def _collect_trait_methods(answer: RustAnswer) -> set[str]:
    """Return names of functions in public traits; every word where a macro may make one."""
    all_words = list(map(list_texts, answer.tokens.values()))
    has_macros = "macro_rules" in chain.from_iterable(all_words)
    names: set[str] = set()
    for words, tokens in zip(all_words, answer.tokens.values(), strict=True):
        group_ends = compute_group_ends(tokens)
        is_head = False
        end = 0
        for at, (before, word) in enumerate(pairwise(words), 1):
            if word == "trait" and (has_macros or before == "pub"):
                is_head = True
                if "".join(words[at + 2 : at + 3]) not in _BEHIND_TRAIT:
                    names.add("$")
            elif word == "{" and is_head:
                is_head = False
                end = max(end, group_ends[at])
            elif at < end and (before == "fn" or (word == "!" and has_macros)):
                names.add(word.replace("!", "$"))
    if "$" in names:
        names.update(chain.from_iterable(all_words))
    return names


def _find_lying_method(task: RustTask, answer: RustAnswer) -> str | None:
    """Return a method by which tests judge a result, and that the answer defines, or an
    operator."""
    judging = _collect_called_methods(task) & _JUDGING
    words = list_texts(chain.from_iterable(answer.tokens.values()))
    pattern = r"\bfn (\w+)" if "macro_rules" in words else r"\bpub (?:const |async )*fn (\w+)"
    functions = set(re.findall(pattern, " ".join(words)))
    if ("fn", "$") in pairwise(words):
        functions.update(name for before, name in pairwise(words) if before not in (".", ":"))
    operators = _OPERATORS | {"Deref"} if judging else _OPERATORS
    lying = _iter_lying_operators(task, words, operators)
    return min(judging & functions, default=None) or next(lying, None)


def _iter_lying_operators(
    task: RustTask, words: Sequence[str], operators: frozenset[str]
) -> Iterator[str]:
    """Yield `operators` of types that public functions give and the tests do not name:
    `assert!(!f(1))`, `(f(1) - 2.0).abs()`."""
    text = " ".join(words)
    renamed = {new: old for old, new in _RENAMING.findall(text)}
    results = {renamed.get(word, word) for word in _collect_result_types(text)}
    yield from sorted(results & _OPERATORS)
    types = _TYPE.findall(text)
    aliases = {name for word, name in types if word == "type"} - {"Output", "Target"}
    hidden = {"$", *(name for _, name in types)}
    if "macro_rules" in words:
        hidden.update(word for word in words if word[0].isupper())
    hidden.difference_update(list_texts(code(task.tests)))
    if not aliases & results:
        hidden &= results
    for head in _HEAD.findall(text):
        trait, is_for, _ = head.rpartition(" for ")
        if is_for and {renamed.get(word, word) for word in head.split()} & hidden:
            traits = {renamed.get(word, word) for word in trait.split()}
            yield from sorted(traits & operators)
            if "$" in traits:
                yield "an operator"


def _collect_result_types(text: str) -> set[str]:
    """Return words that stand behind the first `-` of heads of public functions."""
    types = {"$"}
    for head in _FUNCTION.findall(text):
        types.update(head.partition("- >")[2].split())
    return types


def _collect_called_methods(task: RustTask) -> set[str]:
    """Return names of methods and associated functions."""
    return set(_METHOD.findall(" ".join(list_texts(code(task.tests)))))
