"""What `use solution::*;` in tests brings in. With such an import the answer would choose what
words mean there.

It becomes a list of names where the task declares them. Else it stays, with the prelude beside it
and a function that binds the words of the tests (`tests_file`): a word with a second meaning is an
error. Searched for here is what is none: macros, and methods in place of the standard library's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
_BEHIND_TRAIT = frozenset({"{", ":", "<", "where"})
"""What follows the name of a trait that no macro is given in pieces."""
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


def find_shadowed_method(task: RustTask, answer: RustAnswer) -> str | None:
    """Return a method of the standard library that tests call and a trait in their scope may stand
    in for."""
    called = _collect_called_methods(task) & STD_METHODS
    trait_methods = called & _collect_trait_methods(answer) if _list_globs(task) else set()
    return min(trait_methods, default=None) or _find_lying_method(task, answer)


def _collect_trait_methods(answer: RustAnswer) -> set[str]:
    """Return names of functions in public traits; every word where a macro may make one."""
    all_words = [[token.text for token in tokens] for tokens in answer.tokens.values()]
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


def _iter_names_of_macros(words: Sequence[str]) -> Iterator[str]:
    """Yield words that a macro could make a function's name."""
    for before, word in pairwise(words):
        if before not in (".", ":"):
            yield word


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
    if ("fn", "$") in pairwise(words):
        yield from _iter_names_of_macros(words)
    for at, token in enumerate(tokens):
        public = token.text == "fn" and any(
            part.text == "pub" for part in tokens[max(0, at - 2) : at]
        )
        if public and any(part.text == "self" for part in tokens[at + 2 : at + 12]):
            yield tokens[at + 1].text


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
