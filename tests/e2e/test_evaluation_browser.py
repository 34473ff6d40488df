"""The pages of `gradus eval` and `gradus compare` in a real browser: no errors, no network, labelled, two schemes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from browsing import CONTRAST, NEEDS_BROWSER, UNNAMED, errors, opened, picture
from evaluations_made_up import hostile_evaluation, rich_evaluation

from trainer.evaluate.comparison import compare
from trainer.evaluate.report.compared import write_comparison_report
from trainer.evaluate.report.evaluated import write_evaluation_report

pytestmark = NEEDS_BROWSER
PAGES = ("evaluation", "comparison")


def written(kind: str, out: Path, before: Any, after: Any) -> Path:
    if kind == "evaluation":
        return write_evaluation_report(*after, out)
    records = before[1], after[1]
    found = compare(before[0], after[0], records=records)
    return write_comparison_report(found, (before[0], after[0]), records, out)


@pytest.fixture(scope="module", params=PAGES)
def page(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Each of the pages, with what a real one looks like."""
    out = tmp_path_factory.mktemp("pages") / f"{request.param}.html"
    return written(request.param, out, rich_evaluation("before", 0.4), rich_evaluation("after", 0.6))


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_it_opens_from_a_file_without_errors_and_without_the_network(
    browser: Any, page: Path, width: int, scheme: str
) -> None:
    asked = opened(browser, page.as_uri(), width=width, scheme=scheme)
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
    assert len([url for url in asked if url.startswith("file:")]) == 1
    assert errors(browser) == []
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width, "it scrolls sideways"
    assert len(picture(browser, f"{page.stem}-{scheme}-{width}")) > 20_000
    assert browser.execute_script(CONTRAST) == []
    assert browser.execute_script(UNNAMED) == []


@pytest.mark.parametrize("kind", PAGES)
def test_hostile_evaluations_run_nothing(browser: Any, tmp_path: Path, kind: str) -> None:
    hostile = hostile_evaluation()
    report = written(kind, tmp_path / "hostile.html", hostile, hostile)
    asked = opened(browser, report.as_uri())
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
    assert errors(browser) == []
    # An alert would be open now, and asking the page anything would fail.
    assert browser.execute_script("return document.scripts.length") == 1
    assert browser.execute_script("return document.images.length") == 0
    assert "<img src=x onerror=alert(1)>" in browser.execute_script("return document.body.innerText")
    assert browser.execute_script("return document.documentElement.scrollWidth") <= 1280, "it scrolls sideways"
