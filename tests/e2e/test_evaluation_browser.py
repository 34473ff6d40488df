"""The pages of `gradus eval` and `gradus compare` in a real browser: no errors, no network, labelled, two schemes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from browser import NEEDS_BROWSER, flaws, opened_from_a_file
from sample_evaluations import rich_evaluation

from trainer.evaluate.comparison import compare
from trainer.evaluate.report.compared import write_comparison_report
from trainer.evaluate.report.evaluated import write_evaluation_report

pytestmark = NEEDS_BROWSER


@pytest.fixture(scope="module", params=["evaluation", "comparison"])
def page(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Each of the pages, with what a real one looks like."""
    out = tmp_path_factory.mktemp("pages") / f"{request.param}.html"
    before, after = rich_evaluation("before", 0.4), rich_evaluation("after", 0.6)
    if request.param == "evaluation":
        return write_evaluation_report(*after, out)
    sides, records = (before[0], after[0]), (before[1], after[1])
    return write_comparison_report(compare(*sides, records=records), sides, records, out)


@pytest.mark.parametrize("width", [1280, 390])
def test_it_opens_from_a_file_without_flaws_and_without_the_network(browser: Any, page: Path, width: int) -> None:
    assert opened_from_a_file(browser, page, width=width) == [page.as_uri()]
    assert flaws(browser, page.stem, width, 20_000) == []
