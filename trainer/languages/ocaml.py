"""Whether an OCaml completion is written with assignments and loops. It reads words; it parses and judges nothing.

Counts as imperative: `ref`, `:=`, `for`, `while`, `Array.set`, `Bytes.set`, outside comments and strings. Where there
are fenced code blocks only those are read.
"""

from __future__ import annotations

import re

_FENCED = re.compile(r"```[^\n`]*\n(.*?)(?:```|\Z)", re.DOTALL)
# A string that is never closed goes to the end: looking for its end once more from every quote would take for ever.
_TOKEN = re.compile(
    r"""(?P<open>\(\*(?!\)))|(?P<close>\*\))|(?P<string>"(?:[^"\\]|\\.)*+(?:"|\Z))"""
    r"""|(?P<quoted>\{(?P<tag>[a-z_]*)\|.*?(?:\|(?P=tag)\}|\Z))|(?P<char>'(?:[^'\\]|\\[^']{1,4})')"""
    r"""|(?P<assign>:=)|(?P<word>[A-Za-z_][\w']*(?:\.[A-Za-z_][\w']*)*)""",
    re.DOTALL,
)
_WORDS = frozenset({"ref", "for", "while", "Array.set", "Bytes.set"})


def is_imperative(completion: str) -> bool:
    """True where the code of a completion assigns or loops."""
    blocks = _FENCED.findall(completion)
    return any(_assigns_or_loops(code) for code in (blocks or [completion]))


def _assigns_or_loops(code: str) -> bool:
    depth = 0
    for token in _TOKEN.finditer(code):
        kind = token.lastgroup
        if kind == "open":
            depth += 1
        elif kind == "close":
            depth = max(0, depth - 1)
        elif depth == 0 and (kind == "assign" or (kind == "word" and token["word"].removeprefix("Stdlib.") in _WORDS)):
            return True
    return False
