"""docs/reference/: generated parts equal the code, and no link of the documentation leads nowhere,
on a forge neither."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from deploy.site.reference import COMMAND, FOLDER, PAGES, make_anchor, write_page

ROOT = Path(__file__).parents[2]
DOCS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+\.md)?(?:#([^)\s]+))?\)")
FENCED = re.compile(r"^( *)(```|~~~).*?^\1\2", re.DOTALL | re.MULTILINE)
OF_PLUG_INS = re.compile(r"^(::: |\[OAD)|\{% include |\{ #", re.MULTILINE)
"""What only mkdocs reads."""


@pytest.mark.parametrize("name", PAGES)
def test_a_page_equals_the_code(name: str) -> None:
    page = (FOLDER / f"{name}.md").read_text()
    assert page == write_page(page), f"write docs/reference/{name}.md anew: {COMMAND}"


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_readable_where_no_plug_in_runs(name: str) -> None:
    page = (FOLDER / f"{name}.md").read_text()
    assert OF_PLUG_INS.findall(page) == []
    assert len(re.findall(r"^\| `", page, re.MULTILINE)) > 20, "tables with a row per name"
    rows = [line for line in FENCED.sub("", page).splitlines() if line.startswith("|")]
    assert [row for row in rows if not row.endswith("|")] == []


def list_anchors(file: Path) -> set[str]:
    """Return the anchors of a page's headings."""
    text = FENCED.sub("", file.read_text())
    return {make_anchor(line.lstrip("#")) for line in text.splitlines() if line.startswith("#")}


@pytest.mark.parametrize("file", DOCS, ids=lambda file: str(file.relative_to(ROOT)))
def test_links_lead_to_files_and_headings_of_the_checkout(file: Path) -> None:
    dead = []
    for target, anchor in LINK.findall(FENCED.sub("", file.read_text())):
        page = (file.parent / target).resolve() if target else file
        if target.startswith("http"):
            continue
        if not page.exists() or (anchor and anchor not in list_anchors(page)):
            dead.append(f"{target}#{anchor}")
    assert dead == []
