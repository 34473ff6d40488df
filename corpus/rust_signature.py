"""The signature of a Rust task, from its reference answer and its tests. Text only; compiles
nothing.

What the tests name is declared, and the types that those declarations name. Of a type the
declaration has the public fields and the methods that the tests name; enums have all their
variants. Bodies, values and attributes stay out.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from corpus.drafts import Unusable
from corpus.rust_text import imports, without_attributes
from services.graders.rust.lexer import Item, Kind, Token, code, ends_of_groups, items

_ITEMS = ("fn", "struct", "enum", "trait", "type", "const", "static", "mod")


def derived_signature(solution: str, tests: str) -> str:
    """Raises Unusable where the tests need what a signature cannot declare, or name nothing of the
    solution."""
    found = list(items(code(solution)))
    public = {
        item.name: item for item in found if item.name and item.word in _ITEMS and _is_public(item)
    }
    named = {token.text for token in code(tests) if token.kind is Kind.NAME}
    for item in found:
        if item.word == "macro_rules" and item.name in named:
            raise Unusable(f"tests: use the macro `{item.name}`, which no signature can declare")
        if item.word == "use" and item.body[0].text == "pub":
            raise Unusable("solution: exports names by `pub use`; write its signature by hand")
    needed = {name for name in public if name in named}
    for item in (
        public.values()
    ):  # a trait whose methods the tests call, which an import of everything brings
        if item.word == "trait" and any(
            one.name in named for one in items(_inside(item)) if one.word == "fn"
        ):
            needed.add(item.name)
    if not needed:
        raise Unusable("tests: name nothing that the solution defines at its root")
    while True:
        declared = [_declared(solution, item, needed, named) for item in found]
        body = "\n".join(filter(None, declared))
        words = {token.text for token in code(body) if token.kind is Kind.NAME}
        more = (words & set(public)) - needed
        if not more:
            break
        needed |= more
    for item in found:  # a public function may have the type of a private alias
        of_alias = [token.text for token in item.body]
        if (
            item.word == "type"
            and item.name not in public
            and of_alias[of_alias.index(item.name) + 1] == "="
        ):
            body = re.sub(
                rf"\b{item.name}\b",
                _source(solution, item.body[of_alias.index("=") + 1 : -1]),
                body,
            )
    return imports(solution, body) + body + "\n"


def _is_public(item: Item) -> bool:
    words = [token.text for token in without_attributes(item.body)]
    return words[:1] == ["pub"] and words[1:2] != ["("]


def _inside(item: Item) -> Sequence[Token]:
    opening = next((at for at, token in enumerate(item.body) if token.text == "{"), len(item.body))
    return item.body[opening + 1 : -1]


def _source(text: str, body: Sequence[Token]) -> str:
    """The source of tokens that follow each other, without what stands between them and is no white
    space."""
    out = ""
    for at, token in enumerate(body):
        before = body[at - 1] if at else None
        apart = before is not None and before.start + len(before.text) != token.start
        out += " " + token.text if apart else token.text
    return " ".join(out.split())


def _declared(text: str, item: Item, needed: set[str], named: set[str]) -> str:
    """The declaration of one item; empty where it needs none."""
    body = without_attributes(item.body)
    words = [token.text for token in body]
    if item.word == "impl":
        return _implementation(text, body, words, needed, named)
    if item.name not in needed or not _is_public(item):
        return ""
    if item.word == "fn":
        return _head(text, body) + ";"
    if item.word in ("const", "static"):
        return _source(text, body[: words.index("=")] if "=" in words else body[:-1]) + ";"
    if item.word == "enum" or item.word == "type":
        return _source(text, body)
    if item.word == "struct":
        return _struct(text, body, words, item.name, named)
    if item.word in ("trait", "mod"):
        if "{" not in words:  # a module in a file of its own, which the task gives
            return ""
        opening = words.index("{")
        of_trait = item.word == "trait"
        inner = [_member(text, one, of_trait) for one in items(body[opening + 1 : -1])]
        return _block(_source(text, body[:opening]), inner)
    raise Unusable(f"solution: {item.word} {item.name}: no signature can declare it")


def _head(text: str, body: Sequence[Token]) -> str:
    """A function up to its body."""
    behind = ends_of_groups(body)
    at = 0
    while at < len(body) and body[at].text not in ("{", ";"):
        at = behind[at]
    return _source(text, body[:at])


def _member(text: str, item: Item, of_trait: bool) -> str:
    """A member of a trait, or a public one of a module."""
    body = without_attributes(item.body)
    words = [token.text for token in body]
    if not of_trait and not _is_public(item):
        return ""
    if item.word == "fn":
        return _head(text, body) + ";"
    if item.word == "const":
        return _source(text, body[: words.index("=")] if "=" in words else body[:-1]) + ";"
    return _source(text, body) if item.word in ("type", "struct", "enum") else ""


def _struct(text: str, body: list[Token], words: list[str], name: str, named: set[str]) -> str:
    after = words.index(name) + 1
    opening = next(
        (at for at in range(after, len(words)) if words[at] in ("{", "(", ";")), len(words) - 1
    )
    head = _source(text, body[:opening])
    if words[opening] == "(":
        fields = _parts(body[opening + 1 : ends_of_groups(body)[opening] - 1])
        return (
            _source(text, body)
            if fields and all(part[0].text == "pub" for part in fields)
            else f"{head};"
        )
    if words[opening] == "{":
        fields = [
            part
            for part in _parts(body[opening + 1 : -1])
            if part[0].text == "pub" and part[1].text != "(" and part[1].text in named
        ]
        if fields:
            inside = ", ".join(_source(text, part) for part in fields)
            return f"{head} {{ {inside} }}"
    return f"{head};"


def _parts(body: Sequence[Token]) -> list[Sequence[Token]]:
    """Cut at commas outside of brackets, angle brackets too."""
    parts: list[Sequence[Token]] = []
    start = depth = 0
    for at, token in enumerate(body):
        depth += (token.text in "([{<") - (
            token.text in ")]}" or (token.text == ">" and body[at - 1].text != "-")
        )
        if token.text == "," and not depth:
            parts.append(body[start:at])
            start = at + 1
    return [part for part in (*parts, body[start:]) if part]


def _implementation(
    text: str, body: list[Token], words: list[str], needed: set[str], named: set[str]
) -> str:
    """An `impl` block of a declared type: what tests name of its own, traits that are declared, and
    `PartialEq`."""
    if "{" not in words:
        return ""
    opening = words.index("{")
    head = words[:opening]
    own = head[len(head) - head[::-1].index("for") :] if "for" in head else head[1:]
    if "for" in head:
        trait = set(head[: head.index("for")])
        if "PartialEq" in trait and needed & set(own):
            heads = [
                _head(text, without_attributes(one.body)) + ";"
                for one in items(body[opening + 1 : -1])
            ]
            return f"{_source(text, body[:opening])} {{ {' '.join(heads)} }}"
        return f"{_source(text, body[:opening])} {{}}" if trait & needed else ""
    if not needed & set(own):
        return ""
    members = []
    for one in items(body[opening + 1 : -1]):
        if one.name in named and _is_public(one):
            members.append(_member(text, one, False))
    return _block(_source(text, body[:opening]), members) if any(members) else ""


def _block(head: str, members: Sequence[str]) -> str:
    inside = "".join(f"    {one}\n" for one in members if one)
    return f"{head} {{\n{inside}}}"
