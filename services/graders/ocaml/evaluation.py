"""OCaml: whether code assigns or loops, and names that do not exist. Reads words; parses nothing.

`ref`, `:=`, `for`, `while`, `Array.set` and `Bytes.set` count as imperative outside comments and
strings.
"""

from __future__ import annotations

import re

from gradus.languages import Language

# A string that is never closed goes to the end: looking for its end once more from every quote
# would take for ever.
_TOKEN = re.compile(
    r"""(?P<open>\(\*(?!\)))|(?P<close>\*\))|(?P<string>"(?:[^"\\]|\\.)*+(?:"|\Z))"""
    r"""|(?P<quoted>\{(?P<tag>[a-z_]*)\|.*?(?:\|(?P=tag)\}|\Z))|(?P<char>'(?:[^'\\]|\\[^']{1,4})')"""
    r"""|(?P<assign>:=)|(?P<word>[A-Za-z_][\w']*(?:\.[A-Za-z_][\w']*)*)""",
    re.DOTALL,
)
_WORDS = frozenset({"ref", "for", "while", "Array.set", "Bytes.set"})


def is_imperative(code: str) -> bool:
    """Return whether code assigns or loops."""
    depth = 0
    for token in _TOKEN.finditer(code):
        kind = token.lastgroup
        if kind == "open":
            depth += 1
        elif kind == "close":
            depth = max(0, depth - 1)
        elif depth == 0 and (
            kind == "assign" or (kind == "word" and token["word"].removeprefix("Stdlib.") in _WORDS)
        ):
            return True
    return False


_KINDS = (
    "value|module type|module|constructor|record field|type constructor|class type|class|instance"
    " variable"
)
NAME_ERRORS = (
    re.compile(rf'Unbound (?:{_KINDS}) "?(?P<name>[^\s"]+)'),
    re.compile(r'There is no (?:field|constructor) "?(?P<name>[^\s"]+)"? within type'),
    re.compile(r'It has no method "?(?P<name>[^\s"]+)'),
)
_LACKS_REC = "If this is a recursive definition"


def find_missing_name(message: str, code: str | None) -> str | None:
    """Return the name that an error of the compiler reports as missing; a function that only lacks
    `rec` has none."""
    if _LACKS_REC in message:
        return None
    matches = (pattern.search(message) for pattern in NAME_ERRORS)
    return next((match["name"] for match in matches if match), None)


LANGUAGE = Language("types", find_missing_name, is_imperative)
