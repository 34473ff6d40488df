"""Pages of the documentation: links lead somewhere, and reference pages have everything that the
code has."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from typer.main import get_command

from deploy.site.reference_pages import (
    COPIED,
    PAGES,
    STAGES,
    cli_page,
    field_docstrings,
    keys_of,
    rest_page,
)
from gradus.cli import application
from gradus.errors import FaultKind
from services.api.app import create_app
from services.api.settings import ApiSettings
from services.broker.memory import MemoryBroker

ROOT = Path(__file__).parents[2]
TEXTS = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *ROOT.glob("examples/*/README.md")]
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)")
ON_THE_SITE = {(ROOT / "docs" / name).resolve() for name in (*PAGES, *COPIED)}


def _anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as both the site and code hosts make them."""
    text = re.sub(
        r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE
    )
    headings = re.findall(r"^#+ +(.+)$", text, re.MULTILINE)
    return {
        re.sub(r"[ -]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower())
        for heading in headings
    }


def _dead_links(page: Path) -> Iterator[str]:
    text = re.sub(
        r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE
    )
    for found in LINK.finditer(re.sub(r"`[^`\n]*`", "", text)):
        link = found[1] or found[2]
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if "://" in link or target in ON_THE_SITE or anchor in ("only-light", "only-dark"):
            continue
        if not target.exists() or (anchor and anchor not in _anchors(target)):
            yield link


@pytest.mark.parametrize("page", TEXTS, ids=[str(page.relative_to(ROOT)) for page in TEXTS])
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    assert list(_dead_links(page)) == []


def test_dead_links_are_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# One thing\n[a](#one-thing) [b](#another) [c](gone.md) `[d](gone.md)`")
    assert list(_dead_links(page)) == ["#another", "gone.md"]


def _leaves(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    inner = getattr(command, "commands", None)
    if inner is None and not command.hidden:
        yield path, command
    for name, one in (inner or {}).items():
        yield from _leaves(one, f"{path} {name}")


def test_the_page_of_the_command_line_has_every_command_and_option() -> None:
    sections = dict(re.findall(r"^## (gradus .+)\n((?:(?!^## ).*\n?)*)", cli_page(), re.MULTILINE))
    commands = dict(_leaves(get_command(application()), "gradus"))
    assert sections.keys() == commands.keys()
    for path, command in commands.items():
        options = [
            one for one in command.params if one.param_type_name == "option" and not one.hidden
        ]
        assert [one.name for one in options if one.opts[0] not in sections[path]] == []


def _keys(kind: type[BaseModel]) -> Iterator[str]:
    for name, value in kind.model_json_schema()["properties"].items():
        yield name if "$ref" not in value else f"{name}."


@pytest.mark.parametrize("kind", [*STAGES.values(), ApiSettings], ids=lambda kind: kind.__name__)
def test_every_key_of_a_configuration_has_a_row(kind: type[BaseModel]) -> None:
    rows = [key.strip("`") for key, *_ in keys_of(kind)]
    assert [name for name in _keys(kind) if not any(row.startswith(name) for row in rows)] == []
    assert len(rows) == len(set(rows))


def test_rows_of_keys_have_type_default_and_meaning() -> None:
    rows = {key: rest for key, *rest in keys_of(STAGES["grpo` and `rloo"])}
    assert rows["`reward.fault_budget.share`"][:2] == ["number ≥ 0 ≤ 1", "`0.25`"]
    assert rows["`reward.services[].grader`"][1] == "required"
    assert "null" in rows["`turns`"][1]
    assert all(text for key, text in field_docstrings(ApiSettings).items()), (
        "a field's docstring is empty"
    )


def test_the_page_of_the_rest_api_has_every_route_and_schema() -> None:
    document, page = create_app(MemoryBroker(), ApiSettings()).openapi(), rest_page()
    routes = [
        f"## {method.upper()} `{path}`"
        for path, methods in document["paths"].items()
        for method in methods
    ]
    schemas = [f"### {name}" for name in document["components"]["schemas"]]
    assert [heading for heading in (*routes, *schemas) if f"\n{heading}\n" not in page] == []
    assert (
        "| `packages` | list of string | `[]` | findlib packages that the answer and the tests may"
        " use. |" in page
    )


FLAG = re.compile(
    r'"((?:degenerate|forged|story|think|meaning|extract|compiler|forbidden|limit|preference):[a-z_]+)"'
)


def test_the_page_of_results_has_every_fault_flag_and_exit_code() -> None:
    page = (ROOT / "docs" / "reference" / "results.md").read_text(encoding="utf-8")
    sources = [*(ROOT / "services").rglob("*.py"), ROOT / "gradus" / "extract.py"]
    flags = {flag for path in sources for flag in FLAG.findall(path.read_text(encoding="utf-8"))}
    assert len(flags) > 15
    patterns = ("forbidden:", "limit:")
    assert {
        flag for flag in flags if f"`{flag}`" not in page and not flag.startswith(patterns)
    } == set()
    assert [kind for kind in FaultKind if f"| `{kind}` |" not in page] == []
    assert [
        code for code in (0, 1, 2, 3, 4, 130) if not re.search(rf"^\| {code}\b", page, re.MULTILINE)
    ] == []
