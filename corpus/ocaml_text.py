"""Beginnings of OCaml definitions, `let f (x : int) : int =`, as benchmarks ask for them. Text
only; types nothing."""

from __future__ import annotations

import re
from dataclasses import dataclass

from corpus.drafts import Unusable

_DEFINES = re.compile(r"^[ \t]*(?:let|and)\s+(?:rec\s+)?([a-z_][\w']*)", re.MULTILINE)
_NAME = re.compile(r"[a-z_][\w']*")
_WRITTEN_WHOLE = r"^\s*let\s+(?:rec\s+)?{}(?![\w'])"


@dataclass(frozen=True, slots=True)
class Beginning:
    """A definition up to its `=`."""

    name: str
    text: str
    signature: str | None
    """`val f : int -> int`; None where a parameter or the result has no type written down."""

    @property
    def stub(self) -> str:
        return f'{self.text} failwith "not implemented"\n'

    def completed(self, body: str) -> str:
        """The whole definition; `body` may be one already."""
        if re.search(_WRITTEN_WHOLE.format(re.escape(self.name)), body, re.MULTILINE):
            return body.strip("\n") + "\n"
        return f"{self.text}\n{body.strip(chr(10))}\n"


def last_beginning(prompt: str) -> Beginning:
    """The definition that a prompt ends in the middle of. Raises Unusable when it ends in none."""
    found = list(_DEFINES.finditer(prompt))
    if not found or not prompt.rstrip().endswith("="):
        raise Unusable(
            "prompt: does not end in the beginning of a definition, `let f (x : int) : int =`"
        )
    match = found[-1]
    text = prompt[match.start() :].strip()
    types = _types(prompt[match.end() :].rstrip().removesuffix("="))
    signature = f"val {match[1]} : {' -> '.join(types)}\n" if types else None
    return Beginning(match[1], re.sub(r"^and\b", "let rec", text), signature)


def with_tests_run(tests: str) -> str:
    """MultiPL-E gives its assertions a name, `let assertions = ...; ()`: run for what they do, they
    are tests."""
    return re.sub(
        r"^([ \t]*)let\s+assertions\s*=", r"\1let () =", tests, count=1, flags=re.MULTILINE
    )


def _types(parameters: str) -> list[str] | None:
    """The types of the parameters and of the result; None when one is not written down."""
    found: list[str] = []
    rest = parameters.strip()
    while rest and not rest.startswith(":"):
        if not rest.startswith("("):
            return None
        closing = _closing(rest)
        name, colon, type_ = rest[1:closing].partition(":")
        if not colon or not _NAME.fullmatch(name.strip()):
            return None
        argument = type_.strip()
        found.append(f"({argument})" if "->" in argument else argument)
        rest = rest[closing + 1 :].strip()
    return [*found, rest[1:].strip()] if rest and found else None


def _closing(text: str) -> int:
    depth = 0
    for at, sign in enumerate(text):
        depth += (sign == "(") - (sign == ")")
        if not depth:
            return at
    raise Unusable("prompt: a bracket of the definition that it ends in is not closed")
