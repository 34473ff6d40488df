"""The signature of a Rust task, from its reference answer and its tests. Text only; compiles
nothing.

What the tests name is declared, and the types that those declarations name. Of a type the
declaration has the public fields and the methods that the tests name; enums have all their
variants. Bodies, values and attributes stay out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from corpus.drafts import Candidate, Unusable
from corpus.rust_text import extract_imports, extract_names, get_words, remove_attributes
from services.graders.rust.lexer import Item, Token, code, compute_group_ends, items

_FUNCTION = re.compile(r"(?:pub )?(?:(?:const|async) )*fn (\w+)\s*[<(]")
_MAX_HEAD_CHARS = 2000
_ITEMS = ("fn", "struct", "enum", "trait", "type", "const", "static", "mod")


def derive_signatures(solution: str, tests: str, prompt: str = "") -> Iterator[Candidate]:
    """Yield signatures with the functions as the prompt declares them, then as the solution does.
    Raises Unusable where the tests need what a signature cannot declare."""
    derived = derive_signature(solution, tests)
    heads = {}
    for beginning in _FUNCTION.finditer(prompt):
        heads[beginning[1]] = _read_head(prompt[beginning.start() :])
    lines = []
    for line in derived.split("\n"):
        function = _FUNCTION.match(line)
        if function and heads.get(function[1]):
            line = f"pub {heads[function[1]]};"
        lines.append(line)
    for signature in dict.fromkeys(("\n".join(lines), derived)):
        yield Candidate(signature, (solution,))


def _read_head(text: str) -> str | None:
    """Return a function up to its body, without `pub`; None without parameters. It ends at a
    brace, a semicolon, the end of a line or of a code span, or a sign of prose."""
    tokens = code(text[:_MAX_HEAD_CHARS])
    ends = compute_group_ends(tokens)
    at = depth = 0
    has_parameters = has_where = False
    while at < len(tokens) and tokens[at].text not in ("{", ";", "`"):
        word = tokens[at].text
        before = tokens[max(0, at - 1)]
        depth += (word == "<") - (word == ">" and before.text != "-")
        is_new_line = "\n" in text[before.start : tokens[at].start]
        is_open = has_where or depth or word in ("where", "-")
        if has_parameters and not is_open and (is_new_line or word in (",", ".", ":")):
            break
        has_where = has_where or word == "where"
        has_parameters = has_parameters or (word == "(" and not depth)
        at = ends[at]
    head = _render_source(text, tokens[:at])
    return head.removeprefix("pub ") if has_parameters else None


def derive_signature(solution: str, tests: str) -> str:
    """Raise Unusable where the tests need what a signature cannot declare, or name nothing of the
    solution."""
    all_items = list(items(code(solution)))
    public = {
        item.name: item
        for item in all_items
        if item.name and item.word in _ITEMS and _is_public(item)
    }
    named = extract_names(tests)
    for item in all_items:
        if item.word == "macro_rules" and item.name in named:
            raise Unusable(f"tests: use the macro `{item.name}`, which no signature can declare")
        if item.word == "use" and item.body[0].text == "pub":
            raise Unusable("solution: exports names by `pub use`; write its signature by hand")
    needed = named & set(public)
    for item in public.values():
        if item.word == "trait" and "{" in get_words(item.body):
            # tests that import everything may call its methods
            opening = get_words(item.body).index("{")
            for member in items(item.body[opening + 1 : -1]):
                if member.word == "fn" and member.name in named:
                    needed.add(item.name)
    if not needed:
        raise Unusable("tests: name nothing that the solution defines at its root")
    while True:
        declared = [_render_declaration(solution, item, needed, named) for item in all_items]
        body = "\n".join(filter(None, declared))
        words = extract_names(body)
        missing = (words & set(public)) - needed
        if not missing:
            break
        needed |= missing
    for item in all_items:  # a public function may have the type of a private alias
        of_alias = get_words(item.body)
        if (
            item.word == "type"
            and item.name not in public
            and of_alias[of_alias.index(item.name) + 1] == "="
        ):
            body = re.sub(
                rf"\b{item.name}\b",
                _render_source(solution, item.body[of_alias.index("=") + 1 : -1]),
                body,
            )
    return extract_imports(solution, body) + body + "\n"


def _is_public(item: Item) -> bool:
    words = get_words(remove_attributes(item.body))
    return words[:1] == ["pub"] and words[1:2] != ["("]


def _render_source(text: str, body: Sequence[Token]) -> str:
    """Return the source of tokens that follow each other, without what stands between them and is
    no white space."""
    out = ""
    end = body[0].start if body else 0
    for token in body:
        if token.start != end:
            out += " "
        out += token.text
        end = token.start + len(token.text)
    return " ".join(out.split())


def _render_declaration(text: str, item: Item, needed: set[str], named: set[str]) -> str:
    """Return the declaration of one item; empty where it needs none."""
    body = remove_attributes(item.body)
    words = get_words(body)
    if item.word == "impl":
        return _render_impl(text, body, words, needed, named)
    if item.name not in needed or not _is_public(item):
        return ""
    if item.word == "fn":
        return _render_head(text, body) + ";"
    if item.word in ("const", "static"):
        end = words.index("=") if "=" in words else -1
        return _render_source(text, body[:end]) + ";"
    if item.word == "enum" or item.word == "type":
        return _render_source(text, body)
    if item.word == "struct":
        return _render_struct(text, body, words, item.name, named)
    if item.word in ("trait", "mod"):
        if "{" not in words:  # a module in a file of its own, which the task gives
            return ""
        opening = words.index("{")
        of_trait = item.word == "trait"
        inner = [_render_member(text, member, of_trait) for member in items(body[opening + 1 : -1])]
        return _render_block(_render_source(text, body[:opening]), inner)
    raise Unusable(f"solution: {item.word} {item.name}: no signature can declare it")


def _render_head(text: str, body: Sequence[Token]) -> str:
    """Return a function up to its body."""
    ends = compute_group_ends(body)
    at = 0
    while at < len(body) and body[at].text not in ("{", ";"):
        at = ends[at]
    return _render_source(text, body[:at])


def _render_member(text: str, item: Item, of_trait: bool) -> str:
    """Return a member of a trait, or a public one of a module."""
    body = remove_attributes(item.body)
    words = get_words(body)
    if not of_trait and not _is_public(item):
        return ""
    if item.word == "fn":
        return _render_head(text, body) + ";"
    if item.word == "const":
        end = words.index("=") if "=" in words else -1
        return _render_source(text, body[:end]) + ";"
    return _render_source(text, body) if item.word in ("type", "struct", "enum") else ""


def _render_struct(
    text: str, body: list[Token], words: list[str], name: str, named: set[str]
) -> str:
    after = words.index(name) + 1
    opening = next(
        (at for at in range(after, len(words)) if words[at] in ("{", "(", ";")), len(words) - 1
    )
    head = _render_source(text, body[:opening])
    if words[opening] == "(":
        fields = _split_parts(body[opening + 1 : compute_group_ends(body)[opening] - 1])
        return (
            _render_source(text, body)
            if fields and all(part[0].text == "pub" for part in fields)
            else f"{head};"
        )
    if words[opening] == "{":
        fields = [
            part
            for part in _split_parts(body[opening + 1 : -1])
            if part[0].text == "pub" and part[1].text != "(" and part[1].text in named
        ]
        if fields:
            inside = ", ".join(_render_source(text, part) for part in fields)
            return f"{head} {{ {inside} }}"
    return f"{head};"


def _split_parts(body: Sequence[Token]) -> list[Sequence[Token]]:
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


def _render_impl(
    text: str, body: list[Token], words: list[str], needed: set[str], named: set[str]
) -> str:
    """Return an `impl` block of a declared type: what tests name of its own, traits that are
    declared, and `PartialEq`."""
    if "{" not in words:
        return ""
    opening = words.index("{")
    head = words[:opening]
    type_words = head[len(head) - head[::-1].index("for") :] if "for" in head else head[1:]
    if "for" in head:
        trait = set(head[: head.index("for")])
        if "PartialEq" in trait and needed & set(type_words):
            heads = ""
            for member in items(body[opening + 1 : -1]):
                heads += _render_head(text, remove_attributes(member.body)) + "; "
            return f"{_render_source(text, body[:opening])} {{ {heads}}}"
        return f"{_render_source(text, body[:opening])} {{}}" if trait & needed else ""
    if not needed & set(type_words):
        return ""
    members = []
    for member in items(body[opening + 1 : -1]):
        if member.name in named and _is_public(member):
            members.append(_render_member(text, member, False))
    return _render_block(_render_source(text, body[:opening]), members) if any(members) else ""


def _render_block(head: str, members: Sequence[str]) -> str:
    inside = "".join(f"    {member}\n" for member in members if member)
    return f"{head} {{\n{inside}}}"
