"""The report of a test harness: authenticated lines -> how many of the expected tests passed. Reads
no other evidence.

A line counts only if it is whole and starts with the secret that was made for this run. A test
passed if it was reported as passed and never otherwise; without the end marker not all of them did.
Exit status and output of the program are not looked at.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from gradus.contract import TestCount

_BAD = {
    "fail": "failed an assertion",
    "raise": "ended with an exception",
    "stack": "ran out of stack",
    "step": "are code between the asserts, and it ended with an exception",
    "missing": "did not run to their end",
}
_REPORTED = frozenset({"ok", "fail", "raise", "stack"})
_LINE = re.compile(r"^([^ \n]++) ([^ \n]*+)(?: ([0-9]{1,9})(?: ([^ \n]*+))?)?$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class HarnessReport:
    started: bool
    """The harness ran: the box and the program were fine before any code of the answer had a
    turn."""
    tests: TestCount
    reasons: tuple[str, ...]
    """How the tests that did not pass ended, in numbers; nothing of their text."""
    too_long: bool = False
    """The harness stopped reporting because the report would have become longer than it may be."""
    forged: bool = False
    """The answer's process reported what the harness could not have."""
    passed: tuple[str, ...] = ()
    """Names of the tests that passed, where the harness says `name <number> <name>`."""
    failures: int = 0
    """Tests that were reported as not passed; code between the tests that raised counts as one."""
    got: tuple[str, ...] = ()
    """Values that are not the expected ones, in the harness's words; of runs of public tests
    only."""


def parse_test_report(report: bytes, secret: str, expected: int) -> HarnessReport:
    """`expected`: tests known before the run; a suite that is built while it runs may announce
    another number."""
    verdicts: dict[int, str] = {}
    skipped: set[int] = set()
    named: list[tuple[str, int, str]] = []
    words_seen: set[str] = set()
    complete_lines = report[: report.rfind(b"\n") + 1].decode(errors="replace")
    for line in _LINE.finditer(complete_lines):
        first, word, digits, name = line.groups()
        if first != secret:
            continue
        number = int(digits or 0)
        if name is not None:
            named.append((word, number, name))
        elif word in _REPORTED and verdicts.get(number, "ok") == "ok":
            verdicts[number] = word
        elif word == "plan":
            expected = number
        elif word == "skip":
            skipped.add(number)
        else:
            words_seen.add(word)
    # Code between the tests that raised counts as one failed test: it may have been meant as a
    # check.
    steps = ["step"] if "step" in words_seen else []
    counted = steps + [
        verdicts.get(number, "missing") for number in range(expected) if number not in skipped
    ]
    if "done" not in words_seen and counted.count("ok") == len(counted) > 0:
        # all were seen to pass, but one of them, run again, may have ended the program
        counted[-1] = "missing"
    numbers = {reason: counted.count(word) for word, reason in _BAD.items()}
    return HarnessReport(
        started="start" in words_seen,
        tests=TestCount(passed=counted.count("ok"), total=len(counted)),
        reasons=tuple(
            f"{number} of {len(counted)} tests {reason}"
            for reason, number in numbers.items()
            if number
        ),
        too_long="limit" in words_seen,
        forged="forged" in words_seen,
        passed=tuple(
            name for word, number, name in named if word == "name" and verdicts.get(number) == "ok"
        ),
        failures=len(steps) + sum(word != "ok" for word in verdicts.values()),
        got=tuple(name for word, _, name in named if word == "got"),
    )
