"""Where Rust code can be broken, found among its tokens, for machines without cargo-mutants.
Compiles nothing.

Some edits do not compile and some change nothing: which is which, only the grader tells.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from corpus.mutation import Edit
from services.graders.rust.lexer import Kind, Token, code

OPERATORS = {
    **{"+": "-", "-": "+", "*": "+", "/": "*", "%": "/", "<<": ">>", ">>": "<<"},
    **{"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "&&": "||", "||": "&&"},
    **{"+=": "-=", "-=": "+=", "*=": "+=", "/=": "*=", "^": "|", "|": "&", "&": "|"},
}
METHODS = {
    **{"min": "max", "max": "min", "first": "last", "last": "first", "any": "all", "all": "any"},
    **{"is_some": "is_none", "is_none": "is_some", "is_ok": "is_err", "is_err": "is_ok"},
    **{
        "sum": "product",
        "skip": "take",
        "take": "skip",
        "push": "extend",
        "push_back": "push_front",
    },
    **{
        "push_front": "push_back",
        "pop_front": "pop_back",
        "pop_back": "pop_front",
        "filter": "map",
        "map": "filter",
    },
    **{"take_while": "skip_while", "skip_while": "take_while"},
    **{"checked_add": "checked_sub", "checked_sub": "checked_add", "wrapping_add": "wrapping_sub"},
    **{"to_lowercase": "to_uppercase", "to_uppercase": "to_lowercase", "min_by_key": "max_by_key"},
    **{"max_by_key": "min_by_key", "saturating_sub": "saturating_add", "starts_with": "ends_with"},
}
FORGOTTEN_CALLS = frozenset(
    {"clone", "rev", "unwrap", "to_string", "to_owned", "collect", "cloned", "copied", "abs"}
)
_SIGNS = frozenset({*OPERATORS, "..=", "..", "->", "=>", "::"})
_NUMBER = re.compile(r"(\d[\d_]*)([iu](?:8|16|32|64|128|size))?")
_OPENING, _CLOSING = "([{", ")]}"


class RustMutations:
    engine = "gradus: the tokens of Rust"

    def edits(self, source: str, edition: str = "2021") -> list[Edit]:
        """Every edit of `source`, in no order that matters."""
        found = _joined(_own_code(code(source, edition)))
        makers = (
            _operators,
            _constants,
            _conditions,
            _cases,
            _methods,
            _left_out,
            _arguments,
            _names,
            _variants,
        )
        return [edit for make in makers for edit in make(source, found)]

    def lints(self, source: str, edition: str = "2021") -> list[Edit]:
        """Edits that change nothing but what clippy says: `mut` and parentheses that nothing needs,
        `x = x + y`."""
        found = _joined(_own_code(code(source, edition)))
        edits = []
        for at, token in enumerate(found[:-2]):
            name = found[at + 1]
            if (
                token.text == "let"
                and name.kind is Kind.NAME
                and name.text not in ("mut", "Some", "Ok", "Err")
            ):
                edits.append(_replaced("lint", name, f"mut {name.text}"))
            elif (
                token.kind is Kind.NAME
                and name.text in ("+=", "-=", "*=")
                and found[at - 1].text in ("{", "}", ";")
            ):
                edits.append(_replaced("lint", name, f"= {token.text} {name.text[0]}"))
            elif (
                token.text == "if"
                and name.text not in ("let", "(", "!")
                and "let" not in _line_of(source, token)
            ):
                opening = next((one for one in found[at + 1 :] if one.text in ("{", ";")), None)
                if opening is not None and opening.text == "{":
                    condition = source[name.start : opening.start].rstrip()
                    edits.append(
                        Edit("lint", name.start, name.start + len(condition), f"({condition})")
                    )
        return edits


def _own_code(found: Sequence[Token]) -> list[Token]:
    """`found` without attributes and without the answer's own tests: breaking those breaks nothing
    that is judged."""
    out: list[Token] = []
    at = 0
    while at < len(found):
        if found[at].text == "#" and at + 1 < len(found):
            opening = at + 2 if found[at + 1].text == "!" else at + 1
            words = [token.text for token in found[opening : opening + 5]]
            at = _closing(found, opening) + 1
            if words == ["[", "cfg", "(", "test", ")"]:
                at = next(
                    (_closing(found, n) + 1 for n in range(at, len(found)) if found[n].text == "{"),
                    len(found),
                )
        else:
            out.append(found[at])
            at += 1
    return out


def _joined(found: Sequence[Token]) -> list[Token]:
    """The tokens, with signs of several characters as one."""
    out: list[Token] = []
    for token in found:
        if out and token.kind is Kind.SIGN and out[-1].kind is Kind.SIGN:
            both = out[-1].text + token.text
            if out[-1].start + len(out[-1].text) == token.start and both in _SIGNS:
                out[-1] = Token(Kind.SIGN, both, out[-1].start, out[-1].line)
                continue
        out.append(token)
    return out


def _end(token: Token) -> int:
    return token.start + len(token.text)


def _line_of(source: str, token: Token) -> str:
    return source[source.rfind("\n", 0, token.start) + 1 :].partition("\n")[0]


def _replaced(kind: str, token: Token, text: str) -> Edit:
    return Edit(kind, token.start, _end(token), text)


def _operators(source: str, found: Sequence[Token]) -> Iterator[Edit]:
    for at, token in enumerate(found[:-1]):
        if token.kind is not Kind.SIGN:
            continue
        spaced = (
            source[token.start - 1 : token.start].isspace()
            and source[_end(token) : _end(token) + 1].isspace()
        )
        if (
            spaced
            and token.text in OPERATORS
            and found[at - 1].text not in ("=", "=>", ",", "(", "{", "return")
        ):
            yield _replaced("operator", token, OPERATORS[token.text])
        elif token.text == "..=":
            yield _replaced("range", token, "..")
        elif token.text == ".." and found[at + 1].text not in (*_CLOSING, ",", "{"):
            yield _replaced("range", token, "..=")


def _constants(source: str, found: Sequence[Token]) -> Iterator[Edit]:
    for token in found:
        number = _NUMBER.fullmatch(token.text) if token.kind is Kind.NUMBER else None
        if number:
            value, suffix = int(number[1].replace("_", "")), number[2] or ""
            yield _replaced("constant", token, f"{value + 1}{suffix}")
            if value:
                yield _replaced("constant", token, f"{value - 1}{suffix}")
            yield _replaced("type", token, f"{number[1]}.0")
        elif token.kind is Kind.NAME and token.text in ("true", "false"):
            yield _replaced("constant", token, "false" if token.text == "true" else "true")


def _conditions(source: str, found: Sequence[Token]) -> Iterator[Edit]:
    for at, token in enumerate(found[:-1]):
        if (
            token.kind is Kind.NAME
            and token.text in ("if", "while")
            and found[at + 1].text != "let"
        ):
            end = next((n for n in _outside(found, at + 1) if found[n].text in ("{", "=>")), None)
            if end is not None and end > at + 1:
                start, stop = found[at + 1].start, _end(found[end - 1])
                yield Edit("condition", start, stop, f"!({source[start:stop]})")


def _outside(found: Sequence[Token], at: int) -> Iterator[int]:
    """Places from `at` on that are inside of no bracket opened since, up to the one that closes
    what `at` is in."""
    depth = 0
    for place in range(at, len(found)):
        text = found[place].text if found[place].kind is Kind.SIGN else ""
        if not depth:
            yield place
        if text and text in _OPENING:
            depth += 1
        elif text and text in _CLOSING:
            depth -= 1
            if depth < 0:
                return


def _closing(found: Sequence[Token], opening: int) -> int:
    """Where the bracket at `opening` is closed."""
    depth = 0
    for place in range(opening, len(found)):
        if found[place].kind is Kind.SIGN:
            depth += (found[place].text in _OPENING) - (found[place].text in _CLOSING)
        if not depth:
            return place
    return len(found) - 1


def _cases(source: str, found: Sequence[Token]) -> Iterator[Edit]:
    for at, token in enumerate(found):
        if token.kind is Kind.NAME and token.text == "match":
            opening = next((n for n in _outside(found, at + 1) if found[n].text == "{"), None)
            arms = list(_arms(found, opening)) if opening is not None else []
            if len(arms) > 1:
                yield from (Edit("case", start, stop, "") for start, stop in arms)


def _arms(found: Sequence[Token], opening: int) -> Iterator[tuple[int, int]]:
    """Start and end of each arm of a `match`, its comma included."""
    last = _closing(found, opening)
    at = opening + 1
    while at < last:
        arrow = next((n for n in _outside(found, at) if found[n].text == "=>"), None)
        if arrow is None or arrow + 1 >= last:
            return
        if found[arrow + 1].text == "{":
            stop = _closing(found, arrow + 1)
            stop += found[stop + 1].text == "," if stop + 1 < last else 0
        else:
            stop = next(
                (n for n in _outside(found, arrow + 1) if found[n].text == "," or n == last), last
            )
            stop -= stop == last
        yield found[at].start, _end(found[stop])
        at = stop + 1


def _methods(source: str, found: Sequence[Token]) -> Iterator[Edit]:
    for before, token in zip(found, found[1:], strict=False):
        if before.text == "." and token.kind is Kind.NAME and token.text in METHODS:
            yield _replaced("function", token, METHODS[token.text])


def _left_out(source: str, found: Sequence[Token]) -> Iterator[Edit]:
    """Small words and calls that are easily forgotten."""
    for at, token in enumerate(found[:-3]):
        following = [one.text for one in found[at + 1 : at + 4]]
        if token.text == "mut" and found[at - 1].text in ("let", "&", "("):
            yield Edit("mut", token.start, found[at + 1].start, "")
        elif token.text == "&" and source[token.start - 1 : token.start] in ("(", " "):
            if _end(token) == found[at + 1].start:
                yield Edit("reference", token.start, _end(token), "")
        elif token.text == "." and following[0] in FORGOTTEN_CALLS and following[1:] == ["(", ")"]:
            yield Edit("call", token.start, _end(found[at + 3]), "")
        elif token.text == "?" or (token.text == ";" and following[0] != "}"):
            yield Edit("syntax", token.start, _end(token), "")


def _arguments(source: str, found: Sequence[Token]) -> Iterator[Edit]:
    for at, token in enumerate(found[:-1]):
        called = (
            token.kind is Kind.NAME and found[at + 1].text == "(" and found[at - 1].text != "fn"
        )
        if not called:
            continue
        last = _closing(found, at + 1)
        commas = [n for n in _outside(found, at + 2) if found[n].text == ","]
        bounds = [at + 1, *commas, last]
        parts = [
            (found[a + 1].start, _end(found[b - 1]))
            for a, b in zip(bounds, bounds[1:], strict=False)
            if b > a + 1
        ]
        if len(parts) > 1:
            (a, b), (c, d) = parts[:2]
            yield Edit("arguments", a, d, source[c:d] + source[b:c] + source[a:b])


def _names(source: str, found: Sequence[Token]) -> Iterator[Edit]:
    """Uses of the answer's own variables, misspelt."""
    pairs = list(zip(found, found[1:], strict=False))
    bound = {
        two.text
        for one, two in pairs
        if one.text in ("let", "mut", "for") and two.kind is Kind.NAME
    }
    for before, token in pairs:
        if (
            token.text in bound
            and len(token.text) > 2
            and before.text not in ("let", "mut", "for", ".")
        ):
            yield _replaced("name", token, token.text[:-1])


def _variants(source: str, found: Sequence[Token]) -> Iterator[Edit]:
    """One variant without fields in the place of another of the same enum."""
    enums: dict[str, list[str]] = {}
    for at, token in enumerate(found[:-3]):
        if token.kind is Kind.NAME and token.text == "enum" and found[at + 2].text == "{":
            inside = [n for n in _outside(found, at + 3) if found[n].kind is Kind.NAME]
            enums[found[at + 1].text] = [
                found[n].text for n in inside if found[n + 1].text in (",", "}")
            ]
    for at, token in enumerate(found[:-2]):
        if (
            token.text in enums
            and found[at + 1].text == "::"
            and found[at + 2].text in enums[token.text]
        ):
            others = [name for name in enums[token.text] if name != found[at + 2].text]
            yield from (_replaced("constructor", found[at + 2], name) for name in others)
