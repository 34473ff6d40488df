"""Decisions on pages, in a real browser: one colour per outcome, green for what passed alone, the
grader's first figure as the headline, words in place of codes, and tables that show that they
scroll."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from browser import NEEDS_BROWSER, drawn, flaws
from browser import opened_from_a_file as opened
from report_runs import comparison_page, empty_run, failing_run, huge_run, rich_run, story_run
from sample_evaluations import rich_evaluation, stored

from trainer.evaluate.report import write_report

pytestmark = NEEDS_BROWSER
RUNS: dict[str, Callable[[Path], Path]] = {
    "failing": failing_run,
    "stories": story_run,
    "empty": empty_run,
    "huge": huge_run,
    "rich": rich_run,
}
WIDTHS = (400, 800, 1280)
GREEN = "part-2"
CODES = re.compile(r"\b(types|tests|check|clippy|degenerate|story|limit|forbidden):\w")


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("decisions")
    return {
        name: write_report(make(folder / name), folder / f"{name}.html")
        for name, make in RUNS.items()
    } | {"comparison": compare_evaluations(folder)}


def compare_evaluations(folder: Path) -> Path:
    """Write the page of two evaluations, which has the widest tables."""
    sides = [
        stored(folder / "sides" / name, *rich_evaluation(name, level))
        for name, level in (("before", 0.4), ("after", 0.6))
    ]
    return comparison_page(sides[0], sides[1], folder / "comparison.html")


def read_text(browser: Any, page: Path, **how: Any) -> str:
    """All that a page says, closed parts too."""
    opened(browser, page, **how)
    drawn(browser)
    browser.execute_script(
        "document.querySelectorAll('details:not(.figures)').forEach((one) => (one.open = true))"
    )
    return re.sub(r"\s+", " ", browser.execute_script("return document.body.innerText"))


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("kind", [name for name in RUNS if name != "rich"])
def test_runs_at_the_edges_have_no_flaws(
    browser: Any, pages: dict[str, Path], kind: str, width: int
) -> None:
    opened(browser, pages[kind], width=width)
    drawn(browser)
    assert flaws(browser, f"edge-{kind}", width) == []


def list_outcome_colours(browser: Any) -> dict[str, str]:
    """Return the colour of each outcome in the table of how completions ended."""
    rows: list[list[str]] = browser.execute_script(
        """
        const rows = document.querySelectorAll("[aria-labelledby=ends] tbody tr");
        return [...rows].map((row) => [
          row.querySelector("th").textContent,
          [...row.querySelector(".fill").classList].find((one) => one.startsWith("part-")),
        ]);
        """
    )
    return {name: colour for name, colour in rows}


def test_a_run_in_which_all_fails_shows_nothing_green(browser: Any, pages: dict[str, Path]) -> None:
    opened(browser, pages["failing"])
    assert list_outcome_colours(browser) == {"stopped at the type check": "part-1"}


def test_an_outcome_has_one_colour_on_all_pages(browser: Any, pages: dict[str, Path]) -> None:
    seen: dict[str, set[str]] = {}
    for kind in ("failing", "huge", "rich"):
        opened(browser, pages[kind])
        for name, colour in list_outcome_colours(browser).items():
            seen.setdefault(name, set()).add(colour)
    assert {name: colours for name, colours in seen.items() if len(colours) > 1} == {}
    green = {name for name, colours in seen.items() if GREEN in colours}
    assert green == {"passed"}
    assert len(seen) > 4


def test_a_chart_of_one_outcome_names_it(browser: Any, pages: dict[str, Path]) -> None:
    opened(browser, pages["failing"])
    drawn(browser)
    legends = browser.execute_script(
        """
        const figures = [...document.querySelectorAll("figure")];
        const chart = figures.find((one) => one.textContent.includes("Where answers stop"));
        return [...chart.querySelectorAll(".legend li")].map((one) => one.textContent);
        """
    )
    assert legends == ["stopped at the type check"]


def test_a_part_of_the_reward_has_the_colour_of_its_stage(
    browser: Any, pages: dict[str, Path]
) -> None:
    opened(browser, pages["rich"])
    drawn(browser)
    keys = browser.execute_script(
        """
        const keys = [...document.querySelectorAll("[aria-label='Parts of the reward'] li")];
        return keys.map((one) => [one.textContent.split(" ")[0], one.querySelector(".key").classList[1]]);
        """  # noqa: E501
    )
    outcomes = list_outcome_colours(browser)
    colours: dict[str, set[str]] = {}
    for name, colour in keys:
        colours.setdefault(name, set()).add(colour)
    assert colours == {
        "types": {outcomes["stopped at the type check"]},
        "tests": {outcomes["stopped at the tests"]},
    }


def test_the_headline_of_stories_is_their_mean_reward(browser: Any, pages: dict[str, Path]) -> None:
    text = read_text(browser, pages["stories"])
    headline = browser.find_element("css selector", ".headline").text
    assert headline == "The mean reward on 12 held-out tasks rose from 0.218 to 0.519."
    assert "Held-out mean reward" in text
    assert "pass@1" in text, "the pass rate is among the further figures"
    assert "rose from 0.0%" not in text


def test_the_headline_of_code_is_its_pass_rate(browser: Any, pages: dict[str, Path]) -> None:
    opened(browser, pages["failing"])
    headline = browser.find_element("css selector", ".headline").text
    assert headline == "fresh:qwen3 passes 0.0% of 2 held-out tasks."


@pytest.mark.parametrize("kind", ["failing", "stories", "huge", "rich", "comparison"])
def test_pages_show_words_and_no_codes_of_graders(
    browser: Any, pages: dict[str, Path], kind: str
) -> None:
    text = read_text(browser, pages[kind])
    settings = browser.execute_script(
        "return document.getElementById('settings')?.innerText ?? document.title"
    )
    shown = text.replace(re.sub(r"\s+", " ", settings), "")
    assert CODES.findall(shown) == []


def test_a_table_that_is_wider_than_a_phone_says_that_it_scrolls(
    browser: Any, pages: dict[str, Path]
) -> None:
    marked = """
      const open = [...document.querySelectorAll(".scroll")].filter((one) => one.checkVisibility());
      const hint = (one) => getComputedStyle(one, "::before").content;
      const wide = open.filter((one) => one.scrollWidth > one.clientWidth + 1);
      return [wide.length, open.filter((one) => wide.includes(one) !== hint(one).includes("croll")).length];
    """  # noqa: E501
    read_text(browser, pages["comparison"], width=400)
    drawn(browser)
    wide, wrong = browser.execute_script(marked)
    assert wide > 0
    assert wrong == 0
    last = """
      const one = [...document.querySelectorAll(".scroll.overflows")].find((one) => one.checkVisibility());
      one.scrollLeft = one.scrollWidth;
      return new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() =>
        done(getComputedStyle(one, "::before").content))));
    """  # noqa: E501
    assert "Scroll back" in browser.execute_script(last)
    read_text(browser, pages["comparison"], width=1280)
    drawn(browser)
    assert browser.execute_script(marked)[1] == 0
