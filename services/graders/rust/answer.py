"""A Rust answer as text: its files, what in it is forbidden, what it defines. Compiles nothing.

Forbidden names are looked for among the tokens, in bodies of macros too: `-F unsafe-code` sees only what the answer's
own crate expands, and a macro that tests call expands in theirs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from gradus.code_blocks import Layout, Syntax
from gradus.contract import Diagnostic, Stage
from gradus.extract import Answer, extract
from gradus.tasks.rust import RustTask
from services.graders.rust.lexer import Item, Kind, Token, code, items, macro_bodies
from services.graders.rust.signature import Signature
from services.graders.rust.soundness_25860 import assumed_bounds

_PATH = re.compile(r"src/(?:[a-z0-9_]{1,64}/){0,4}[a-z0-9_]{1,64}\.rs")
FORBIDDEN: Mapping[str, str] = {
    "unsafe": "an answer may not use `unsafe`",
    "no_mangle": "an answer may not choose the names of its symbols",
    "export_name": "an answer may not choose the names of its symbols",
    "link_section": "an answer may not choose where its code is put",
    "link_name": "an answer may not choose the names of its symbols",
    "global_asm": "an answer may not hold assembly",
    "naked_asm": "an answer may not hold assembly",
}
FORBIDDEN_IN_MACROS: Mapping[str, str] = {
    "test": "a macro of an answer may not say `test`: where the tests call it, it could define more of them",
    **dict.fromkeys(
        ("include", "include_str", "include_bytes"),
        "a macro of an answer may not include files: where the tests call it, it could include theirs",
    ),
}
_ASSUMED = (
    "an answer may not use a function as a value that takes for granted which of its lifetimes is longer: write the "
    "bound (`'b: 'a`); without it the compiler lets references outlive what they refer to"
)
_OWN_EQUALITY = (
    "an answer may only derive `PartialEq`: written by hand, it could say that anything is what tests expect. "
    "A task that asks for one declares `impl PartialEq for ...` in its signature"
)
_NAMED = {_ASSUMED: "lifetimes"}
"""What is refused, where that is not the name of the token."""


_WORD = re.compile(r"[^\W\d]\w*+")
_LITERAL = re.compile(
    r"//[^\n]*+"
    r"|/\*.*?(?:\*/|\Z)"
    r'|\b(?:r|br|cr)(?P<hashes>#*+)".*?(?:"(?P=hashes)|\Z)'
    r'|"(?:[^"\\]|\\.)*+(?:"|\Z)'
    r"|'(?:[^'\\\n]|\\[^\n]{1,9}?)'",
    re.DOTALL,
)
_DEFINITION = re.compile(
    r"^(?:pub(?:\([^()\n]*+\))?\s++)?(?:(?:async|unsafe|const|default|extern(?:\s*+\"\w*+\")?)\s++(?=[a-z]))*+"
    r"(?:(?:fn|struct|enum|union|trait|type|const|static|mod|macro_rules!)\s++(?:mut\s++)?(?:r#)?(\w++)|impl\b([^{;]*+))",
    re.MULTILINE,
)


def definitions(code: str) -> set[str]:
    """Names of items at the top level; the whole head of an `impl`."""
    return {name or " " + head.replace(" for ", " ") for name, head in _DEFINITION.findall(code)}


_SYNTAX = Syntax(_LITERAL, definitions)


@dataclass(frozen=True)
class RustAnswer:
    form: Answer
    entry: str
    """Path of the crate's root file."""
    files: Mapping[str, str]
    """Path -> text of the whole crate, the task's files included."""
    written: Mapping[str, str]
    """Of these, the files of the answer."""
    edition: str = "2021"
    own_equality: bool = False
    """It may say itself when values of its types are equal: the task asks for that."""

    @cached_property
    def tokens(self) -> Mapping[str, tuple[Token, ...]]:
        """Path -> the tokens of the files that the answer wrote."""
        return {path: code(text, self.edition) for path, text in self.written.items()}

    @property
    def empty(self) -> bool:
        return not any(self.tokens.values())

    @cached_property
    def forbidden(self) -> tuple[Diagnostic, ...]:
        made = []
        for path, found in self.tokens.items():
            for token, why in self._refused(found):
                code, message = _NAMED.get(why, token.text), self.located(path, why)
                made.append(Diagnostic(stage=Stage.CHECK, line=token.line, code=code, message=message))
        return tuple(made)

    def _refused(self, found: Sequence[Token]) -> Iterator[tuple[Token, str]]:
        for at, token in enumerate(found):
            if token.kind is Kind.NAME and token.text in FORBIDDEN:
                yield token, FORBIDDEN[token.text]
            elif token.kind is Kind.NAME and token.text == "extern":
                words = [one.text for one in found[at + 1 : at + 3] if one.kind is not Kind.TEXT]
                if words[:1] not in (["crate"], ["fn"]):  # `extern crate`, `extern fn`, `extern "C" fn` declare nothing
                    yield token, "an answer may not declare or link what is not Rust"
        for body in macro_bodies(found):
            named = (token for token in body if token.kind is Kind.NAME)
            yield from ((token, why) for token in named if (why := FORBIDDEN_IN_MACROS.get(token.text)))
        yield from ((token, _ASSUMED) for token in assumed_bounds(found))
        if not self.own_equality:
            yield from ((token, _OWN_EQUALITY) for token in _own_equality(found))

    @cached_property
    def items(self) -> Mapping[str, tuple[Item, ...]]:
        """Path -> its items at the top level."""
        return {path: tuple(items(found)) for path, found in self.tokens.items()}

    def located(self, path: str, message: str) -> str:
        """`message` about a place in `path`; the usual file need not be named."""
        return message if path == self.entry else f"{path}: {message}"


def _own_equality(found: Sequence[Token]) -> Iterator[Token]:
    """Where `PartialEq` may be implemented other than by `derive`: before `for` or `<`, renamed, or in a macro."""
    in_macros = {id(token) for body in macro_bodies(found) for token in body}
    for at, token in enumerate(found):
        if token.text == "PartialEq" and token.kind is Kind.NAME:
            before = [one.text for one in found[max(0, at - 2) : at]]
            following = found[at + 1].text if at + 1 < len(found) else ""
            bound = before[-1:] == ["+"] or (before[-1:] == [":"] and before != [":", ":"])
            if id(token) in in_macros or before == ["!", "("] or (following in ("for", "<", "as") and not bound):
                yield token


def read_answer(completion: str, task: RustTask, signature: Signature | None) -> RustAnswer:
    entry = "src/main.rs" if task.cases else "src/lib.rs"

    def needed() -> set[str]:
        if task.cases:
            return {"main"}
        if signature:
            return {*signature.names, *definitions(task.signature or "")}
        return set(_WORD.findall(task.tests)) - definitions(task.tests)

    form = extract(completion, task.FENCES, _SYNTAX, needed, Layout(entry, _PATH, "src/"))
    written = {entry: form.text, **form.files}
    own_equality = "PartialEq" in (task.signature or "")
    return RustAnswer(form, entry, {**task.files, **written}, written, task.edition, own_equality)
