"""Commands of README and docs as a newcomer copies them: what they write can be read."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
WRITTEN = re.compile(
    r"echo '(?P<echoed>[^']*)' > \S+\.jsonl|cat > \S+\.jsonl <<'END'\n(?P<copied>.*?)\nEND\n",
    re.DOTALL,
)
"""Commands that write a file of JSON Lines."""
NUMBER_WORDS = {17: "seventeen", 18: "eighteen", 19: "nineteen", 20: "twenty"}


def list_written(page: Path) -> list[str]:
    """Return the contents of the JSONL files that a page's commands write."""
    text = page.read_text(encoding="utf-8")
    return [found["echoed"] or found["copied"] for found in WRITTEN.finditer(text)]


def test_pages_write_such_files() -> None:
    assert sum(len(list_written(page)) for page in PAGES) > 8


@pytest.mark.parametrize(
    "page", [page for page in PAGES if list_written(page)], ids=lambda p: p.stem
)
def test_each_line_that_a_page_writes_is_an_object(page: Path) -> None:
    for written in list_written(page):
        for line in written.splitlines():
            assert isinstance(json.loads(line), dict), line


def test_pages_name_as_many_languages_as_there_are() -> None:
    shipped = ROOT / "configs" / "graders" / "program.yaml"
    number = len(yaml.safe_load(shipped.read_text(encoding="utf-8"))["languages"])
    word = NUMBER_WORDS[number]
    readme = PAGES[0].read_text(encoding="utf-8")
    tutorial = (ROOT / "docs/tutorials/program_tasks.md").read_text(encoding="utf-8")
    assert f"[{word} languages]" in readme
    assert f"OCaml, Rust; {number} by input and output" in readme
    assert f"[{word.capitalize()} languages]" in tutorial
