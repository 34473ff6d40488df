"""Rules of style that ruff has no check for. Run by `make check`.

    python tools/check_style.py FOLDER...

One line per breach, `file:line: rule`; exit status 1 if there is one.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def contains(node: ast.AST, kinds: type[ast.AST] | tuple[type[ast.AST], ...]) -> bool:
    """Return whether a node of one of `kinds` is inside `node`, which itself does not count."""
    return any(isinstance(inner, kinds) for inner in ast.walk(node) if inner is not node)


def describe_kind(value: ast.expr) -> str:
    """Return what two values have in common if they are of one kind: `calls of load`, `attributes
    of config`, `literals of int`."""
    match value:
        case ast.Call(func=function):
            return f"calls of {ast.unparse(function)}"
        case ast.Attribute(value=owner):
            return f"attributes of {ast.unparse(owner)}"
        case ast.Constant(value=literal):
            return f"literals of {type(literal).__name__}"
        case ast.Await(value=awaited):
            return f"awaited {describe_kind(awaited)}"
        case ast.List() | ast.Dict() | ast.Set():
            return type(value).__name__
        case _:
            return ast.unparse(value)


def is_unrelated(targets: ast.Tuple, values: ast.Tuple) -> bool:
    """Return whether the values of a tuple assignment have nothing to do with each other.

    They are related where one of the targets is read on the right (a swap), or where all values
    are of one kind: `passed, failed = 0, 0`, `old, new = load(a), load(b)`.
    """
    assigned = {ast.unparse(target) for target in targets.elts}
    reads = {ast.unparse(inner) for inner in ast.walk(values) if isinstance(inner, ast.expr)}
    kinds = {describe_kind(value) for value in values.elts}
    return len(kinds) > 1 and not assigned & reads


def find_breaches(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield line and rule of each breach."""
    for node in ast.walk(tree):
        match node:
            case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                if contains(node, COMPREHENSIONS):
                    yield node.lineno, "a comprehension inside a comprehension: write a loop"
                if contains(node, ast.NamedExpr):
                    yield node.lineno, "a walrus inside a comprehension: write a loop"
            case ast.IfExp() if contains(node, ast.IfExp):
                yield node.lineno, "a conditional expression inside another: write `if`"
            case ast.Assign(targets=[ast.Tuple() as targets], value=ast.Tuple() as values):
                if is_unrelated(targets, values):
                    yield node.lineno, "unrelated values assigned together: one line each"


def main(folders: list[str]) -> int:
    """Print every breach in `folders`; return the exit status."""
    status = 0
    for folder in folders:
        for path in sorted(Path(folder).rglob("*.py")):
            for line, rule in find_breaches(ast.parse(path.read_text(encoding="utf-8"))):
                print(f"{path}:{line}: {rule}")
                status = 1
    return status


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1:]))
