"""Docstrings, help texts, comments and messages follow the style guide: a noun first, no
personified processes."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("gradus", "services", "trainer", "corpus", "tools")
DATA = {ROOT / "tools" / "story_model" / "pair_texts.py"}
"""Modules whose strings are sentences for a model to learn."""
BEGINNING = re.compile(r"(Of|For|At most|The same)\b")
PHRASE = re.compile(
    r"\b(whoever|somebody|nobody|in earnest|kept in step|is told|lets? go of|goes on|sign of"
    r" life)\b",
    re.IGNORECASE,
)
IN_MESSAGES = re.compile(
    rf"{PHRASE.pattern}|\b(anybody|is none of|go on|going on|without a word)\b", re.IGNORECASE
)


def _breaches(source: str) -> int:
    constants = [node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Expr)]
    docstrings = [
        node.value
        for node in constants
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    keywords = [
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.keyword) and node.arg == "help"
    ]
    helps = [node.value.value for node in keywords if isinstance(node.value, ast.Constant)]
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    comments = [token.string for token in tokens if token.type == tokenize.COMMENT]
    texts = [node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant)]
    messages = [
        text for text in texts if isinstance(text, str) and " " in text and "\n" not in text
    ]
    in_messages = sum(
        IN_MESSAGES.search(text) is not None
        for text in messages
        if text not in {*docstrings, *helps}
    )
    beginnings = sum(BEGINNING.match(text.strip()) is not None for text in [*docstrings, *helps])
    return (
        beginnings
        + in_messages
        + sum(
            len(PHRASE.findall(" ".join(text.split()))) for text in [*docstrings, *helps, *comments]
        )
    )


def test_docstrings_help_texts_comments_and_messages_follow_the_style_guide() -> None:
    files = [
        path
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
        if path not in DATA
    ]
    found = {
        path.relative_to(ROOT).as_posix(): _breaches(path.read_text(encoding="utf-8"))
        for path in files
    }
    assert len(files) > 100
    assert {name: count for name, count in found.items() if count} == {}


def test_each_kind_of_breach_is_found() -> None:
    assert (
        _breaches('"""Of a file."""\nx = 1\n"""At most one."""\ny = 2  # Nobody reads this\n') == 3
    )
    assert _breaches('Option(help="Of the rows")  # It goes on\n') == 2
    assert _breaches('raise Misuse(f"{x}: is none of a, b")\nsay("it goes on")\n') == 2
    assert _breaches('"""Offset in bytes."""\nx = "nobody"  # Former name\n') == 0
