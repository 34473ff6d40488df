"""Rust's tokens: enough of a lexer to count, to find names and to cut a text into items. Not a
parser.

Macros cannot synthesize keywords or attributes, so a name absent from the tokens cannot appear
after expansion.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum, auto
from functools import lru_cache
from itertools import chain, dropwhile, islice
from typing import NamedTuple


class Kind(StrEnum):
    SPACE = auto()
    COMMENT = auto()
    TEXT = auto()
    """Strings, byte strings, characters, in all their forms."""
    LIFETIME = auto()
    NUMBER = auto()
    NAME = auto()
    """Identifiers and keywords; `r#name` without its mark, unless it would be a keyword then."""
    SIGN = auto()


class Token(NamedTuple):
    kind: Kind
    text: str
    start: int
    """Character offset in the source."""
    line: int
    """1-based."""


MAX_TOKENS = 50_000
"""Tokens of an answer that are looked at, white space and comments too. About 200 kB of everyday
Rust."""
_SPACE = "\t-\r \x85\u200e\u200f\u2028\u2029"
"""Unicode's Pattern_White_Space, which is what Rust takes for white space."""
_START = "a-zA-Z_\x80-\x84\x86-\u200d\u2010-\u2027\u202a-\U0010ffff"
_WORD = "0-9" + _START
"""What names start with and go on with: what else is not ASCII is white space, or an error of the
compiler."""
_SUFFIX = f"[{_START}][{_WORD}]*+"
"""A name right behind a text is a part of it."""
_RUST_TOKEN = r"""
    (?P<space>[{space}]++)
  | (?P<comment>//[^\n]*+)
  | (?P<block>/\*)
  | (?P<text>(?:{raw})(?P<hashes>\#*+)".*?(?:"(?P=hashes){suffix}|\Z) | (?:{marked})?"(?:[^"\\]|\\.)*+(?:"{suffix}|\Z)
            | b?'(?:[^'\\\n\r\t]|\\(?:u\{[^}']*\}|x[^']{2}|.))'{suffix})
  | (?P<lifetime>'{marked_lifetime}[{word}]++)
  | (?P<number>[0-9](?:[{word}]|\.(?=[0-9]))*+)
  | (?:r\#)?(?P<name>[{start}][{word}]*+)
  | (?P<sign>.)
    """  # noqa: E501
KEYWORDS = frozenset(
    ("as", "async", "await", "break", "const", "continue", "dyn", "else", "enum", "extern")
    + ("false", "fn", "for", "if", "impl", "in", "let", "loop", "match", "mod", "move", "mut")
    + ("pub", "ref", "return", "static", "struct", "trait", "true", "type", "unsafe", "use")
    + ("where", "while")
)
"""Keywords that can be names behind `r#`."""
_DOC_COMMENT = re.compile(r"//(?:!|/(?!/))|/\*(?:!|\*(?![*/]))")
_KINDS = {kind.value: kind for kind in Kind}
_BLOCK_MARK = re.compile(r"/\*|\*/")


_BEFORE_2021 = {"raw": "br|r", "marked": "b", "marked_lifetime": ""}
_SINCE_2021 = {"raw": "br|cr|r", "marked": "b|c", "marked_lifetime": r"(?:r\#)?"}


class TooManyTokens(Exception):
    """An answer has more tokens than the limit."""


@lru_cache(maxsize=2)
def _compile_pattern(*, old: bool) -> re.Pattern[str]:
    """Return the tokens of an edition. `old`: before 2021, where `c"a"` is a name and a string, and
    no lifetime is `'r#a`."""
    parts = {
        "suffix": f"(?:{_SUFFIX})?+",
        **(_BEFORE_2021 if old else _SINCE_2021),
        "space": _SPACE,
        "word": _WORD,
        "start": _START,
    }
    text = _RUST_TOKEN
    for place, value in parts.items():
        text = text.replace(f"{{{place}}}", value)
    return re.compile(text, re.VERBOSE | re.DOTALL)


