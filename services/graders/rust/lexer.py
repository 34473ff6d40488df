"""Rust's tokens: enough of a lexer to count, to find names and to cut a text into items. Not a parser, and no judge.

What a keyword or an attribute is called cannot be put together from pieces in Rust, so a name that no token of an
answer has, no macro of it can bring forth.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum, auto
from functools import lru_cache


class Kind(StrEnum):
    SPACE = auto()
    COMMENT = auto()
    TEXT = auto()
    """Strings, byte strings, characters, in all their forms."""
    LIFETIME = auto()
    NUMBER = auto()
    NAME = auto()
    """Identifiers and keywords; `r#name` without its mark."""
    SIGN = auto()


@dataclass(frozen=True, slots=True)
class Token:
    kind: Kind
    text: str
    start: int
    """Character offset in the source."""
    line: int
    """1-based."""


_RUST_TOKEN = r"""
    (?P<space>\s++)
  | (?P<comment>//[^\n]*+)
  | (?P<block>/\*)
  | (?P<raw>(?:{raw})(?P<hashes>\#*+)")
  | (?P<text>(?:{marked})?"(?:[^"\\]|\\.)*+(?:"|\Z) | b?'(?:[^'\\\n]|\\(?:u\{[^}']*\}|x[^']{2}|.))')
  | (?P<lifetime>'[\w]++)
  | (?P<number>[0-9](?:[\w]|\.(?=[0-9]))*+)
  | (?:r\#)?(?P<name>[^\W\d]\w*+)
  | (?P<sign>.)
    """
_FLAGS = re.VERBOSE | re.DOTALL
_OLD = re.compile(_RUST_TOKEN.replace("{raw}", "br|r").replace("{marked}", "b"), _FLAGS)
_NEW = re.compile(_RUST_TOKEN.replace("{raw}", "br|cr|r").replace("{marked}", "b|c"), _FLAGS)
"""Strings for C, `c"..."`, exist from edition 2021 on; before, that is a name and a string."""
_SHEBANG = re.compile(r"\ufeff?#!(?!\s*+(?:(?://[^\n]*+\n|/\*.*?\*/)\s*+)*+\[)[^\n]*+", re.DOTALL)
"""A first line that is for a shell; the compiler leaves it out."""
_KINDS = {kind.value: kind for kind in Kind}
_BLOCK_MARK = re.compile(r"/\*|\*/")


@lru_cache(maxsize=64)
def tokens(source: str, edition: str = "2021") -> tuple[Token, ...]:
    """Every token of `source`, white space and comments too; never raises, whatever the text is.

    Kept for a while: answers to one task share its tests, and an answer is looked at several times.
    """
    return tuple(_tokens(source, edition))


def _tokens(source: str, edition: str) -> Iterator[Token]:
    pattern = _OLD if edition in ("2015", "2018") else _NEW
    position, line = 0, 1
    if shebang := _SHEBANG.match(source):
        yield Token(Kind.COMMENT, shebang[0], 0, 1)
        position = shebang.end()
    while match := pattern.match(source, position):
        name = match.lastgroup or ""
        if match["raw"] is not None:
            closing = source.find('"' + match["hashes"], match.end())
            kind, end = Kind.TEXT, len(source) if closing < 0 else closing + 1 + len(match["hashes"])
        elif name == "block":
            kind, end, depth = Kind.COMMENT, match.end(), 1
            while depth and (mark := _BLOCK_MARK.search(source, end)):
                depth += 1 if mark[0] == "/*" else -1
                end = mark.end()
            end = len(source) if depth else end
        else:
            kind, end = _KINDS[name], match.end()
        text = match["name"] if kind is Kind.NAME else source[position:end]
        yield Token(kind, text, position, line)
        line += source.count("\n", position, end)
        position = end


def code(source: str, edition: str = "2021") -> tuple[Token, ...]:
    """The tokens that a compiler sees: no white space, no comments."""
    return tuple(token for token in tokens(source, edition) if token.kind not in (Kind.SPACE, Kind.COMMENT))


def without_comments(source: str) -> str:
    return "".join(
        ("\n" * token.text.count("\n") or " ") if token.kind is Kind.COMMENT else source_text(source, token)
        for token in tokens(source)
    )


def source_text(source: str, token: Token) -> str:
    """The token as it stands in the source, `r#` included."""
    marked = token.kind is Kind.NAME and source.startswith("r#", token.start)
    return "r#" + token.text if marked else token.text


_CLOSING = {"(": ")", "[": "]", "{": "}"}
_NAMED = frozenset({"fn", "struct", "enum", "union", "trait", "type", "mod", "const", "static", "macro_rules"})
_BEFORE_FUNCTION = frozenset({"const", "unsafe", "extern", "async", "default"})
"""`const fn`: the later word says what it is."""


@dataclass(frozen=True, slots=True)
class Item:
    """One item of a list of items: `fn`, `struct`, `impl` ..."""

    word: str
    """What it is: `fn`, `struct`, `impl`, `use`; empty for a macro call."""
    name: str
    """What it defines; empty when that is not one name."""
    first_line: int
    last_line: int
    body: tuple[Token, ...]
    """All its tokens, attributes included."""


def items(found: Sequence[Token]) -> Iterator[Item]:
    """Cut a list of items, such as a file without comments, into items."""
    start = position = 0
    while position < len(found):
        end = after_group(found, position)
        # `use a::{b};` and `const X: T = T {..};` end with a semicolon, not with the brace
        needs_semicolon = _word(found[start:end]) in ("use", "const", "static", "let", "type")
        ends = found[position].text in (";", "{") and (not needs_semicolon or found[end - 1].text == ";")
        position = end
        if ends or position == len(found):
            yield _item(tuple(found[start:position]))
            start = position


def macro_bodies(found: Sequence[Token]) -> Iterator[Sequence[Token]]:
    """What stands inside of every `macro_rules!`, however deep it is."""
    for at, token in enumerate(found):
        if token.kind is Kind.NAME and token.text == "macro_rules":
            opening = next((n for n in range(at, min(at + 4, len(found))) if found[n].text in _CLOSING), at)
            yield found[opening : after_group(found, opening)]


def after_group(found: Sequence[Token], position: int) -> int:
    """Behind the bracketed group that starts at `position`, or behind the one token there."""
    depth = 0
    for index in range(position, len(found)):
        token = found[index]
        if token.kind is Kind.SIGN and token.text in _CLOSING:
            depth += 1
        elif token.kind is Kind.SIGN and token.text in _CLOSING.values():
            depth -= 1
        if depth <= 0:
            return index + 1
    return len(found)


def _word(body: Sequence[Token]) -> str:
    """What kind of item starts with these tokens."""
    position = 0
    while position < len(body):
        token, following = body[position], body[position + 1].text if position + 1 < len(body) else ""
        if token.text == "#":  # an attribute, inner or outer
            position = after_group(body, position + (2 if following == "!" else 1))
        elif (token.text, following) == ("pub", "("):
            position = after_group(body, position + 1)
        elif token.text == "pub" or token.kind is Kind.TEXT or _leads_to_function(body, position):  # TEXT: an ABI
            position += 1
        else:
            return token.text if token.kind is Kind.NAME else ""
    return ""


def _leads_to_function(body: Sequence[Token], position: int) -> bool:
    """From here there are only words such as `const` or `extern "C"` before `fn`."""
    words = [token.text for token in body[position : position + 5] if token.kind is not Kind.TEXT]
    before = words[: words.index("fn")] if "fn" in words else []
    return bool(before) and all(word in _BEFORE_FUNCTION for word in before)


def _item(body: tuple[Token, ...]) -> Item:
    word = _word(body)
    name = ""
    if word in _NAMED:
        names = [token.text for token in body if token.kind is Kind.NAME]
        after = names.index(word) + 1
        name = next((text for text in names[after:] if text not in ("mut", "ref")), "")
    last = body[-1].line + body[-1].text.count("\n")
    return Item(word, name, body[0].line, last, body)
