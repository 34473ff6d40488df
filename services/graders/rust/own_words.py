"""What an answer calls by words of the standard library: traits that it implements itself, and
methods. Tests that see its types take them for the standard library's.

Read from tokens. Where a macro or another name may hide what is implemented, it counts as unknown,
which is not allowed where a known type would not be.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain

from gradus.tasks.rust import RustTask
from services.graders.rust.answer import RustAnswer
from services.graders.rust.imported_names import METHOD
from services.graders.rust.lexer import Kind, code, compute_group_ends, list_texts
from services.graders.rust.signature import Signature

_JUDGING = frozenset(
    {
        "is_ok",
        "is_ok_and",
        "is_err",
        "is_err_and",
        "is_some",
        "is_some_and",
        "is_none",
        "is_none_or",
        "unwrap",
        "unwrap_err",
        "expect_err",
    }
)
"""Methods of the standard library by which tests judge a `Result` or an `Option`."""
_OPERATORS = frozenset(
    ("Not", "Neg", "Add", "Sub", "Mul", "Div", "Rem", "BitAnd", "BitOr", "BitXor", "Shl", "Shr"),
)
EQUALITY = "PartialEq"
_ORDERS = frozenset({"lt", "le", "gt", "ge"})
_PROVIDED = {
    "PartialOrd": _ORDERS,
    "Iterator": _ORDERS
    | {
        "eq",
        "ne",
        "cmp",
        "partial_cmp",
        "all",
        "any",
        "is_sorted",
        "is_sorted_by",
        "is_partitioned",
    },
}
"""Methods by which tests judge that these traits provide: no answer need write them."""
_MAX_HEAD = 200
"""Tokens of an `impl` before its braces."""
_TRAITS = sorted({*_OPERATORS, "Deref", EQUALITY})
MAX_EQUALITIES = 50
_TYPE_ARGUMENTS = r"< (?:[^;{}]|\{[^{};]*\}){0,300}> "
_PATH = r"(?:(?:&|mut|dyn|'\w+|\w+ : :|: :) )*"
_OWN_TRAIT = re.compile(
    rf"(?<![^ ])(?P<trait>{'|'.join(_TRAITS)})(?= (?P<behind>\S+))"
    rf"(?= (?:{_TYPE_ARGUMENTS})?for {_PATH}(?P<type>\w+))?"
)
"""A trait's name in joined tokens, and the type if it is implemented there."""
_DERIVED = re.compile(r"\bderive \([^()]{0,500}\)")
_TRAIT_PIECE = re.compile(r"(?:\$ \w+ |\) (?:[:*+?,] ){1,4})(?:<[^;{}]{0,200}> )?for\b|\$ \w+ \$")
"""A macro may be given the trait that it implements, by whatever words."""
_DERIVED_PIECE = re.compile(r"# \[ \$|\bderive \( \$")
"""It may take it out of an attribute."""
_BOUND = re.compile(r"(?:[^:] :|\+|\bas) $")
"""What stands before `Trait<...>` that is not implemented."""
_FUNCTION = re.compile(r"\bfn (\w+)")
_PUBLIC_FUNCTION = re.compile(r"\bpub (?:const |async )*fn (\w+)")
_PUBLIC_HEAD = re.compile(r"\bpub fn ([^{;]*)")
_MADE_OF_PIECES = re.compile(r"\bfn (?![\w(])")
"""A function whose name a macro is given, or makes."""
_LONE_WORD = re.compile(r"(?<![.:] )\b[^\W\d]\w*")
_OTHER_NAME = re.compile(r"\btype (?!Output\b|Target\b)(\w+)")
_IMPORT = re.compile(r"\buse ([^;]*)")
_TYPE = re.compile(r"\b(?:struct|enum|union) (\$|\w+)")
_COMPARING = re.compile(
    r"[=!]=|::\s*assert|\bdebug_assert"
    r"|\b(?:contains|position|dedup\w*|starts_with|ends_with|eq|ne|lt|le|gt|ge|cmp|max|min"
    r"|sort\w*|is_sorted\w*|Hash\w+|BTree\w+)\b"
)
"""What compares values in tests other than `assert_eq!` and `assert_ne!`."""
_TYPES = re.compile(r"\b(?:struct|enum|type|impl|dyn|trait|mod)\b")


@dataclass(frozen=True, slots=True)
class OwnTrait:
    """Where an answer implements a trait of the standard library by hand."""

    trait: str
    type_: str
    """Empty where it is not known."""
    path: str
    line: int


def find_own_traits(answer: RustAnswer) -> list[OwnTrait]:
    """Return what of the traits that judge the answer implements. Raises TooManyTokens."""
    texts = {}
    for path, stream in answer.tokens.items():
        words = ["_" if token.kind is Kind.TEXT else token.text for token in stream]
        texts[path] = " ".join([*words, "_"])
    everything = " ".join(texts.values())
    is_piece = has_macros(answer) and _TRAIT_PIECE.search(everything) is not None
    own_traits = []
    for path, text in texts.items():
        if not (is_piece and _DERIVED_PIECE.search(everything)):
            text = _DERIVED.sub(_blank, text)
        at = counted_to = 0
        for match in _OWN_TRAIT.finditer(text):
            start = match.start()
            at += text.count(" ", counted_to, start)
            counted_to = start
            is_bound = _BOUND.search(text[max(0, start - 9) : start])
            is_renamed = match["behind"] == "as"
            is_unread = match["behind"] == "<" and not is_bound
            if match["type"] or is_piece or is_renamed or is_unread:
                line = answer.tokens[path][at].line
                own_traits.append(OwnTrait(match["trait"], match["type"] or "", path, line))
    return own_traits


