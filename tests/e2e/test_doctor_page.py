"""The page of `gradus tasks doctor` in a browser: what is accepted is what is saved."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from corpus.doctor_page import render_doctor_page
from corpus.task_doctor import diagnose
from gradus.row_reader import Row
from tests.browser import NEEDS_BROWSER, chromium, drawn, flaws, opened_from_a_file

pytestmark = NEEDS_BROWSER
SPRINTS = [
    {"id": "usable", "prompt": "Write stories.", "references": ["keep a basket for later"]},
    {"id": "twice", "sprint_goal": "Guests choose", "references": ["read the menu online"]},
    {"id": "again", "sprint_goal": "Guests choose", "references": ["order by phone"]},
    {"id": "other", "sprint_goal": "<img src=x onerror=alert(1)>", "references": ["see orders"]},
    {"id": "empty", "sprint_goal": "Cooks rest"},
]


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with chromium(tmp_path_factory.mktemp("profile")) as started:
        yield started


@pytest.fixture
def page(tmp_path: Path) -> Path:
    return write_page(tmp_path, [Row(f"mine.jsonl:{n}", row) for n, row in enumerate(SPRINTS, 1)])


def write_page(folder: Path, rows: list[Row]) -> Path:
    file = folder / "doctor.html"
    weak = ["" for _ in rows]
    weak[0] = "1 of 4 broken solutions pass all tests"
    text = render_doctor_page("mine.jsonl", "story", list(diagnose(rows, "story", None)), weak)
    file.write_text(text, encoding="utf-8")
    return file


def press(browser: Any, text: str) -> None:
    buttons = browser.find_elements("tag name", "button")
    next(each for each in buttons if each.text.startswith(text)).click()


def save(browser: Any, folder: Path, button: str, name: str) -> list[dict[str, Any]]:
    behaviour = {"behavior": "allow", "downloadPath": str(folder)}
    browser.execute_cdp_cmd("Browser.setDownloadBehavior", behaviour)
    press(browser, button)
    file = folder / name
    for _ in range(200):
        if file.exists():
            break
        time.sleep(0.05)
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def test_what_is_accepted_is_saved_and_nothing_is_lost(browser: Any, page: Path) -> None:
    assert opened_from_a_file(browser, page) == [page.as_uri()]
    assert "4 of 5 rows can be used" in browser.find_element("tag name", "h2").text
    boxes = browser.find_elements("css selector", "input[type=checkbox]")
    assert len(boxes) == 2, "a row that is joined goes with its keeper"
    boxes[0].click()
    tasks = save(browser, page.parent, "Save 2 tasks", "mine.tasks.jsonl")
    assert [task["id"] for task in tasks] == ["usable", "twice"]
    assert tasks[1]["references"] == ["read the menu online", "order by phone"]
    others = save(browser, page.parent, "Save the other 2 rows", "mine.rejected.jsonl")
    assert [other["row"] for other in others] == SPRINTS[3:]
    press(browser, "Accept none")
    assert browser.find_elements("css selector", "input:checked") == []
    press(browser, "Accept all")
    assert len(browser.find_elements("css selector", "input:checked")) == 2


@pytest.mark.parametrize("width", [400, 800, 1280])
def test_the_page_has_no_flaws_with_everything_open(browser: Any, page: Path, width: int) -> None:
    opened_from_a_file(browser, page, width=width)
    browser.execute_script(
        "for (const one of document.querySelectorAll('details')) one.open = true"
    )
    drawn(browser)
    assert flaws(browser, "doctor", width) == []


def test_a_long_file_is_shown_in_parts(browser: Any, tmp_path: Path) -> None:
    goals = [{"id": f"g{n}", "sprint_goal": f"Goal {n}"} for n in range(120)]
    page = write_page(tmp_path, [Row(f"mine.jsonl:{n}", row) for n, row in enumerate(goals, 1)])
    opened_from_a_file(browser, page)
    assert len(browser.find_elements("tag name", "article")) == 50
    press(browser, "Show more")
    assert len(browser.find_elements("tag name", "article")) == 100
