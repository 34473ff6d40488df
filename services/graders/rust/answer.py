"""A Rust answer as text: its files, what in it is forbidden, what it defines. Compiles nothing.

The compiler sees to what is forbidden where it can. It sees only what the answer's own crate
expands, and a macro that tests call expands in theirs: so forbidden names are looked for among the
tokens of macros that other crates can call.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import PurePath

from gradus.code_blocks import Layout, Syntax
from gradus.contract import Diagnostic, Stage
from gradus.extract import Answer, extract
from gradus.tasks.rust import RustTask
from services.graders.rust.lexer import (
    MAX_TOKENS,
    Item,
    Kind,
    Token,
    code,
    items,
    macro_bodies,
    tokens,
)
from services.graders.rust.signature import Signature
from services.graders.rust.soundness_25860 import assumed_bounds

_PATH = re.compile(r"src/(?:[a-z0-9_]{1,64}/){0,4}[a-z0-9_]{1,64}\.rs")
FORBIDDEN: Mapping[str, str] = {
    "naked_asm": "an answer may not hold assembly",
    "automatically_derived": "an answer may not say that the compiler derived what it wrote itself",
}
"""Words that no answer may have; the compiler sees to the rest, see `compile`."""
_OWN_SYMBOLS = "an answer may not choose the names of its symbols"
FORBIDDEN_IN_MACROS: Mapping[str, str] = {
    "unsafe": "an answer may not use `unsafe`",
    **dict.fromkeys(("no_mangle", "export_name", "link_name"), _OWN_SYMBOLS),
    "link_section": "an answer may not choose where its code is put",
    **dict.fromkeys(("global_asm", "asm"), "an answer may not hold assembly"),
    "extern": "an answer may not declare or link what is not Rust",
    "test": (
        "a macro of an answer may not say `test`: where the tests call it, it could define more of"
        " them"
    ),
    **dict.fromkeys(
        ("include", "include_str", "include_bytes"),
        "a macro of an answer may not include files: where the tests call it, it could include"
        " theirs",
    ),
    "return": (
        "a macro for tests may not say `return`: where they call it, the test would end early"
    ),
    "impl": (
        "a macro for tests may not implement anything: where they call it, it could say what equals"
        " what"
    ),
}
"""Words that macros for other crates may not have: tests expand them, where the compiler's bans do
not hold."""
_ASSUMED = (
    "an answer may not use a function as a value that takes for granted which of its lifetimes is"
    " longer: write the bound (`'b: 'a`); without it the compiler lets references outlive what they"
    " refer to"
)
OWN_EQUALITY = (
    "an answer may only derive `PartialEq`: written by hand, it could say that anything is what"
    " tests expect. A type that is private and part of no other may have its own; a task that asks"
    " for one declares `impl PartialEq for ...` in its signature"
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
    """The subset of these paths that are files of the answer."""
    edition: str = "2021"
    own_equality: frozenset[str] = frozenset()
    """Types that may say themselves when their values are equal: the task asks for that."""

    @cached_property
    def tokens(self) -> Mapping[str, tuple[Token, ...]]:
        """Path -> the tokens of the files that the answer wrote. Raises TooManyTokens."""
        left = MAX_TOKENS
        found = {}
        for path, text in self.written.items():
            found[path] = code(text, self.edition, left)
            left -= len(tokens(text, self.edition, left))
        return found

    @property
    def empty(self) -> bool:
        return not any(self.tokens.values())

    @cached_property
    def forbidden(self) -> tuple[Diagnostic, ...]:
        made = []
        for path, found in self.tokens.items():
            for token, why in self._refused(found):
                made.append(
                    Diagnostic(
                        stage=Stage.CHECK,
                        line=token.line,
                        code=_NAMED.get(why, token.text),
                        message=self.located(path, why),
                    )
                )
        return tuple(made)

    def _refused(self, found: Sequence[Token]) -> Iterator[tuple[Token, str]]:
        yield from _named_in(FORBIDDEN, found)
        if any("macro_export" in text for text in self.written.values()):
            for body in macro_bodies(found):
                yield from _named_in(FORBIDDEN_IN_MACROS, body)
        yield from ((token, _ASSUMED) for token in assumed_bounds(found))

    @cached_property
    def items(self) -> Mapping[str, tuple[Item, ...]]:
        """Path -> its items at the top level."""
        return {path: tuple(items(found)) for path, found in self.tokens.items()}

    def located(self, path: str, message: str) -> str:
        """`message` about a place in `path`; the usual file need not be named."""
        return message if path == self.entry else f"{path}: {message}"


def _named_in(forbidden: Mapping[str, str], found: Sequence[Token]) -> Iterator[tuple[Token, str]]:
    for token in found:
        if token.kind is Kind.NAME and token.text in forbidden:
            yield token, forbidden[token.text]


def read_answer(completion: str, task: RustTask, signature: Signature | None) -> RustAnswer:
    entry = "src/main.rs" if task.cases else "src/lib.rs"

    def needed() -> set[str]:
        if task.cases:
            return {"main"}
        if signature:
            return {*signature.names, *definitions(task.signature or "")}
        return set(_WORD.findall(task.tests)) - definitions(task.tests)

    form = extract(completion, task.FENCES, _SYNTAX, needed, Layout(entry, _PATH, "src/"))
    folders = {folder for path in task.files for folder in PurePath(path).parents}
    files = {PurePath(path) for path in task.files}
    kept = {
        path: text
        for path, text in form.files.items()
        if PurePath(path) not in folders and files.isdisjoint(PurePath(path).parents)
    }
    if len(kept) < len(form.files):
        form = replace(form, files=kept, flags=(*form.flags, "extract:ignored_file"))
    written = {entry: form.text, **form.files}
    own_equality = signature.own_equality if signature else frozenset[str]()
    return RustAnswer(form, entry, {**task.files, **written}, written, task.edition, own_equality)
