"""The report in a real browser, from a file: no errors, no network, all labelled, wide and narrow, light and dark."""

from __future__ import annotations

import base64
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from report_runs import hostile_run, rich_run, tiny_run

from trainer.evaluate.report import write_report

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        CHROMIUM is None or DRIVER is None,
        reason="needs a browser: apt-get install chromium chromium-driver",
    ),
    # Selenium leaves its log pipe to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]

ARGUMENTS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)
SHOTS = os.environ.get("GRADUS_REPORT_SHOTS")
"""A folder to keep the pictures in, for looking at them."""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    for argument in (*ARGUMENTS, f"--user-data-dir={tmp_path_factory.mktemp('chromium')}"):
        options.add_argument(argument)
    options.binary_location = CHROMIUM or ""
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def rich(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = rich_run(tmp_path_factory.mktemp("runs") / "rich")
    return write_report(run, run / "report.html")


def opened(browser: Any, report: Path, *, width: int = 1280, scheme: str = "light") -> list[str]:
    """Open the report; returns the addresses that the page asked for."""
    browser.get_log("performance")
    browser.get_log("browser")
    media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.get(report.as_uri())
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    asked = [message["params"] for message in messages if message["method"] == "Network.requestWillBeSent"]
    # The browser's own start page may still be loading; only what the report asks for is the report's doing.
    return [request["request"]["url"] for request in asked if request["documentURL"] == report.as_uri()]


def errors(browser: Any) -> list[Any]:
    return [entry for entry in browser.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]


def picture(browser: Any, name: str) -> bytes:
    height = browser.execute_script("return document.documentElement.scrollHeight")
    width = browser.execute_script("return document.documentElement.clientWidth")
    clip = {"x": 0, "y": 0, "width": width, "height": min(height, 8000), "scale": 1}
    shot = browser.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True, "clip": clip})
    data = base64.b64decode(shot["data"])
    if SHOTS:
        Path(SHOTS).mkdir(parents=True, exist_ok=True)
        (Path(SHOTS) / f"{name}.png").write_bytes(data)
    return data


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_it_opens_from_a_file_without_errors_and_without_the_network(
    browser: Any, rich: Path, width: int, scheme: str
) -> None:
    asked = opened(browser, rich, width=width, scheme=scheme)
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
    assert len([url for url in asked if url.startswith("file:")]) == 1
    assert errors(browser) == []
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width, "it scrolls sideways"
    assert len(picture(browser, f"report-{scheme}-{width}")) > 20_000
    ground = browser.execute_script("return getComputedStyle(document.documentElement).backgroundColor")
    assert (sum(map(int, ground[4:-1].split(","))) > 3 * 128) is (scheme == "light")


CONTRAST = """
const luminance = (color) => {
  const [r, g, b] = color.match(/[0-9.]+/g).map(Number).map((v) => v / 255)
    .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const ground = (element) => {
  for (let at = element; at; at = at.parentElement) {
    const color = getComputedStyle(at).backgroundColor;
    if (!color.startsWith("rgba(0, 0, 0, 0")) return color;
  }
  return "rgb(255, 255, 255)";
};
const poor = [];
for (const element of document.querySelectorAll("body *")) {
  const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
  if (!own || !element.checkVisibility() || element.closest("script, style, svg, .skip")) continue;
  const style = getComputedStyle(element);
  const [a, b] = [luminance(style.color), luminance(ground(element))];
  const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  const large = parseFloat(style.fontSize) >= 24;
  if (ratio < (large ? 3 : 4.5)) poor.push([element.tagName, element.className, ratio.toFixed(2)]);
}
return poor;
"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_stands_out_from_its_ground(browser: Any, rich: Path, scheme: str) -> None:
    opened(browser, rich, scheme=scheme)
    assert browser.execute_script(CONTRAST) == []


UNNAMED = """
const named = (e) => (e.getAttribute("aria-label") || e.textContent).trim() !== "";
const bad = [];
for (const e of document.querySelectorAll("svg, img, [role=img]"))
  if (!e.getAttribute("aria-label") && !e.closest("[aria-hidden=true]")) bad.push(e.outerHTML.slice(0, 80));
for (const e of document.querySelectorAll("a, summary, [tabindex], [role=slider], [role=region]"))
  if (!named(e)) bad.push(e.outerHTML.slice(0, 80));
for (const e of document.querySelectorAll("[aria-hidden=true] :is(a, button, [tabindex])")) bad.push(e.outerHTML);
return bad;
"""


def test_everything_that_can_be_seen_or_focused_has_a_name(browser: Any, rich: Path) -> None:
    opened(browser, rich)
    assert browser.execute_script(UNNAMED) == []


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
    asked = opened(browser, write_report(run, run / "report.html"))
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
    assert errors(browser) == []
    # An alert would be open now, and asking the page anything would fail.
    assert browser.execute_script("return document.scripts.length") == 1
    assert browser.execute_script("return document.images.length") == 0
    assert "<img src=x onerror=alert(1)>" in browser.execute_script("return document.body.innerText")
    picture(browser, "hostile")


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
    assert errors(browser) == []
    assert "was not measured" in browser.execute_script("return document.body.innerText")
    picture(browser, "empty")
