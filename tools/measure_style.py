"""Names and density of the source, measured as for other code bases, and held to bounds. Run by
`make check`.

    python tools/measure_style.py FOLDER...

Prints each figure beside its bound; exit status 1 if a bound is broken. The figures do not make a
name good: a name is right when a reader who knows the field guesses what is behind it.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from pathlib import Path

COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
PROPERTIES = ("property", "cached_property")
PARTICIPLES = frozenset(
    {"found", "made", "said", "written", "kept", "held", "told", "taken", "put"}
)
VAGUE_TEXT = """
found said asked given one told wanted behind left more kept held written put known seen made
came apart others whole where what how here there rest own say lacks least most
"""
VAGUE_NAMES = frozenset(VAGUE_TEXT.split())
VERB_TEXT = """
set get add make build create load read write parse run start stop open close send fetch find
check validate compute update handle process is has can should to from grade score render format
log init main test call apply wait claim submit cancel renew finish release serve refuse raise
await list delete remove put append take do move show print export import register encode decode
convert merge split join clean compile execute launch kill generate train evaluate sample save
resolve select iter next enter exit str repr len hash eq lt setup teardown extract ensure collect
sync enqueue dequeue schedule sweep notify retry abort push pop require describe compare match
count measure drop restore resume install verify sign record report announce cache lock unlock
link prepare reset replace rename sort group filter map wrap
"""
VERBS = frozenset(VERB_TEXT.split())
"""The first words that count as verbs: a short list that reaches 100 % for no code base."""


def count_function(node: ast.FunctionDef | ast.AsyncFunctionDef, counts: Counter[str]) -> None:
    """Add a function's name to `counts`; dunder methods and properties are left out."""
    decorators = {each.id for each in node.decorator_list if isinstance(each, ast.Name)}
    if node.name.startswith("__") or decorators.intersection(PROPERTIES):
        return
    words = node.name.strip("_").split("_")
    counts["functions"] += 1
    counts["verbs"] += words[0] in VERBS
    counts["participles"] += words[0].endswith("ed") or words[0] in PARTICIPLES
    counts["of"] += "of" in words


def count_file(path: Path) -> Counter[str]:
    """Return the counts of one source file."""
    text = path.read_text(encoding="utf-8")
    counts = Counter({"lines": len(text.splitlines())})
    for node in ast.walk(ast.parse(text)):
        counts["statements"] += isinstance(node, ast.stmt)
        counts["comprehensions"] += isinstance(node, COMPREHENSIONS)
        counts["conditionals"] += isinstance(node, ast.IfExp)
        counts["walruses"] += isinstance(node, ast.NamedExpr)
        if isinstance(node, FUNCTIONS):
            count_function(node, counts)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            counts["vague"] += node.id in VAGUE_NAMES
        elif isinstance(node, ast.arg):
            counts["vague"] += node.arg in VAGUE_NAMES
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple):
            counts["tuples"] += isinstance(node.value, ast.Tuple)
    return counts


def main(folders: list[str]) -> int:
    """Print every figure of `folders` together with its bound; return the exit status."""
    counts: Counter[str] = Counter()
    for folder in folders:
        for path in sorted(Path(folder).rglob("*.py")):
            counts.update(count_file(path))
    functions = counts["functions"] / 100
    statements = counts["statements"] / 1000
    lowest = ("verb first, % of functions", counts["verbs"] / functions, 55)
    bounds = [
        ("participle first, % of functions", counts["participles"] / functions, 3),
        ("`of`, % of functions", counts["of"] / functions, 1),
        ("vague names per 1,000 lines", counts["vague"] * 1000 / counts["lines"], 1),
        ("comprehensions per 1,000 statements", counts["comprehensions"] / statements, 40),
        ("conditional expressions per 1,000 statements", counts["conditionals"] / statements, 25),
        ("walruses per 1,000 statements", counts["walruses"] / statements, 3),
        ("tuple assignments per 1,000 statements", counts["tuples"] / statements, 5),
    ]
    is_broken = lowest[1] < lowest[2]
    print(f"{lowest[1]:6.1f}  at least {lowest[2]:4}  {lowest[0]}")
    for name, figure, bound in bounds:
        print(f"{figure:6.1f}  at most  {bound:4}  {name}")
        is_broken = is_broken or figure > bound
    return int(is_broken)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1:]))
