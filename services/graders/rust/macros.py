"""Macros of libraries that can bring `unsafe` into an answer unseen.

`-F unsafe-code` is silent about what a macro of another crate expands to, even where the answer's
own words stand inside: with `macro_rules! run { ($e:expr) => { unsafe { $e } } }` in a library,
`run!(*pointer)` compiles. So the sources of libraries are searched for the word. A procedural macro
that spells it in pieces, or has it from a library of its own, is not found.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from services.graders.rust.lexer import Kind, Token, code, find_group_end

_REEXPORT = re.compile(r"\bpub\s+(?:use|extern\s+crate)\b([^;]*);")


class Source:
    """A library's text: all Rust files below the folder of its root file."""

    def __init__(self, root_file: Path, *, procedural: bool) -> None:
        self._texts = []
        for path in sorted(root_file.parent.rglob("*.rs")):
            self._texts.append(path.read_text(errors="replace"))
        self._procedural = procedural

    def find_unsafe_macros(self) -> tuple[str, ...]:
        """Macros for others whose body has the word `unsafe`; of procedural ones, `*` if it is
        anywhere."""
        texts = [text for text in self._texts if "unsafe" in text]
        if self._procedural:
            return ("*",) if any(_has_unsafe(code(text)) for text in texts) else ()
        exporting = [code(text) for text in texts if "macro_export" in text]
        return tuple(
            name
            for tokens in exporting
            for name, body in _iter_exported_macros(tokens)
            if _has_unsafe(body)
        )

    def list_reexported_crates(self, names: Iterable[str]) -> Iterator[str]:
        """Return which of the crates `names` it lets others use through itself."""
        public = " ".join(match[1] for text in self._texts for match in _REEXPORT.finditer(text))
        words = set(re.findall(r"\w+", public))
        return (name for name in names if name in words)


def _has_unsafe(tokens: Iterable[Token]) -> bool:
    return any("unsafe" in token.text for token in tokens if token.kind in (Kind.NAME, Kind.TEXT))


def _iter_exported_macros(tokens: Sequence[Token]) -> Iterator[tuple[str, Sequence[Token]]]:
    """Yield name and body of each `#[macro_export] macro_rules! name { body }`."""
    words = [token.text for token in tokens]
    for index in (index for index, word in enumerate(words) if word == "macro_export"):
        if "macro_rules" in words[index:]:
            start = words.index("macro_rules", index)
            yield words[start + 2], tokens[start : find_group_end(tokens, start + 3)]
