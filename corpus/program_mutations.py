"""Edits that break programs: Python by its syntax tree, Rust by its tokens, and languages with the
operators of C by their text.

An edit of text may not compile or may change nothing: the grader compiles and runs each one.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

from corpus.mutation import Edit
from corpus.rust_mutations import OPERATORS, RustMutations

C_LIKE = frozenset(
    {"c", "cpp", "go", "java", "javascript", "typescript", "csharp", "kotlin", "scala"}
)
_HIDDEN = re.compile(
    r"//[^\n]*|/\*.*?\*/|^[ \t]*#[^\n]*"  # comments, directives
    r'|"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)*\'|`[^`]*`',
    re.DOTALL | re.MULTILINE,
)
_OPERATOR = re.compile(r"(?<=[\w)\] ])(<=|>=|==|!=|&&|\|\||[+\-*/]=|[+\-*/%<>])(?=[\w( ])")
_NUMBER = re.compile(r"(?<![\w.])\d{1,9}(?![\w.])")
_CONDITION = re.compile(r"\bif \(([^(){};]+)\)")
_WORDS = {"true": "false", "false": "true", "min": "max", "max": "min"}
_WORD = re.compile(r"\b(?:true|false|min|max)\b")

_COMPARISONS: Mapping[type[ast.cmpop], str] = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.In: "not in",
    ast.NotIn: "in",
}
_ARITHMETIC: Mapping[type[ast.operator], tuple[str, str]] = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "+"),
    ast.FloorDiv: ("//", "%"),
    ast.Mod: ("%", "//"),
    ast.Div: ("/", "*"),
    ast.BitAnd: ("&", "|"),
    ast.BitOr: ("|", "&"),
}
_COUNTERPARTS = {
    **{"min": "max", "max": "min", "any": "all", "all": "any", "sum": "len"},
    **{"append": "remove", "lower": "upper", "upper": "lower", "find": "rfind", "rfind": "find"},
    **{"startswith": "endswith", "endswith": "startswith", "lstrip": "rstrip", "rstrip": "lstrip"},
    **{"isalpha": "isalnum", "isalnum": "isalpha", "heappush": "heappushpop"},
}


class ProgramMutations:
    """Mutations of the languages that can be edited; none in others."""

    def find_edits(self, source: str, task: Mapping[str, Any] = {}) -> list[Edit]:
        """Return every edit of `source`; none where Python does not parse."""
        language = task.get("language", "python")
        if language == "python":
            return find_python_edits(source)
        if language == "rust":
            return RustMutations().find_edits(source)
        return list(_find_text_edits(source)) if language in C_LIKE else []


def find_python_edits(source: str) -> list[Edit]:
    """Return the edits by the syntax tree with which the text still parses."""
    tree = _parse(source)
    if tree is None:
        return []
    places = _Places(source)
    edits = []
    for node in ast.walk(tree):
        for edit in _edit_node(node, places):
            if _parse(edit.apply(source)) is not None:
                edits.append(edit)
    return edits


def _parse(source: str) -> ast.Module | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return ast.parse(source)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None


class _Places:
    """Character offsets of nodes: the tree counts lines, and bytes in a line."""

    def __init__(self, source: str) -> None:
        self.source = source
        self._lines = [line.encode() for line in re.split(r"(?<=\n)|(?<=\r)(?!\n)", source)]
        self._starts = [0]
        for line in self._lines:
            self._starts.append(self._starts[-1] + len(line.decode()))

    def _find(self, line: int, column: int) -> int:
        return self._starts[line - 1] + len(self._lines[line - 1][:column].decode(errors="replace"))

    def locate(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        """Return start and end."""
        start = self._find(node.lineno, node.col_offset)
        return start, self._find(node.end_lineno or 0, node.end_col_offset or 0)

    def replace(self, kind: str, node: ast.expr | ast.stmt, text: str) -> Edit:
        return Edit(kind, *self.locate(node), text)

    def replace_between(
        self, before: ast.expr | ast.stmt, after: ast.expr, old: str, new: str
    ) -> Iterator[Edit]:
        """Yield the edit of an operator between two nodes."""
        start = self.locate(before)[1]
        at = self.source.find(old, start, self.locate(after)[0])
        if at >= 0:
            yield Edit("operator", at, at + len(old), new)


def _edit_node(node: ast.AST, places: _Places) -> Iterator[Edit]:
    match node:
        case ast.Compare(left=first, ops=[op], comparators=[second]) if type(op) in _COMPARISONS:
            parts = [ast.unparse(first), _COMPARISONS[type(op)], ast.unparse(second)]
            yield places.replace("operator", node, f"({' '.join(parts)})")
        case ast.BinOp(left=first, op=op, right=second) if type(op) in _ARITHMETIC:
            yield from places.replace_between(first, second, *_ARITHMETIC[type(op)])
        case ast.AugAssign(target=target, op=op, value=value) if type(op) in _ARITHMETIC:
            yield from places.replace_between(target, value, *_ARITHMETIC[type(op)])
        case ast.BoolOp(op=op, values=[first, second, *_]):
            words = ("and", "or") if isinstance(op, ast.And) else ("or", "and")
            yield from places.replace_between(first, second, *words)
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
            start, end = places.locate(test)
            yield Edit("condition", start, end, f"not ({places.source[start:end]})")
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield places.replace("condition", node, f"({ast.unparse(operand)})")
        case ast.Constant(value=bool(value)):
            yield places.replace("constant", node, str(not value))
        case ast.Constant(value=int(value)) if value >= 0:
            yield places.replace("constant", node, str(value + 1))
            yield places.replace("constant", node, str(value - 1) if value else "(-1)")
        case ast.Call(func=ast.Name(id="range"), args=[*_, last]) if len(node.args) < 3:
            yield places.replace("range", last, f"{ast.unparse(last)} + 1")
            yield places.replace("range", last, f"{ast.unparse(last)} - 1")
        case ast.Call(func=ast.Name(id="sorted" | "reversed" | "set" | "abs"), args=[only]):
            yield places.replace("call", node, ast.unparse(only))
        case ast.Call(func=ast.Name(id=name) as function) if name in _COUNTERPARTS:
            yield places.replace("function", function, _COUNTERPARTS[name])
        case ast.Attribute(value=value, attr=name) if name in _COUNTERPARTS:
            end = places.locate(node)[1]
            yield Edit("function", end - len(name), end, _COUNTERPARTS[name])
        case ast.Break():
            yield places.replace("statement", node, "continue")
        case ast.Continue() | ast.AugAssign() | ast.Expr(value=ast.Call()):
            yield places.replace("statement", node, "pass")


def _find_text_edits(source: str) -> Iterator[Edit]:
    text = _HIDDEN.sub(lambda match: "\0" * len(match[0]), source)
    for match in _OPERATOR.finditer(text):
        if match[1] in OPERATORS:
            yield Edit("operator", match.start(), match.end(), OPERATORS[match[1]])
    for match in _NUMBER.finditer(text):
        value = int(match[0])
        yield Edit("constant", match.start(), match.end(), str(value + 1))
        if value:
            yield Edit("constant", match.start(), match.end(), str(value - 1))
    for match in _CONDITION.finditer(text):
        yield Edit("condition", match.start(1), match.end(1), f"!({source[slice(*match.span(1))]})")
    for match in _WORD.finditer(text):
        yield Edit("function", match.start(), match.end(), _WORDS[match[0]])
