"""Pages of the documentation: links lead somewhere, and reference pages have everything that the
code has. `make docs` checks the anchors of pages that are made of code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, get_args

from pydantic import BaseModel

from gradus.errors import FaultKind
from trainer.config.stages import STAGES

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs" / "reference"
TEXTS = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *ROOT.glob("examples/*/README.md")]
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
MADE_OF_CODE = re.compile(r"^(:::|<!--|\[OAD)", re.MULTILINE)


def find_anchors(text: str) -> set[str]:
    """Return the anchors of a page's headings, as both the site and code hosts make them."""
    headings = re.findall(r"^#+ +(.+)$", text, re.MULTILINE)
    words = [re.sub(r"[^\w\s-]", "", heading).strip().lower() for heading in headings]
    return {re.sub(r"[ -]+", "-", heading) for heading in words}


def find_dead_links(page: Path) -> Iterator[str]:
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    for link in LINK.findall(re.sub(r"`[^`\n]*`", "", text)):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if "://" in link or anchor in ("only-light", "only-dark"):
            continue
        if not target.exists():
            yield link
        elif anchor:
            there = FENCE.sub("", target.read_text(encoding="utf-8"))
            if anchor not in find_anchors(there) and not MADE_OF_CODE.search(there):
                yield link


def test_every_link_of_a_page_leads_somewhere() -> None:
    dead = {str(page.relative_to(ROOT)): list(find_dead_links(page)) for page in TEXTS}
    assert {page: links for page, links in dead.items() if links} == {}


def test_dead_links_are_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# One thing\n[a](#one-thing) [b](#another) [c](gone.md) `[d](gone.md)`")
    assert list(find_dead_links(page)) == ["#another", "gone.md"]


def find_sections(annotation: Any) -> Iterator[type[BaseModel]]:
    """Yield the models of a configuration, those inside of others included."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
        for field in annotation.model_fields.values():
            yield from find_sections(field.annotation)
    for part in get_args(annotation):
        yield from find_sections(part)


SHOWN = re.compile(r"^(?::::|<!-- generated: fields) ([\w.]+)", re.MULTILINE)
"""A class or function that a reference page shows."""


def test_what_the_reference_names_is_there_and_every_section_of_a_run_is_named() -> None:
    named = []
    for page in REFERENCE.glob("*.md"):
        paths = SHOWN.findall(page.read_text(encoding="utf-8"))
        named += [resolve_name(path) for path in paths]
    for stage in STAGES.values():
        assert [kind for kind in find_sections(stage) if kind not in named] == []


FLAG = re.compile(
    r'"((?:degenerate|forged|story|think|meaning|extract|compiler|forbidden|limit|preference):[a-z_]+)"'
)


def test_the_page_of_results_has_every_fault_flag_and_exit_code() -> None:
    page = (REFERENCE / "results.md").read_text(encoding="utf-8")
    sources = [*(ROOT / "services").rglob("*.py"), ROOT / "gradus" / "extract.py"]
    flags: set[str] = set()
    for path in sources:
        flags.update(FLAG.findall(path.read_text(encoding="utf-8")))
    assert len(flags) > 15
    patterns = ("forbidden:", "limit:")
    assert {
        flag for flag in flags if f"`{flag}`" not in page and not flag.startswith(patterns)
    } == set()
    assert [kind for kind in FaultKind if f"| `{kind}` |" not in page] == []
    assert [
        code for code in (0, 1, 2, 3, 4, 130) if not re.search(rf"^\| {code}\b", page, re.MULTILINE)
    ] == []
