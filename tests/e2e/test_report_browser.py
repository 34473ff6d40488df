"""The report in a real browser, from a file: no errors, no network, all labelled, wide and narrow, light and dark."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
from browser import NEEDS_BROWSER, colored, errors, flaws
from browser import opened_from_a_file as opened
from report_runs import hostile_run, rich_run, tiny_run

from trainer.evaluate.report import write_report

pytestmark = NEEDS_BROWSER


@pytest.fixture(scope="module")
def rich(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = rich_run(tmp_path_factory.mktemp("runs") / "rich")
    return write_report(run, run / "report.html")


@pytest.mark.parametrize("width", [1280, 390])
def test_it_opens_from_a_file_without_flaws_and_without_the_network(browser: Any, rich: Path, width: int) -> None:
    assert opened(browser, rich, width=width) == [rich.as_uri()]
    assert flaws(browser, "report", width, 20_000) == []
    for scheme in ("light", "dark"):
        colored(browser, scheme)
        ground = browser.execute_script("return getComputedStyle(document.documentElement).backgroundColor")
        assert (sum(map(int, ground[4:-1].split(","))) > 3 * 128) is (scheme == "light")


def test_curves_can_be_read_with_the_keyboard(browser: Any, rich: Path) -> None:
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    opened(browser, rich)
    chart = browser.find_element(By.CSS_SELECTOR, "figure.large")
    canvas = chart.find_element(By.CSS_SELECTOR, "[role=slider]")
    canvas.send_keys(Keys.HOME)
    assert canvas.get_attribute("aria-valuetext").startswith("step 1: reward 0.")
    canvas.send_keys(Keys.ARROW_RIGHT)
    assert chart.find_element(By.CSS_SELECTOR, ".readout").text.startswith("step 2: reward 0.")


def test_it_prints_with_everything_opened(browser: Any, rich: Path) -> None:
    opened(browser, rich)
    closed = "return document.querySelectorAll('details:not([open])').length"
    assert browser.execute_script(closed) > 0
    browser.execute_script("dispatchEvent(new Event('beforeprint'))")
    assert browser.execute_script(closed) == 0
    printed = browser.execute_cdp_cmd("Page.printToPDF", {"printBackground": True})
    assert base64.b64decode(printed["data"]).startswith(b"%PDF")


def test_hostile_completions_run_nothing(browser: Any, tmp_path: Path) -> None:
    run = hostile_run(tmp_path / "hostile")
    report = write_report(run, run / "report.html")
    assert opened(browser, report) == [report.as_uri()]
    assert flaws(browser, "hostile", 1280) == []
    assert "<img src=x onerror=alert(1)>" in browser.execute_script("return document.body.innerText")


def test_what_a_run_wrote_could_not_run_even_unescaped(browser: Any, tmp_path: Path) -> None:
    run = tiny_run(tmp_path / "tiny")
    report = write_report(run, run / "report.html")
    attack = "<img src='data:,x' onerror=\"document.title='fooled'\"><script>document.title='fooled'</script></main>"
    report.write_text(report.read_text().replace("</main>", attack))
    opened(browser, report)
    assert "fooled" not in browser.title
    assert any("Content Security Policy" in entry["message"] for entry in errors(browser))


def test_an_empty_run_is_readable_too(browser: Any, tmp_path: Path) -> None:
    opened(browser, write_report(tmp_path, tmp_path / "report.html"), width=390)
    assert flaws(browser, "empty", 390) == []
    assert "was not measured" in browser.execute_script("return document.body.innerText")
