"""The documentation site: it builds strictly, needs nothing from the network, fits phones, and its
search finds."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.browser import CONTRAST, NEEDS_BROWSER, SHOTS, chromium, errors, opened, picture

pytestmark = [pytest.mark.slow, *NEEDS_BROWSER]
ROOT = Path(__file__).parents[2]
PAGES = (
    "index.html",
    "tutorials/first_submission.html",
    "reference/rest.html",
    "reference/cli.html",
    "reference/training_configuration.html",
    "reference/python.html",
    "reference/metrics.html",
)


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None: ...


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the built site."""
    pytest.importorskip("mkdocs", reason="needs the extra docs: make docs")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert built.returncode == 0, built.stderr
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(("width", "scheme"), [(400, "light"), (800, "dark"), (1280, "light")])
def test_pages_fit_and_load_nothing_from_elsewhere(
    site: str, tmp_path: Path, width: int, scheme: str
) -> None:
    with chromium(tmp_path) as browser:
        for page in PAGES:
            asked = opened(browser, f"{site}/{page}", width=width, scheme=scheme)
            assert [url for url in asked if not url.startswith((site, "data:"))] == []
            wide = browser.execute_script("return document.documentElement.scrollWidth")
            assert wide <= width, f"{page} scrolls sideways: {wide} of {width} pixels"
            shown = browser.execute_script("return document.body.dataset.mdColorScheme")
            assert shown == {"light": "default", "dark": "slate"}[scheme]
            assert errors(browser) == []
            if SHOTS:
                picture(browser, f"{page.replace('/', '-')}-{scheme}-{width}")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_of_the_start_page_are_legible(site: str, tmp_path: Path, scheme: str) -> None:
    with chromium(tmp_path) as browser:
        opened(browser, f"{site}/index.html", scheme=scheme)
        found = browser.execute_script(CONTRAST)
        assert [
            poor for poor in found if "md-search-result" not in poor[1]
        ] == []  # the closed search covers nothing


def test_search_finds_a_flag_without_a_network(site: str, tmp_path: Path) -> None:
    from selenium.webdriver.common.by import By
    from selenium.webdriver.support.ui import WebDriverWait

    with chromium(tmp_path) as browser:
        opened(browser, f"{site}/index.html")
        browser.find_element(By.CSS_SELECTOR, "input.md-search__input").send_keys(
            "degenerate repetition"
        )
        found = (By.CSS_SELECTOR, ".md-search-result__item")
        WebDriverWait(browser, 60).until(lambda open_page: open_page.find_elements(*found))
        assert (
            "Faults, flags and exit codes"
            in browser.find_element(By.CSS_SELECTOR, ".md-search-result").text
        )
