"""Docstrings, help texts and comments follow the style guide: a noun first, no riddles and no personification."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("gradus", "services", "trainer", "corpus", "tools")
BEGINNING = re.compile(r"(Of|For|At most|The same)\b")
PHRASE = re.compile(
    r"\b(whoever|somebody|nobody|in earnest|kept in step|is told|lets? go of|goes on|sign of life)\b",
    re.IGNORECASE,
)
ALLOWED: dict[str, int] = {
    "services/graders/ocaml/config.py": 2,
    "services/graders/rust/config.py": 2,
    "services/graders/rust/crates.py": 2,
    "services/graders/rust/lexer.py": 1,
    "services/graders/story/config.py": 3,
    "services/graders/story/encoder.py": 6,
    "services/graders/story/export.py": 1,
    "services/graders/story/fact_builder.py": 2,
    "services/graders/story/facts.py": 3,
    "services/graders/story/lexicon.py": 1,
    "services/graders/story/matching.py": 2,
    "services/graders/story/model.py": 3,
    "services/graders/story/rubric.py": 1,
    "services/graders/story/scrum.py": 1,
    "trainer/config/run.py": 9,
    "trainer/config/stages.py": 1,
    "trainer/data/demo_sprints.py": 3,
    "trainer/data/demo_tasks.py": 1,
    "trainer/data/prompts.py": 1,
    "trainer/data/rows.py": 2,
    "trainer/data/tasks.py": 2,
    "trainer/generation/client.py": 2,
    "trainer/generation/responses.py": 3,
    "trainer/generation/server.py": 4,
    "trainer/generation/weights.py": 2,
    "trainer/models/loading.py": 1,
    "trainer/models/merge.py": 1,
    "trainer/pipeline/digests.py": 3,
    "trainer/pipeline/gate_command.py": 2,
    "trainer/pipeline/gates.py": 1,
    "trainer/pipeline/plan.py": 2,
    "trainer/pipeline/stages.py": 2,
    "trainer/pipeline/state.py": 2,
    "trainer/pipeline/subprocesses.py": 2,
    "trainer/stages/pretrain.py": 1,
}
"""Known breaches by file. Entries may only shrink: rewrite the text, then lower or delete the number."""


def _breaches(source: str) -> int:
    constants = [node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Expr)]
    docstrings = [node.value for node in constants if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    keywords = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.keyword) and node.arg == "help"]
    helps = [node.value.value for node in keywords if isinstance(node.value, ast.Constant)]
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    comments = [token.string for token in tokens if token.type == tokenize.COMMENT]
    beginnings = sum(BEGINNING.match(text.strip()) is not None for text in [*docstrings, *helps])
    return beginnings + sum(len(PHRASE.findall(" ".join(text.split()))) for text in [*docstrings, *helps, *comments])


def test_docstrings_help_texts_and_comments_follow_the_style_guide() -> None:
    files = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    found = {path.relative_to(ROOT).as_posix(): _breaches(path.read_text(encoding="utf-8")) for path in files}
    assert len(files) > 100
    assert {name: count for name, count in found.items() if count} == ALLOWED


def test_each_kind_of_breach_is_found() -> None:
    assert _breaches('"""Of a file."""\nx = 1\n"""At most one."""\ny = 2  # Nobody reads this\n') == 3
    assert _breaches('Option(help="Of the rows")  # It goes on\n') == 2
    assert _breaches('"""Offset in bytes."""\nx = "nobody"  # Former name\n') == 0
