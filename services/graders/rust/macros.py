"""Macros of libraries that can bring `unsafe` into an answer unseen.

`-F unsafe-code` is silent about what a macro of another crate expands to, even where the answer's
own words stand inside: with `macro_rules! run { ($e:expr) => { unsafe { $e } } }` in a library,
`run!(*pointer)` compiles. So the sources of libraries are searched for the word. A procedural macro
that spells it in pieces, or has it from a library of its own, is not found.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from services.graders.rust.lexer import Kind, Token, code, compute_group_ends, list_texts

_REEXPORT = re.compile(r"\bpub\s+(?:use|extern\s+crate)\b([^;]*);")


class Source:
    """A library's text: all Rust files below the folder of its root file."""

    def __init__(self, root_file: Path, *, procedural: bool) -> None:
        self._texts = []
        for path in sorted(root_file.parent.rglob("*.rs")):
            self._texts.append(path.read_text(errors="replace"))
        self._procedural = procedural

    def find_unsafe_macros(self) -> list[str]:
        """Macros for others whose body has the word `unsafe`; of procedural ones, `*` if it is
        anywhere."""
        names = []
        for text in self._texts:
            if "unsafe" not in text:
                continue
            tokens = code(text)
            if not self._procedural:
                names += _list_unsafe_macros(tokens)
            elif _has_unsafe(tokens):
                return ["*"]
        return names

    def list_reexported_crates(self, names: Iterable[str]) -> list[str]:
        """Return which of the crates `names` it lets others use through itself."""
        words: set[str] = set()
        for text in self._texts:
            for public in _REEXPORT.findall(text):
                words.update(re.findall(r"\w+", public))
        return sorted(words.intersection(names))


def _has_unsafe(tokens: Iterable[Token]) -> bool:
    return any("unsafe" in token.text for token in tokens if token.kind in (Kind.NAME, Kind.TEXT))


def _list_unsafe_macros(tokens: Sequence[Token]) -> list[str]:
    """Return names of each `#[macro_export] macro_rules! name { ... unsafe ... }`."""
    words = list_texts(tokens)
    group_ends = compute_group_ends(tokens)
    names = []
    for index, word in enumerate(words):
        if word == "macro_export" and "macro_rules" in words[index:]:
            start = words.index("macro_rules", index)
            if _has_unsafe(tokens[start + 3 : max(group_ends[start : start + 4])]):
                names.append(words[start + 2])
    return names