@lru_cache(maxsize=16)
def tokens(source: str, edition: str = "2021", limit: int | None = None) -> tuple[Token, ...]:
    """Return every token of `source`, white space and comments too. Raises TooManyTokens beyond
    `limit`, and nothing else.

    Kept for a while: answers to one task share its tests, and an answer is looked at several times.
    """
    all_tokens = tuple(islice(_iter_tokens(source, edition), None if limit is None else limit + 1))
    if limit is not None and len(all_tokens) > limit:
        raise TooManyTokens
    return all_tokens


def _iter_tokens(source: str, edition: str) -> Iterator[Token]:
    pattern = _compile_pattern(old=edition in ("2015", "2018"))
    start = _measure_shebang(source, pattern)
    first = [Token(Kind.COMMENT, source[:start], 0, 1)] if start else []
    return chain(first, _from(source, pattern, start, 1))


def _measure_shebang(source: str, pattern: re.Pattern[str]) -> int:
    """Length of a first line that is for a shell, a byte order mark before it included; 0 when
    there is none.

    As in the compiler, `#!` is one unless `[` is the first token behind it; doc comments are
    tokens.
    """
    start = int(source.startswith("\ufeff"))
    if not source.startswith("#!", start):
        return start
    following = _from(source, pattern, start + 2, 1)
    first = next(
        (
            token
            for token in following
            if token.kind is not Kind.SPACE and not _is_plain_comment(token)
        ),
        None,
    )
    if first is not None and first.text == "[":
        return start
    end = source.find("\n", start)
    return len(source) if end < 0 else end


def _is_plain_comment(token: Token) -> bool:
    return token.kind is Kind.COMMENT and not _DOC_COMMENT.match(token.text)


def _from(source: str, pattern: re.Pattern[str], position: int, line: int) -> Iterator[Token]:
    is_ascii = source.isascii()
    new = tuple.__new__  # `Token(...)` takes twice as long
    while position < len(source):
        for match in pattern.finditer(source, position):
            position = match.start()
            name = match.lastgroup or ""
            if name == "block":
                break
            kind = _KINDS[name]
            text = match[name]
            if text in KEYWORDS and match.end() - position > len(text):
                text = match[0]
            if not is_ascii and kind in (Kind.NAME, Kind.LIFETIME):
                text = unicodedata.normalize("NFC", text)
            yield new(Token, (kind, text, position, line))
            if "\n" in text:
                line += text.count("\n")
        else:
            return
        end = match.end()
        depth = 1
        while depth and (mark := _BLOCK_MARK.search(source, end)):
            depth += 1 if mark[0] == "/*" else -1
            end = mark.end()
        end = len(source) if depth else end
        yield Token(Kind.COMMENT, source[position:end], position, line)
        line += source.count("\n", position, end)
        position = end


def code(source: str, edition: str = "2021", limit: int | None = None) -> tuple[Token, ...]:
    """Return the tokens that a compiler sees: no white space, no comments. Raises TooManyTokens
    beyond `limit`."""
    space, comment = Kind.SPACE, Kind.COMMENT
    all_tokens = tokens(source, edition, limit)
    return tuple(
        [token for token in all_tokens if token.kind is not space and token.kind is not comment]
    )


def list_texts(stream: Iterable[Token]) -> list[str]:
    return [token.text for token in stream]


def remove_comments(source: str, edition: str = "2021", limit: int | None = None) -> str:
    all_tokens = tokens(source, edition, limit)
    parts = list_texts(all_tokens)
    for at, token in enumerate(all_tokens):
        if token.kind is Kind.COMMENT:
            parts[at] = "\n" * token.text.count("\n") or " "
        elif token.kind is Kind.NAME:
            parts[at] = get_source_text(source, token)
    return "".join(parts)


