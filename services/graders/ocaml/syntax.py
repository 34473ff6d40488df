"""What extraction knows of OCaml: comments, literals, and what a text defines at its top level."""

from __future__ import annotations

import re

from gradus.code_blocks import Syntax
from gradus.tasks.ocaml import OcamlTask

_LITERAL = re.compile(
    r"\(\*.*?(?:\*\)|\Z)"
    r'|"(?:[^"\\]|\\.)*+(?:"|\Z)'
    r"|\{(?P<id>[a-z_]{0,40})\|.*?(?:\|(?P=id)\}|\Z)"
    r"|'(?:[^'\\\n]|\\[^\n]{1,4}?)'",
    re.DOTALL,
)
_WORD = re.compile(r"[^\W\d][\w']*+")
_NAME = r"(?:\(\s*([^\s\w()]+)\s*\)|([^\W\d][\w']*+))"
_DEFINITION = re.compile(
    r"^(?:let|and|type|module|exception|external|class)\s++(?:(?:rec|nonrec|type|virtual)\s++)?"
    rf"(?:\([^()]{{1,200}}\)\s++(?=[a-z])|[+-]?'\w++\s++)?{_NAME}",
    re.MULTILINE,
)
_TYPE = re.compile(r"^type\b[^\n]*+(?:\n(?:[ \t|}\]][^\n]*+|and\b[^\n]*+)?+)*+", re.MULTILINE)
_PART = re.compile(
    r"(?:^[ \t]*+|[=|]\s*+)([A-Z][\w']*+)(?!\.)|(?:[{;]\s*+|mutable\s++)([a-z_]\w*+)\s*+:",
    re.MULTILINE,
)


def find_definitions(code: str) -> set[str]:
    """Return names of values, types, modules and exceptions; constructors and fields of types."""
    parts = [part for declaration in _TYPE.findall(code) for part in _PART.findall(declaration)]
    return {first or second for first, second in (*_DEFINITION.findall(code), *parts)}


def find_needed_names(task: OcamlTask) -> set[str]:
    """Return the names that the signature declares; without one, what the tests mention and do not
    define."""
    if task.signature is not None:
        return find_definitions(re.sub(r"^[ \t]*+val\b", "let", task.signature, flags=re.MULTILINE))
    return set(_WORD.findall(task.tests)) - find_definitions(task.tests)


SYNTAX = Syntax(_LITERAL, find_definitions)
