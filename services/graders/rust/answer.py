"""A Rust answer as text: its files, what in it is forbidden, what it defines.

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
    iter_macro_bodies,
    tokens,
)
from services.graders.rust.signature import Signature

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
_HARMLESS_INSIDE = ("test", "return", "impl")
"""Those that a macro may have which no test can call."""
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


def find_definitions(code: str) -> set[str]:
    """Return names of items at the top level; the whole head of an `impl`."""
    return {name or " " + head.replace(" for ", " ") for name, head in _DEFINITION.findall(code)}


_SYNTAX = Syntax(_LITERAL, find_definitions)


@dataclass(frozen=True)
class RustAnswer:
    form: Answer
    entry: str
    """Path of the crate's root file."""
    files: Mapping[str, str]
    """Path -> text of the whole crate, the task's files included."""
    own_files: Mapping[str, str]
    """The subset of these paths that are files of the answer."""
    edition: str = "2021"
    exports_macros: bool = True
    """Tests may call macros of it."""

    @cached_property
    def tokens(self) -> Mapping[str, tuple[Token, ...]]:
        """Path -> the tokens of the files that the answer wrote. Raises TooManyTokens."""
        budget = MAX_TOKENS
        by_path = {}
        for path, text in self.own_files.items():
            by_path[path] = code(text, self.edition, budget)
            budget -= len(tokens(text, self.edition, budget))
        return by_path

    @property
    def empty(self) -> bool:
        return not any(self.tokens.values())

    @cached_property
    def forbidden(self) -> tuple[Diagnostic, ...]:
        diagnostics = []
        for path, file_tokens in self.tokens.items():
            for token, why in self._find_forbidden(file_tokens):
                message = self.format_message(path, why)
                diagnostics.append(
                    Diagnostic(stage=Stage.CHECK, line=token.line, code=token.text, message=message)
                )
        return tuple(diagnostics)

    def _find_forbidden(self, file_tokens: Sequence[Token]) -> Iterator[tuple[Token, str]]:
        yield from _find_words(FORBIDDEN, file_tokens)
        if "macro_export" not in "\n".join(self.own_files.values()):
            return
        forbidden = dict(FORBIDDEN_IN_MACROS)
        if not self.exports_macros:
            for word in _HARMLESS_INSIDE:
                del forbidden[word]
        for body in iter_macro_bodies(file_tokens):
            yield from _find_words(forbidden, body)

    @cached_property
    def items(self) -> Mapping[str, tuple[Item, ...]]:
        """Path -> its items at the top level."""
        return {path: tuple(items(file_tokens)) for path, file_tokens in self.tokens.items()}

    def format_message(self, path: str, message: str) -> str:
        """`message` about a place in `path`; the usual file need not be named."""
        return message if path == self.entry else f"{path}: {message}"


def _find_words(
    forbidden: Mapping[str, str], file_tokens: Sequence[Token]
) -> Iterator[tuple[Token, str]]:
    for token in file_tokens:
        if token.kind is Kind.NAME and token.text in forbidden:
            yield token, forbidden[token.text]


def read_answer(completion: str, task: RustTask, signature: Signature | None) -> RustAnswer:
    entry = "src/main.rs" if task.cases else "src/lib.rs"

    def find_needed_names() -> set[str]:
        if task.cases:
            return {"main"}
        if signature:
            return {*signature.names, *find_definitions(task.signature or "")}
        return set(_WORD.findall(task.tests)) - find_definitions(task.tests)

    layout = Layout(entry, _PATH, "src/", task.files)
    form = extract(completion, task.FENCES, _SYNTAX, find_needed_names, layout)
    folders = {folder for path in task.files for folder in PurePath(path).parents}
    files = {PurePath(path) for path in task.files}
    allowed_files = {}
    for path, text in form.files.items():
        if PurePath(path) not in folders and files.isdisjoint(PurePath(path).parents):
            allowed_files[path] = text
    if len(allowed_files) < len(form.files):
        form = replace(form, files=allowed_files, flags=(*form.flags, "extract:ignored_file"))
    own_files = {entry: form.text, **form.files}
    return RustAnswer(form, entry, {**task.files, **own_files}, own_files, task.edition)
