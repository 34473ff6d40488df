"""Beginnings of OCaml definitions, `let f (x : int) : int =`, as benchmarks ask for them. Text
only; types nothing."""

from __future__ import annotations

import re
from dataclasses import dataclass

from corpus.drafts import Unusable

_DEFINES = re.compile(r"^[ \t]*(?:let|and)\s+(?:rec\s+)?([a-z_][\w']*)", re.MULTILINE)
_DECLARED = re.compile(
    r"(?:^[ \t]*val\s+(?:([a-z_][\w']*)|\(\s*(\S{1,20})\s*\))|`([a-z_][\w']*))\s*:\s*"
    r"([^\n`=]+)(?=((?:\n[^\n`]*){0,8}))",
    re.MULTILINE,
)
_CONTINUES = re.compile(r"[ \t]+(?:->|\*|\(|'|[a-z])|[ \t]*->")
_IS_TYPE = re.compile(r"[\w'()*\[\]<>|`?~:.,; \-]+")
_BEGINNING = re.compile(
    r"(?<![\w'.])([a-z_][\w']*)[ \t]*"
    r"((?:\([a-z_][\w']* ?:[^\n=]{1,200}?\)[ \t]*){1,9}:[^\n=`.,;]{1,200})"
)
_NAME = re.compile(r"[a-z_][\w']*")
_WRITTEN_WHOLE = r"^\s*let\s+(?:rec\s+)?{}(?![\w'])"


_TYPE = re.compile(r"^type\b[^\n]*(?:\n(?:[ \t]+\S|[ \t]*\||and\b)[^\n]*)*(?:\n\})?", re.MULTILINE)
_TYPE_NAME = re.compile(r"^(?:type|and)\s+(?:[+-]?'\w+\s+|\([^()]*\)\s*)?([a-z_][\w']*)")


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

    def build_definition(self, body: str) -> str:
        """Return the whole definition; `body` may be one already."""
        if re.search(_WRITTEN_WHOLE.format(re.escape(self.name)), body, re.MULTILINE):
            return body.strip("\n") + "\n"
        return f"{self.text}\n{body.strip(chr(10))}\n"


def parse_last_beginning(prompt: str) -> Beginning:
    """Return the definition that a prompt ends in the middle of. Raises Unusable when it ends in
    none."""
    matches = list(_DEFINES.finditer(prompt))
    if not matches or not prompt.rstrip().endswith("="):
        raise Unusable(
            "prompt: does not end in the beginning of a definition, `let f (x : int) : int =`"
        )
    match = matches[-1]
    text = prompt[match.start() :].strip()
    types = _parse_types(prompt[match.end() :].rstrip().removesuffix("="))
    signature = f"val {match[1]} : {' -> '.join(types)}\n" if types else None
    return Beginning(match[1], re.sub(r"^and\b", "let rec", text), signature)


def make_assertions_run(tests: str) -> str:
    """MultiPL-E gives its assertions a name, `let assertions = ...; ()`: run for what they do, they
    are tests."""
    return re.sub(
        r"^([ \t]*)let\s+assertions\s*=", r"\1let () =", tests, count=1, flags=re.MULTILINE
    )


def find_type_definitions(text: str, defined: str = "") -> str:
    """Return the type definitions at the beginning of lines of `text`, the first of each name,
    without those that `defined` has too; empty where there are none."""
    present = {_get_type_name(match[0]) for match in _TYPE.finditer(defined)}
    definitions = []
    for match in _TYPE.finditer(text):
        name = _get_type_name(match[0])
        if "=" in match[0] and name not in present:
            present.add(name)
            definitions.append(match[0].rstrip())
    return "\n".join(definitions)


def _get_type_name(definition: str) -> str:
    match = _TYPE_NAME.match(definition)
    return match[1] if match else ""


def find_declared_types(text: str) -> dict[str, str]:
    """Return name -> type of the values that a prompt declares: `val f : t`, ``f : t`` in
    backticks, or `f (x : t) : t` as the beginning of a definition. The last of a name counts."""
    types = {}
    for declaration in _DECLARED.finditer(text):
        name = declaration[1] or declaration[2] or declaration[3]
        lines = [declaration[4]]
        for line in declaration[5].split("\n"):
            if not _CONTINUES.match(line) and not lines[-1].rstrip().endswith(("->", "*", ":")):
                break
            lines.append(line)
        type_ = " ".join(" ".join(lines).partition("(*")[0].partition(" = ")[0].split())
        if _IS_TYPE.fullmatch(type_):
            types[name] = type_
    for beginning in _BEGINNING.finditer(text):
        try:
            parsed = _parse_types(beginning[2].strip())
        except Unusable:
            continue
        if parsed and all(map(_IS_TYPE.fullmatch, parsed)):
            types[beginning[1]] = " -> ".join(parsed)
    return types


def _parse_types(parameters: str) -> list[str] | None:
    """Return the types of the parameters and of the result; None when one is not written down."""
    types: list[str] = []
    remainder = parameters.strip()
    while remainder and not remainder.startswith(":"):
        if not remainder.startswith("("):
            return None
        closing = _find_closing(remainder)
        name, colon, type_ = remainder[1:closing].partition(":")
        if not colon or not _NAME.fullmatch(name.strip()):
            return None
        argument = type_.strip()
        types.append(f"({argument})" if "->" in argument else argument)
        remainder = remainder[closing + 1 :].strip()
    return [*types, remainder[1:].strip()] if remainder and types else None


def _find_closing(text: str) -> int:
    depth = 0
    for at, sign in enumerate(text):
        depth += (sign == "(") - (sign == ")")
        if not depth:
            return at
    raise Unusable("prompt: a bracket of the definition that it ends in is not closed")
