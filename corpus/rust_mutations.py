"""Edits that break Rust code, found among its tokens.

Some edits do not compile and some change nothing: which is which, only the grader tells.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from corpus.mutation import Edit
from corpus.rust_text import get_words
from services.graders.rust.lexer import Kind, Token, code, compute_group_ends

OPERATORS = {
    **{"+": "-", "-": "+", "*": "+", "/": "*", "%": "/", "<<": ">>", ">>": "<<"},
    **{"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "&&": "||", "||": "&&"},
    **{"+=": "-=", "-=": "+=", "*=": "+=", "/=": "*=", "^": "|", "|": "&", "&": "|"},
    **{"..": "..=", "..=": ".."},
}
METHODS = {
    **{"min": "max", "max": "min", "first": "last", "last": "first", "any": "all", "all": "any"},
    **{"is_some": "is_none", "is_none": "is_some", "is_ok": "is_err", "is_err": "is_ok"},
    **{"skip": "take", "take": "skip", "sum": "product", "filter": "map", "push": "extend"},
    **{"push_back": "push_front", "push_front": "push_back", "starts_with": "ends_with"},
    **{"pop_back": "pop_front", "pop_front": "pop_back", "checked_add": "checked_sub"},
}
FORGOTTEN_CALLS = frozenset(
    {"clone", "rev", "unwrap", "to_string", "to_owned", "collect", "cloned", "copied", "abs"}
)
_SIGNS = frozenset({*OPERATORS, "->", "=>", "::"})


class RustMutations:
    """Mutations by the tokens of Rust."""

    def find_edits(self, source: str, task: Mapping[str, Any] = {}) -> list[Edit]:
        """Return every edit of `source`, in no order that matters."""
        tokens = _extract_tokens(source, task.get("edition", "2021"))
        makers = (
            _replace_operators,
            _replace_constants,
            _drop_words,
            _replace_names,
        )
        edits: list[Edit] = []
        for make in makers:
            edits += make(source, tokens)
        for start, end in _find_conditions(tokens):
            edits.append(Edit("condition", start, end, f"!({source[start:end]})"))
        return edits

    def find_lints(self, source: str, task: Mapping[str, Any] = {}) -> list[Edit]:
        """Return edits that change nothing but what clippy says: a needless `mut`, `x = x + y`,
        needless parentheses."""
        tokens = _extract_tokens(source, task.get("edition", "2021"))
        edits = []
        for at, token in enumerate(tokens[:-2]):
            name = tokens[at + 1]
            is_binding = name.kind is Kind.NAME and name.text not in ("mut", "Some", "Ok", "Err")
            is_statement = at > 0 and tokens[at - 1].text in ("{", "}", ";")
            if token.text == "let" and is_binding:
                edits.append(_replace_token("lint", name, f"mut {name.text}"))
            elif is_statement and token.kind is Kind.NAME and name.text in ("+=", "-=", "*="):
                edits.append(_replace_token("lint", name, f"= {token.text} {name.text[0]}"))
        for start, end in _find_conditions(tokens):
            if source[start] not in "(!":
                edits.append(Edit("lint", start, end, f"({source[start:end]})"))
        return edits


def _extract_tokens(source: str, edition: str) -> list[Token]:
    """Return the tokens, signs of several characters as one, without attributes and without the
    answer's own tests: breaking those breaks nothing that is judged."""
    all_tokens = code(source, edition)
    ends = compute_group_ends(all_tokens)
    tokens: list[Token] = []
    at = 0
    while at < len(all_tokens):
        token = all_tokens[at]
        if token.text == "#" and at + 1 < len(all_tokens):
            opening = at + 1 + (all_tokens[at + 1].text == "!")
            words = get_words(all_tokens[opening : opening + 5])
            at = ends[opening] if opening < len(all_tokens) else len(all_tokens)
            if words == ["[", "cfg", "(", "test", ")"]:
                while at < len(all_tokens) and all_tokens[at].text != "{":
                    at += 1
                if at < len(all_tokens):
                    at = ends[at]
            continue
        last = tokens[-1] if tokens else None
        both = last.text + token.text if last is not None else ""
        if last is not None and both in _SIGNS and _get_end(last) == token.start:
            tokens[-1] = Token(Kind.SIGN, both, last.start, last.line)
        else:
            tokens.append(token)
        at += 1
    return tokens


def _get_end(token: Token) -> int:
    return token.start + len(token.text)


def _replace_token(kind: str, token: Token, text: str) -> Edit:
    return Edit(kind, token.start, _get_end(token), text)


def _replace_operators(source: str, tokens: Sequence[Token]) -> Iterator[Edit]:
    for before, token, after in zip(tokens, tokens[1:], tokens[2:], strict=False):
        if token.kind is Kind.SIGN and token.text in OPERATORS:
            is_range = token.text in ("..", "..=") and after.text not in (")", "]", "}", ",", "{")
            is_spaced = source[token.start - 1].isspace() and source[_get_end(token)].isspace()
            is_binary = before.text not in ("=", "=>", ",", "(", "{", "return")
            if is_range or (is_spaced and is_binary):
                yield _replace_token("operator", token, OPERATORS[token.text])


def _replace_constants(source: str, tokens: Sequence[Token]) -> Iterator[Edit]:
    opposite = {"true": "false", "false": "true"}
    for token in tokens:
        if token.kind is Kind.NUMBER and token.text.isdigit():
            value = int(token.text)
            yield _replace_token("constant", token, str(value + 1))
            if value:
                yield _replace_token("constant", token, str(value - 1))
            yield _replace_token("type", token, f"{value}.0")
        elif token.text in opposite:
            yield _replace_token("constant", token, opposite[token.text])


def _find_conditions(tokens: Sequence[Token]) -> Iterator[tuple[int, int]]:
    """Yield start and end of each condition of an `if` or `while` without `let`."""
    for at, token in enumerate(tokens):
        if token.text in ("if", "while") and token.kind is Kind.NAME:
            words = get_words(tokens[at + 1 :])
            end = at + 1 + words.index("{") if "{" in words else at
            if end > at + 1 and "let" not in words[: end - at]:
                yield tokens[at + 1].start, _get_end(tokens[end - 1])


def _drop_words(source: str, tokens: Sequence[Token]) -> Iterator[Edit]:
    """Yield edits that leave out small words and calls that are easily forgotten."""
    for at, token in enumerate(tokens[:-3]):
        following = get_words(tokens[at + 1 : at + 4])
        if token.text == "mut" and at > 0 and tokens[at - 1].text in ("let", "&", "("):
            yield Edit("mut", token.start, tokens[at + 1].start, "")
        elif token.text == "." and following[0] in FORGOTTEN_CALLS and following[1:] == ["(", ")"]:
            yield Edit("call", token.start, _get_end(tokens[at + 3]), "")
        elif token.text == "?" or (token.text == ";" and following[0] != "}"):
            yield Edit("syntax", token.start, _get_end(token), "")


def _replace_names(source: str, tokens: Sequence[Token]) -> Iterator[Edit]:
    """Yield uses of the answer's own variables, misspelt, and calls of a method's counterpart."""
    declaring = ("let", "mut", "for")
    bound = {token.text for before, token in pairwise(tokens) if before.text in declaring}
    for before, token in pairwise(tokens):
        if before.text == "." and token.text in METHODS:
            yield _replace_token("function", token, METHODS[token.text])
        elif before.text not in (".", *declaring) and token.text in bound and len(token.text) > 2:
            yield _replace_token("name", token, token.text[:-1])