def _blank(match: re.Match[str]) -> str:
    """Return as many words as `match` has."""
    return "_" + " _" * match[0].count(" ")


def has_macros(answer: RustAnswer) -> bool:
    return any("macro_rules" in text for text in answer.own_files.values())


def find_compared_types(
    task: RustTask, signature: Signature | None, answer: RustAnswer
) -> list[OwnTrait]:
    """Return the answer's own equality of types that tests in its process may compare by it. Beyond
    `MAX_EQUALITIES` the first, whatever it is: each is looked for in the whole answer. Raises
    TooManyTokens."""
    equalities = [one for one in find_own_traits(answer) if one.trait == EQUALITY]
    if len(equalities) > MAX_EQUALITIES:
        return equalities[:1]
    return [one for one in equalities if _may_be_compared(task, signature, one, answer)]


def _may_be_compared(
    task: RustTask, signature: Signature | None, own_trait: OwnTrait, answer: RustAnswer
) -> bool:
    """Return whether tests in the answer's process may compare by its own equality otherwise than
    by the harness's assertions, which know types (`fair`)."""
    if signature is not None:
        return not signature.own_equality and _TYPES.search(task.signature or "") is not None
    if _COMPARING.search(task.tests) is None:
        return False
    name = own_trait.type_
    if not name:
        return True
    unless = ""
    if not has_macros(answer) and name not in list_texts(code(task.tests)):
        # public, but only what has values of it could bring them to tests that do not name it
        unless = rf"(?!(?:\([^()]*\))?\s+(?:struct|enum|union)\s+{name}\b)"
    public = re.compile(rf"\bpub\b{unless}")
    other_type = re.compile(rf"\b(?:struct|enum|union|type|trait)\s+(?!{name}\b)\w+")
    renamed = re.compile(rf"\bas\b|\bpub\s+use\b|\bPartialEq\s*<(?!\s*(?:Self|{name})\s*>)")
    for text in answer.own_files.values():
        if (
            renamed.search(text)
            or _names_behind(public, name, re.split("[;{}]", text))
            or _names_behind(other_type, name, re.split("[;}]", text))
        ):
            return True
    return False


def _names_behind(start: re.Pattern[str], name: str, pieces: Iterable[str]) -> bool:
    """Return whether a piece of text has the name behind what `start` matches. One search for each
    in a piece: a pattern of both takes the square of the text's length."""
    name_word = re.compile(rf"\b{name}\b")
    for piece in pieces:
        begun = start.search(piece)
        if begun and name_word.search(piece, begun.end()):
            return True
    return False


def find_provided(task: RustTask, answer: RustAnswer) -> list[tuple[str, str, int]]:
    """Return the methods that the answer writes where a trait provides them, and that tests may
    call, with path and line: they could say that anything is expected. Raises TooManyTokens."""
    tests = " ".join(list_texts(code(task.tests)))
    called = {name for names in _PROVIDED.values() for name in names if f". {name} (" in tests}
    if re.search(r" [<>] ", tests):
        called |= _ORDERS
    everything = " ".join(chain.from_iterable(map(list_texts, answer.tokens.values())))
    is_renamed = any(f"{trait} as " in everything for trait in _PROVIDED)
    methods = []
    for path, stream in answer.tokens.items():
        words = list_texts(stream)
        ends = compute_group_ends(stream)
        blocks: list[tuple[int, set[str]]] = []
        for at, word in enumerate(words[:-1]):
            while blocks and at >= blocks[-1][0]:
                blocks.pop()
            if word == "fn" and blocks and words[at + 1] in blocks[-1][1] & called:
                methods.append((words[at + 1], path, stream[at].line))
            head = words[at : at + _MAX_HEAD] if word == "impl" else []
            if "{" in head and "for" in head[: head.index("{")]:
                named = head[: head.index("for")]
                names: set[str] = set()
                for trait, provided in _PROVIDED.items():
                    if is_renamed or trait in named or "$" in named:
                        names |= provided
                blocks.append((ends[at + head.index("{")], names))
    return methods


def find_own_word(task: RustTask, answer: RustAnswer) -> str | None:
    """Return what stands in for a word of the standard library in tests of a task without a
    signature: a method, or an operator of a type that public functions give and tests do not
    name."""
    tests = " ".join(list_texts(code(task.tests)))
    text = " ".join(list_texts(chain.from_iterable(answer.tokens.values())))
    called = set(METHOD.findall(tests))
    functions = _FUNCTION if has_macros(answer) else _PUBLIC_FUNCTION
    own_methods = called & _JUDGING & set(functions.findall(text))
    if has_macros(answer) and _MADE_OF_PIECES.search(text):
        own_methods |= called & _JUDGING & set(_LONE_WORD.findall(text))
    results: set[str] = set()
    for head in _PUBLIC_HEAD.findall(text):
        results.update(head.partition("- >")[2].split())
    operators = set(_OPERATORS)
    if called & _JUDGING:
        operators.add("Deref")
    types = set(_TYPE.findall(text))
    if "$" in types:
        types |= results
    renamed = set(re.findall(r" as (\w+)", " ".join(_IMPORT.findall(text))))
    if results.isdisjoint({"$", *renamed, *_OTHER_NAME.findall(text)}):
        types &= results
    hidden = types.difference(tests.split())
    lying = results & _OPERATORS
    for own_trait in find_own_traits(answer):
        if own_trait.trait in operators and (
            own_trait.type_ in hidden or (hidden and not own_trait.type_)
        ):
            lying.add(own_trait.trait)
    return min(own_methods | lying, default=None)
