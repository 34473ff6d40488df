"""A real Chromium for tests of pages, wide or narrow, light or dark, and what it complains of.
Knows no page."""

from __future__ import annotations

import base64
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = (
    shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
)
DRIVER = shutil.which("chromedriver")
NEEDS_BROWSER = [
    pytest.mark.skipif(
        CHROMIUM is None or DRIVER is None,
        reason="needs a browser: apt-get install chromium chromium-driver",
    ),
    # Selenium leaves its log pipe to the garbage collector.
    pytest.mark.filterwarnings(
        "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
    ),
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


@contextmanager
def chromium(profile: Path) -> Iterator[Any]:
    """A browser with an empty profile."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    for argument in (*ARGUMENTS, f"--user-data-dir={profile}"):
        options.add_argument(argument)
    options.binary_location = CHROMIUM or ""
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    try:
        yield driver
    finally:
        driver.quit()


def opened(browser: Any, address: str, *, width: int = 1280, scheme: str = "light") -> list[str]:
    """Open a page; returns the addresses that it asked for."""
    browser.get("about:blank")  # what the page before still does and says is over
    browser.get_log("performance")
    browser.get_log("browser")
    colored(browser, scheme)
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.get(address)
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    asked = [
        message["params"]
        for message in messages
        if message["method"] == "Network.requestWillBeSent"
    ]
    # The browser's own start page may still be loading; only what this page asks for is its doing.
    return [
        request["request"]["url"]
        for request in asked
        if request["documentURL"] == address.partition("#")[0]
    ]


def opened_from_a_file(browser: Any, page: Path, **how: Any) -> list[str]:
    """Open a page; returns the addresses that it asked for, without the data that it holds
    itself."""
    return [url for url in opened(browser, page.as_uri(), **how) if not url.startswith("data:")]


def colored(browser: Any, scheme: str) -> None:
    """Make the system's colour scheme `light` or `dark`, also for the page that is open."""
    media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)


def drawn(browser: Any) -> None:
    """Wait until the browser has drawn twice, so that what follows a change of size is done."""
    browser.execute_async_script(
        "const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(done));"
    )


def errors(browser: Any) -> list[Any]:
    return [
        entry for entry in browser.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")
    ]


def picture(browser: Any, name: str) -> bytes:
    height = browser.execute_script("return document.documentElement.scrollHeight")
    width = browser.execute_script("return document.documentElement.clientWidth")
    clip = {"x": 0, "y": 0, "width": width, "height": min(height, 8000), "scale": 1}
    how = {"captureBeyondViewport": True, "optimizeForSpeed": True, "clip": clip}
    shot = browser.execute_cdp_cmd("Page.captureScreenshot", how)
    data = base64.b64decode(shot["data"])
    if SHOTS:
        Path(SHOTS).mkdir(parents=True, exist_ok=True)
        (Path(SHOTS) / f"{name}.png").write_bytes(data)
    return data


def flaws(browser: Any, name: str, width: int, picture_bytes: int = 5_000) -> list[str]:
    """What is wrong with the open page, light and dark: width, colours, names, motion, added
    elements, errors."""
    found = []
    for scheme in ("light", "dark"):
        colored(browser, scheme)
        if (wide := browser.execute_script("return document.documentElement.scrollWidth")) > width:
            found.append(f"{scheme}: it scrolls sideways: {wide} pixels")
        found += [
            f"{scheme}: {poor} is too near to its ground in colour"
            for poor in browser.execute_script(CONTRAST)
        ]
        if len(picture(browser, f"{name}-{scheme}-{width}")) < picture_bytes:
            found.append(f"{scheme}: the picture is nearly empty")
    found += [f"{bad} has no name" for bad in browser.execute_script(UNNAMED)]
    found += [f"{moving} moves" for moving in browser.execute_script(MOVING)]
    # An alert would be open now, and each of these calls would fail.
    found += [f"{foreign} was added to the page" for foreign in browser.execute_script(FOREIGN)]
    return found + [f"error: {entry['message']}" for entry in errors(browser)]


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
  if (!own || !element.checkVisibility() || element.closest("script, style, svg, .skip, .md-skip")) continue;
  const style = getComputedStyle(element);
  const [a, b] = [luminance(style.color), luminance(ground(element))];
  const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  const large = parseFloat(style.fontSize) >= 24;
  if (ratio < (large ? 3 : 4.5)) poor.push([element.tagName, element.className, ratio.toFixed(2)]);
}
return poor;
"""  # noqa: E501
"""JavaScript that lists the texts that are too near to their ground in colour."""

UNNAMED = """
const named = (e) => (e.getAttribute("aria-label") || e.textContent).trim() !== "";
const bad = [];
for (const e of document.querySelectorAll("svg, img, [role=img]"))
  if (!e.getAttribute("aria-label") && !e.closest("[aria-hidden=true]")) bad.push(e.outerHTML.slice(0, 80));
for (const e of document.querySelectorAll("a, summary, [tabindex], [role=slider], [role=region]"))
  if (!named(e)) bad.push(e.outerHTML.slice(0, 80));
for (const e of document.querySelectorAll("[aria-hidden=true] :is(a, button, [tabindex])")) bad.push(e.outerHTML);
return bad;
"""  # noqa: E501
"""JavaScript that lists what can be seen or focused and has no name."""

MOVING = """
return [...document.querySelectorAll("*")].filter((one) => {
  const style = getComputedStyle(one);
  return style.animationName !== "none" || parseFloat(style.transitionDuration) > 0;
}).map((one) => one.outerHTML.slice(0, 80));
"""
"""JavaScript that lists what moves."""

FOREIGN = """
const added = [...document.querySelectorAll("img, iframe, object, embed, [onload], [onerror]")];
const scripts = [...document.scripts].filter((one) => one.type !== "application/json");
return [...added, ...scripts.slice(1)].map((one) => one.outerHTML.slice(0, 80));
"""
"""JavaScript that lists what only the texts of a run could have put into one of our pages: they
have one script."""
