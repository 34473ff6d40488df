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
_BEFORE_NOT = frozenset({"if", "while", "match", "return", "in", "else", "break", "as", "=>"})
"""Keywords that `!` may follow as an operator."""
_MAX_HEADS = 8
"""`impl` before a brace that are each looked at."""
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
    opened: list[Token] = []
    for token in code(text):
        if token.kind is Kind.NAME and token.text == "use":
            opened = []
        if opened or (token.kind is Kind.NAME and token.text == "use"):
            opened.append(token)
        if opened and token.text == ";":
            words = [part.text for part in opened]
            if crate in words[:4] and "*" in words:
                yield opened[0], token
            opened = []


def is_plain(declaration: str, crate: str) -> bool:
    """Is it `use solution::*;`, and not of a module?"""
    return "".join(declaration.split()).removeprefix("use").removeprefix("::") == f"{crate}::*;"


def may_call_macros(task: RustTask) -> bool:
    """Return whether tests may call macros of an answer: others than the standard library's and
    their own, or by a path, or with more in scope than they name."""
    if any(not is_plain(declaration, task.crate) for declaration in _list_globs(task)):
        return True
    words = ["", *(token.text for token in code(task.tests, task.edition)), "", ""]
    known = set(RESERVED_MACROS) | _BEFORE_NOT
    for at, word in enumerate(words):
        if word == "macro_rules":
            known.add(words[at + 2])
    for at, word in enumerate(words[:-2]):
        is_call = words[at + 1] == "!" and words[at + 2] in ("(", "[", "{") and word.isidentifier()
        is_named = word in RESERVED_MACROS and words[at + 1] in (";", ",", "}")
        is_path = words[at - 1] in (":", "{", ",")
        if word == "macro_use" or (is_call and word not in known):
            return True
        if is_path and (is_named or (is_call and words[at - 1] == ":")):
            return True
    return False


def _list_globs(task: RustTask) -> list[str]:
    """Return the text of every import of everything from the answer."""
    globs = []
    for first, last in find_globs(task.tests, task.crate):
        globs.append(task.tests[first.start : last.start + 1])
    return globs


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
    function_names = _collect_function_names(answer)
    for item in _iter_traits(answer):
        if methods & _list_trait_methods(item, function_names):
            traits.add(item.name)
    return (quoted & _collect_mentioned_names(task, answer)) | traits


def find_shadowed_method(
    task: RustTask, answer: RustAnswer, imported: Collection[str]
) -> str | None:
    """Return a method of the standard library that tests call and a trait in their scope may stand
    in for."""
    called = _collect_called_methods(task) & STD_METHODS
    function_names = _collect_function_names(answer)
    traits = list(_iter_traits(answer))
    brings_modules = any(not is_plain(text, task.crate) for text in _list_globs(task))
    trait_methods: set[str] = set()
    if traits and brings_modules:
        trait_methods = function_names  # whatever that module holds is in scope
    elif not brings_modules:
        for item in traits:
            if item.name in imported:
                trait_methods |= _list_trait_methods(item, function_names)
    return min(called & trait_methods, default=None) or _find_lying_method(task, answer)


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
        aliases = set()
        for word, following, after in zip(words, words[1:], words[2:], strict=False):
            if following == "as":
                renamed[after] = word
            if word == "type" and following not in ("Output", "Target"):
                aliases.add(following)
        result_types = _collect_result_types(words)
        if opaque := result_types & _OPERATORS:
            yield min(opaque)
        hidden = {"$", *aliases}
        for start, opening in _find_heads(words):
            head = words[start:opening]
            if "for" not in head:
                continue
            target_types = set(head[head.index("for") :])
            is_returned = target_types & result_types or aliases & result_types
            if named & target_types or not is_returned:
                continue
            trait = {renamed.get(word, word) for word in head[: head.index("for")]}
            value = _read_associated_type(words, opening, group_ends[opening])
            operators = trait & _OPERATORS
            if operators and (operators & {"Not", "Neg"} or (value | trait) & (_PLAIN | hidden)):
                yield min(operators)
            elif "$" in trait and value & (_PLAIN | hidden):
                yield "an operator"
            elif judging and "Deref" in trait and value & (_JUDGED | hidden):
                yield "Deref"


def _find_heads(words: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yield where the head of each `impl` starts, and the next brace; of more than `_MAX_HEADS`
    before a brace the first only."""
    starts: list[int] = []
    for at, word in enumerate(words):
        if word == "impl":
            starts.append(at)
        elif word == "{":
            for start in starts if len(starts) <= _MAX_HEADS else starts[:1]:
                yield start, at
            starts = []


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


def _read_associated_type(words: Sequence[str], start: int, end: int) -> set[str]:
    """Return words of the first `type Output = ...;` or `Target` between two places."""
    value: set[str] = set()
    is_inside = False
    for at in range(start, end):
        if is_inside and words[at] == ";":
            return value
        if is_inside:
            value.add(words[at])
        elif words[at] in ("Output", "Target"):
            is_inside = True
    return set()


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


def _list_trait_methods(trait: Item, function_names: set[str]) -> set[str]:
    """Return names of its functions; of one with macros in it, any of `function_names`."""
    names = set()
    for before, token in pairwise(trait.body):
        if before.text == "!":
            return function_names
        if before.text == "fn":
            names.add(token.text)
    return names


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