def get_source_text(source: str, token: Token) -> str:
    """Return the token as it stands in the source, `r#` included."""
    is_marked = token.kind is Kind.NAME and source.startswith("r#", token.start)
    return "r#" + token.text.removeprefix("r#") if is_marked else token.text


_OPENING = frozenset("([{")
_CLOSING = frozenset(")]}")
DEFINING = frozenset(
    {"fn", "struct", "enum", "union", "trait", "type", "mod", "const", "static", "macro_rules"}
)
"""Words of items that have one name."""
BEFORE_FUNCTION = frozenset({"const", "unsafe", "extern", "async", "default"})
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


def items(stream: Sequence[Token]) -> Iterator[Item]:
    """Cut a list of items, such as a file without comments, into items."""
    group_ends = compute_group_ends(stream)
    start = position = 0
    word = None
    while position < len(stream):
        if word is None:
            word = _find_item_word(stream, group_ends, start)
        end = group_ends[position]
        # `use a::{b};` and `const X: T = T {..};` end with a semicolon, not with the brace
        needs_semicolon = word in ("use", "const", "static", "let", "type")
        ends = stream[position].text in (";", "{") and (
            not needs_semicolon or stream[end - 1].text == ";"
        )
        position = end
        if ends or position == len(stream):
            yield _build_item(tuple(stream[start:position]), word)
            start = position
            word = None


def iter_macro_bodies(stream: Sequence[Token]) -> Iterator[Sequence[Token]]:
    """Yield the insides of every `macro_rules!` that is not in another one."""
    group_ends = compute_group_ends(stream)
    end = 0
    for at, token in enumerate(stream):
        if at >= end and token.kind is Kind.NAME and token.text == "macro_rules":
            end = max(group_ends[at : at + 4])
            yield stream[at + 3 : end]


def compute_group_ends(stream: Sequence[Token]) -> list[int]:
    """Index behind the bracketed group that starts at each position, or behind the one token there.

    Brackets of all kinds count alike; a group that is not closed ends with the text.
    """
    group_ends = list(range(1, len(stream) + 1))
    opened: list[int] = []
    for at, token in enumerate(stream):
        if token.kind is not Kind.SIGN:
            continue
        if token.text in _OPENING:
            group_ends[at] = len(stream)
            opened.append(at)
        elif token.text in _CLOSING and opened:
            group_ends[opened.pop()] = at + 1
    return group_ends


def parse_inner_items(item: Item) -> list[Item]:
    """Return the items of a module, a trait or an `impl`; none where it has no braces."""
    words = list_texts(item.body)
    if "{" not in words:
        return []
    return list(items(item.body[words.index("{") + 1 : -1]))


def _find_item_word(stream: Sequence[Token], group_ends: Sequence[int], start: int) -> str:
    """Return the kind of the item that starts at `start`."""
    position = start
    while position < len(stream):
        token = stream[position]
        following = "".join(list_texts(stream[position + 1 : position + 2]))
        if token.text == "#":  # an attribute, inner or outer
            opening = position + (2 if following == "!" else 1)
            if opening >= len(stream) or stream[opening].text != "[":
                return ""
            position = group_ends[opening]
        elif (token.text, following) == ("pub", "("):
            position = group_ends[position + 1]
        elif (
            token.text == "pub"
            or token.kind is Kind.TEXT
            or token.text in BEFORE_FUNCTION
            and (following.startswith('"') or following in BEFORE_FUNCTION | {"fn"})
        ):  # TEXT: an ABI
            position += 1
        elif token.kind is Kind.NAME:
            return token.text
        else:
            return ""
    return ""


def _build_item(body: tuple[Token, ...], word: str) -> Item:
    name = ""
    if word in DEFINING:
        names = (token.text for token in body if token.kind is Kind.NAME)
        following = dropwhile(lambda text: text != word, names)
        name = next((text for text in islice(following, 1, None) if text not in ("mut", "ref")), "")
    last = body[-1].line + body[-1].text.count("\n")
    return Item(word, name, body[0].line, last, body)
