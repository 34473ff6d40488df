"""Each promise of docs/reliability.md names tests, and those tests exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TABLE = (
    (ROOT / "docs/reliability.md")
    .read_text()
    .split("| promise | test |\n|---|---|\n")[1]
    .split("\n\n")[0]
)
ROWS = re.findall(r"^\| (.+) \| (.+) \|$", TABLE, re.MULTILINE)


def test_every_promise_names_a_test_that_exists() -> None:
    assert len(ROWS) > 20
    for promise, tests in ROWS:
        names = re.findall(r"`([^`]*test_\w+[^`]*)`", tests)
        assert names, promise
        for name in names:
            file, _, function = (
                name.partition("::")
                if name.startswith("tests/")
                else ("tests/chaos/test_chaos.py", "", name)
            )
            assert (
                f"def {function}(" in (ROOT / file).read_text()
                if function
                else (ROOT / file).is_file()
            ), name
