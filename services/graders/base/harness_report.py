"""The report of a test harness: authenticated lines -> how many of the expected tests passed. Reads no other evidence.

A line counts only if it is whole and starts with the secret that was made for this run. A test passed if it was
reported as passed and never otherwise; without the end marker not all of them did. Exit status and output of the
program are not looked at.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gradus.contract import TestCount

_BAD = {
    "fail": "failed an assertion",
    "raise": "ended with an exception",
    "stack": "ran out of stack",
    "step": "are code between the asserts, and it ended with an exception",
}


@dataclass(frozen=True, slots=True)
class HarnessReport:
    started: bool
    """The harness ran: the box and the program were fine before any code of the answer had a turn."""
    finished: bool
    tests: TestCount
    reasons: tuple[str, ...]
    """How the tests that did not pass ended, in numbers; nothing of their text."""
    too_long: bool = False
    """The harness stopped reporting because the report would have become longer than it may be."""
    passed: tuple[str, ...] = ()
    """Names of the tests that passed, where the harness says `name <number> <name>`."""


def parse_test_report(report: bytes, secret: str, expected: int) -> HarnessReport:
    """`expected`: tests known before the run; a suite that is built while it runs may announce another number."""
    verdicts: dict[int, str] = {}
    skipped: set[int] = set()
    planned = expected
    words_seen: set[str] = set()
    for word, number in _lines(report, secret):
        words_seen.add(word)
        if word == "plan":
            planned = number
        elif word == "skip":
            skipped.add(number)
        elif word == "ok" or (word in _BAD and word != "step"):
            verdicts[number] = word if verdicts.get(number, "ok") == "ok" else verdicts[number]
    # Code between the tests that raised is as good as one failed test: whoever wrote it may have meant a check.
    steps = ["step"] if "step" in words_seen else []
    counted = steps + [verdicts.get(number, "missing") for number in range(planned) if number not in skipped]
    finished = "done" in words_seen
    if not finished and counted.count("ok") == len(counted) > 0:
        counted[-1] = "missing"  # all were seen to pass, but one of them, run again, may have ended the program
    return HarnessReport(
        started="start" in words_seen,
        finished=finished,
        tests=TestCount(passed=counted.count("ok"), total=len(counted)),
        reasons=tuple(_reasons(counted)),
        too_long="limit" in words_seen,
        passed=tuple(name for number, name in _names(report, secret) if verdicts.get(number) == "ok"),
    )


def _lines(report: bytes, secret: str) -> Iterator[tuple[str, int]]:
    for parts in _believed(report, secret):
        if len(parts) in (1, 2):
            number = parts[1] if len(parts) == 2 else "0"
            if _is_number(number):
                yield parts[0], int(number)


def _names(report: bytes, secret: str) -> Iterator[tuple[int, str]]:
    for parts in _believed(report, secret):
        if len(parts) == 3 and parts[0] == "name" and _is_number(parts[1]):
            yield int(parts[1]), parts[2]


def _believed(report: bytes, secret: str) -> Iterator[list[str]]:
    """The words of whole lines that start with the secret."""
    whole = report[: report.rfind(b"\n") + 1].decode(errors="replace")
    for line in whole.split("\n"):
        first, *parts = line.split(" ")
        if first == secret:
            yield parts


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 9


def _reasons(counted: list[str]) -> Iterator[str]:
    for word, text in {**_BAD, "missing": "did not run to their end"}.items():
        if number := counted.count(word):
            yield f"{number} of {len(counted)} tests {text}"
