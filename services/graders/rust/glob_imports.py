"""Imports of everything, `use solution::*;`, in tests, and whether they can call own macros.

With such an import the answer would choose what words mean there. It becomes one of names
(`tests_file`, `imported_names`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from services.graders.rust.lexer import (
    Kind,
    code,
    list_texts,
)

STD_MACROS = frozenset((Path(__file__).parent / "std_macros.txt").read_text().split())
"""Macros that every program has without an import."""
_BEFORE_NOT = frozenset({"if", "while", "match", "return", "in", "else", "break", "as"})
"""Keywords that `!` may follow as an operator."""
_MACRO_CALL = re.compile(r"(: )?\b([^\W\d]\w*) ! [(\[{]")
_MACRO = re.compile(r"\bmacro_rules ! (\w+)")
_IMPORTED = re.compile(r"[:{,] (\w+) (?=[;,}])")


@dataclass(frozen=True, slots=True)
class GlobImport:
    """An import of everything from somewhere."""

    start: int
    end: int
    words: tuple[str, ...]
    """From `use` to the semicolon."""

    def is_plain(self, crate: str) -> bool:
        """Is it `use solution::*;`, and not of a module?"""
        return "".join(self.words).removeprefix("use").removeprefix("::") == f"{crate}::*;"

    @property
    def owner(self) -> str:
        """What everything is imported from: `Shape` of `use solution::Shape::*;`."""
        return self.words[-5] if self.words[-4:] == (":", ":", "*", ";") else ""


def find_globs(text: str, crate: str) -> list[GlobImport]:
    """Return the imports of everything from the answer's crate or a module of it."""
    return [glob for glob in iter_globs(text) if crate in glob.words[:4]]


def iter_globs(text: str) -> Iterator[GlobImport]:
    """Yield the imports of everything from anywhere."""
    words: list[str] = []
    start = 0
    for token in code(text):
        if token.kind is Kind.NAME and token.text == "use":
            start = token.start
            words = []
        if words or token.text == "use":
            words.append(token.text)
        if words and token.text == ";":
            if "*" in words:
                yield GlobImport(start, token.start + 1, tuple(words))
            words = []


@lru_cache(maxsize=256)
def may_call_macros(tests: str, crate: str, edition: str) -> bool:
    """Return whether tests may call macros of an answer: others than the standard library's and
    their own, or by a path, or with more in scope than they name. Kept, because a task has many
    answers."""
    is_scope_open = any(not glob.is_plain(crate) for glob in find_globs(tests, crate))
    text = " ".join(list_texts(code(tests, edition)))
    called = set(map("".join, _MACRO_CALL.findall(text)))
    called -= STD_MACROS | _BEFORE_NOT | set(_MACRO.findall(text))
    imported = STD_MACROS.intersection(_IMPORTED.findall(text))
    return bool(is_scope_open or called or imported or "macro_use" in text)
