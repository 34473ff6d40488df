"""A Chromium that all tests of pages in one process share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from browser import chromium


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with chromium(tmp_path_factory.mktemp("chromium")) as driver:
        yield driver
