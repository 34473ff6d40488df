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
    Token,
    code,
    compute_group_ends,
)

STD_MACROS = frozenset((Path(__file__).parent / "std_macros.txt").read_text().split())
"""Macros that every program has without an import."""
STD_METHODS = frozenset((Path(__file__).parent / "std_methods.txt").read_text().split())
"""Methods of the standard library that tests use to judge."""
_BEFORE_NOT = frozenset({"if", "while", "match", "return", "in", "else", "break", "as", "=>"})
"""Keywords that `!` may follow as an operator."""
_BEHIND_TRAIT = frozenset({"{", ":", "<", "where"})
"""What follows the name of a trait that no macro is given in pieces."""
_JUDGING = frozenset(
    {"is_ok", "is_err", "is_some", "is_none", "unwrap", "unwrap_err", "expect_err"}
)
"""Methods of the standard library by which tests judge a `Result` or an `Option`."""
_OPERATORS = frozenset(
    ("Not", "Neg", "Add", "Sub", "Mul", "Div", "Rem", "BitAnd", "BitOr", "BitXor", "Shl", "Shr"),
)
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
    if any(not glob.is_plain(task.crate) for glob in globs):
        return True
    words = ["", *(token.text for token in code(task.tests, task.edition)), "", ""]
    known = set(STD_MACROS) | _BEFORE_NOT
    for at, word in enumerate(words):
        if word == "macro_rules":
            known.add(words[at + 2])
    for at, word in enumerate(words[:-2]):
        is_call = words[at + 1] == "!" and words[at + 2] in ("(", "[", "{") and word.isidentifier()
        is_named = word in STD_MACROS and words[at + 1] in (";", ",", "}")
        is_path = words[at - 1] in (":", "{", ",")
        if word == "macro_use" or (is_call and word not in known):
            return True
        if is_path and (is_named or (is_call and words[at - 1] == ":")):
            return True
    return False


def find_shadowed_method(task: RustTask, answer: RustAnswer) -> str | None:
    """Return a method of the standard library that tests call and a trait in their scope may stand
    in for."""
    called = _collect_called_methods(task) & STD_METHODS
    has_globs = bool(find_globs(task.tests, task.crate))
    trait_methods = called & _collect_trait_methods(answer) if has_globs else set()
    return min(trait_methods, default=None) or _find_lying_method(task, answer)


def _collect_trait_methods(answer: RustAnswer) -> set[str]:
    """Return names of functions in public traits; every word where a macro may make one."""
    all_words = _list_words(answer)
    has_macros = any("macro_rules" in words for words in all_words)
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
    words = list(chain.from_iterable(_list_words(answer)))
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
    results = {renamed.get(word, word) for word in _collect_result_types(words)}
    yield from sorted(results & _OPERATORS)
    types = _TYPE.findall(text)
    aliases = {name for word, name in types if word == "type"} - {"Output", "Target"}
    hidden = {"$", *(name for _, name in types)}
    if "macro_rules" in words:
        hidden.update(word for word in words if word[0].isupper())
    hidden -= {token.text for token in code(task.tests)}
    if not aliases & results:
        hidden &= results
    for head in _HEAD.findall(text):
        trait, is_for, _ = head.rpartition(" for ")
        if is_for and {renamed.get(word, word) for word in head.split()} & hidden:
            traits = {renamed.get(word, word) for word in trait.split()}
            yield from sorted(traits & operators)
            if "$" in traits:
                yield "an operator"


def _collect_result_types(words: Sequence[str]) -> set[str]:
    """Return words that stand behind the first `-` of heads of public functions."""
    found = {"$"}
    state = ""
    for before, word in pairwise(words):
        if (before, word) == ("pub", "fn"):
            state = "head"
        elif word in ("{", ";"):
            state = ""
        elif state == "head" and word == "-":
            state = "result"
        if state == "result":
            found.add(word)
    return found


def _list_words(answer: RustAnswer) -> list[list[str]]:
    """Return the words of each of its files."""
    all_words = []
    for tokens in answer.tokens.values():
        all_words.append([token.text for token in tokens])
    return all_words


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
