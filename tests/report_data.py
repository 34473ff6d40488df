"""What a report holds: the data inside the file."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any


def report_data(page: Path) -> dict[str, Any]:
    """All of it: answers by address, where the page starts, its title, when it was made."""
    [text] = re.findall(
        '<script type="application/json" id="data">(.*?)</script>', page.read_text(encoding="utf-8")
    )
    return dict(json.loads(text))


def answer_in(page: Path, path: str) -> dict[str, Any]:
    """The answer at an address, such as `/api/run`."""
    [found] = [
        answer
        for key, answer in report_data(page)["answers"].items()
        if key.partition("&")[0] == path
    ]
    return dict(found)


def tasks_by_title(groups: list[dict[str, Any]]) -> dict[str, list[str]]:
    """Of the groups of completions, the tasks of their cards."""
    found = {}
    for group in groups:
        found[group["title"]] = [card["task"] for card in group["cards"]]
    return found
