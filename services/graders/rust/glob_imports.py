"""What `use solution::*;` in tests brings in. With such an import the answer would choose what
words mean there.

It becomes a list of names: those that the task declares, or else those that the tests mention and
the answer defines, but for words of the language, its prelude and its primitive types, and for
constants, types and traits named like variables. Traits come in only if the tests do not compile
without a method of theirs. Compiles nothing itself.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from gradus.tasks.rust import RustTask
from services.graders.rust.answer import RustAnswer
from services.graders.rust.lexer import Item, Kind, Token, code, ends_of_groups, items, macro_bodies

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


def globs(text: str, crate: str) -> Iterator[tuple[Token, Token]]:
    """First and last token of every import of everything from the answer's crate or a module of
    it."""
    found = code(text)
    for at, token in enumerate(found):
        if token.kind is Kind.NAME and token.text == "use":
            end = next((n for n in range(at, len(found)) if found[n].text == ";"), len(found) - 1)
            words = [token.text for token in found[at : end + 1]]
            if crate in words[:4] and "*" in words:
                yield token, found[end]


def is_plain(declaration: str, crate: str) -> bool:
    """Is it `use solution::*;`, and not of a module?"""
    return "".join(declaration.split()).removeprefix("use").removeprefix("::") == f"{crate}::*;"


def names_to_import(task: RustTask, answer: RustAnswer) -> set[str]:
    """What tests mention and the answer defines at its root, as far as can be read; no traits but
    those named.

    Constants, types and traits in small letters are left out: patterns and variables of the tests
    may have their names.
    """
    defined = {
        item.name
        for item in answer.items[answer.entry]
        if item.name and not (item.word in _CAPITALISED and item.name[0].islower())
    }
    return defined & _mentioned(task, answer)


def names_missed(task: RustTask, answer: RustAnswer, complaints: Collection[str]) -> set[str]:
    """What else to import after the compiler's `complaints` about the tests: names, and traits with
    such methods."""
    quoted = {name for complaint in complaints for name in _QUOTED.findall(complaint)}
    methods = quoted & _called(task)
    traits = {item.name for item in _traits(answer) if methods & _methods(item, answer)}
    return (quoted & _mentioned(task, answer)) | traits


def shadowed_std_method(
    task: RustTask, answer: RustAnswer, imported: Collection[str]
) -> str | None:
    """A method of the standard library that tests call and a trait in their scope may stand in
    for."""
    called = _called(task) & STD_METHODS
    if any(
        not is_plain(task.tests[a.start : b.start + 1], task.crate)
        for a, b in globs(task.tests, task.crate)
    ):
        own = [*_traits(answer)] and _all_names(answer)  # whatever that module holds is in scope
    else:
        own = {
            name
            for item in _traits(answer)
            if item.name in imported
            for name in _methods(item, answer)
        }
    return min(called & set(own), default=None) or _judges_itself(task, answer)


def _judges_itself(task: RustTask, answer: RustAnswer) -> str | None:
    """A method by which tests judge a result, and that the answer defines for a type of its own, or
    an operator."""
    judging = _called(task) & _JUDGING
    found = {token for tokens in answer.tokens.values() for token in _own_methods(tokens)}
    return min(judging & found, default=None) or next(
        _lying_operators(task, answer, bool(judging)), None
    )


def _lying_operators(task: RustTask, answer: RustAnswer, judging: bool) -> Iterator[str]:
    """Operators of types that public functions give and the tests do not name: `assert!(!f(1))`,
    `(f(1) - 2.0).abs()`.

    They count where they take or give a number or a `bool`. `judging`: tests call methods of
    `Result` or `Option`, which a `Deref` to one would answer.
    """
    named = {token.text for token in code(task.tests)}
    for found in answer.tokens.values():
        words = [token.text for token in found]
        behind = ends_of_groups(found)
        renamed = {
            words[at + 2]: words[at] for at in range(len(words) - 2) if words[at + 1] == "as"
        }
        aliases = {words[at + 1] for at, word in enumerate(words[:-1]) if word == "type"} - {
            "Output",
            "Target",
        }
        given = {"$"}
        for at in (at for at, pair in enumerate(pairwise(words)) if pair == ("pub", "fn")):
            result = words[
                at : next((n for n in range(at, len(words)) if words[n] in ("{", ";")), len(words))
            ]
            given |= {*result[result.index("-") :]} if "-" in result else set()
        if opaque := given & _OPERATORS:
            yield min(opaque)
        for at in (at for at, word in enumerate(words) if word == "impl"):
            end = next((n for n in range(at, len(words)) if words[n] == "{"), at)
            head = words[at:end]
            own = set(head[head.index("for") :] if "for" in head else ())
            if named & own or not own & given and not aliases & given:
                continue
            trait = (
                {renamed.get(word, word) for word in head[: head.index("for")]}
                if "for" in head
                else set()
            )
            body = words[end : behind[end]]
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


def _own_methods(found: Sequence[Token]) -> Iterator[str]:
    """Names of public methods."""
    words = [token.text for token in found]
    if any(one == "fn" and two == "$" for one, two in pairwise(words)):  # a macro names them
        yield from (two for one, two in pairwise(words) if one not in (".", ":"))
    for at, token in enumerate(found):
        public = token.text == "fn" and any(one.text == "pub" for one in found[max(0, at - 2) : at])
        if public and any(one.text == "self" for one in found[at + 2 : at + 12]):
            yield found[at + 1].text


def _mentioned(task: RustTask, answer: RustAnswer) -> set[str]:
    """Names that tests use by themselves and neither define nor import from elsewhere."""
    found = code(task.tests)
    own: set[str] = set()
    for item in items(found):
        if item.word != "mod":  # a module and a function can have one name
            own.add(item.name)
        if item.word == "use" and task.crate not in [token.text for token in item.body[:4]]:
            own |= {
                token.text for token in item.body[2:]
            }  # the first word may be of the answer: `use Error::*;`
    names = {
        token.text for n, token in enumerate(found) if token.kind is Kind.NAME and not _of(found, n)
    }
    has_macros = any(
        token.text == "macro_rules" for body in answer.tokens.values() for token in body
    )
    return names - own - RESERVED - (RESERVED_MACROS if has_macros else set())


def _called(task: RustTask) -> set[str]:
    """Names of methods and associated functions."""
    found = code(task.tests)
    return {
        token.text for n, token in enumerate(found) if token.kind is Kind.NAME and _of(found, n)
    }


def _of(found: Sequence[Token], at: int) -> bool:
    """Is the name at `at` behind a point or a path?"""
    before = [token.text for token in found[max(0, at - 2) : at]]
    return before[-1:] == ["."] or before == [":", ":"]


def _traits(answer: RustAnswer) -> Iterator[Item]:
    for found in answer.items.values():
        yield from (item for item in found if item.word == "trait")


def _methods(trait: Item, answer: RustAnswer) -> set[str]:
    """Names of its functions; of one with macros in it, any name of the answer."""
    body = trait.body
    if any(token.text == "!" for token in body):
        return _all_names(answer)
    return {body[n].text for n in range(1, len(body)) if body[n - 1].text == "fn"}


def _all_names(answer: RustAnswer) -> set[str]:
    """Names that may be a function's: where there are macros, all; else those behind `fn`."""
    names: set[str] = set()
    for found in answer.tokens.values():
        anything = any(True for _ in macro_bodies(found))
        names |= {
            token.text
            for n, token in enumerate(found)
            if anything or (n and found[n - 1].text == "fn")
        }
    return names
