"""What counts as proof: whole lines with the run's secret. Everything else a program writes proves
nothing."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gradus.contract import TestCount
from services.graders.base.harness_report import HarnessReport, parse_test_report

SECRET = "5f" * 16


def report(*lines: str, secret: str = SECRET) -> bytes:
    return b"".join(f"{secret} {line}\n".encode() for line in lines)


def counts(proof: HarnessReport) -> tuple[int, int]:
    return proof.tests.passed, proof.tests.total


ALL_PASSED = report("start", "ok 0", "ok 1", "ok 2", "done")


def test_tests_that_were_reported_as_passed_have_passed() -> None:
    assert parse_test_report(ALL_PASSED, SECRET, 3) == HarnessReport(
        started=True, tests=TestCount(passed=3, total=3), reasons=()
    )


def test_a_test_that_was_not_reported_has_not_passed() -> None:
    proof = parse_test_report(report("start", "ok 0", "ok 2", "done"), SECRET, 3)
    assert counts(proof) == (2, 3)
    assert proof.reasons == ("1 of 3 tests did not run to their end",)


def test_a_test_that_failed_once_has_failed_whatever_else_was_said_of_it() -> None:
    assert counts(parse_test_report(report("start", "ok 0", "fail 0", "done"), SECRET, 1)) == (0, 1)
    assert counts(parse_test_report(report("start", "raise 0", "ok 0", "done"), SECRET, 1)) == (
        0,
        1,
    )


def test_a_test_that_was_not_expected_earns_nothing() -> None:
    assert counts(parse_test_report(report("start", "ok 0", "ok 7", "done"), SECRET, 2)) == (1, 2)


def test_nothing_reported_means_nothing_passed() -> None:
    proof = parse_test_report(b"", SECRET, 4)
    assert (proof.started, counts(proof)) == (False, (0, 4))


def test_without_the_end_marker_not_all_tests_have_passed() -> None:
    assert counts(parse_test_report(report("start", "ok 0", "ok 1"), SECRET, 2)) == (1, 2)
    assert counts(parse_test_report(report("start", "ok 0"), SECRET, 1)) == (0, 1)


def test_without_the_end_marker_what_passed_before_a_test_that_did_not_still_counts() -> None:
    assert counts(parse_test_report(report("start", "ok 1", "ok 2"), SECRET, 3)) == (2, 3)
    assert counts(parse_test_report(report("start", "fail 0", "ok 1"), SECRET, 2)) == (1, 2)


def test_a_line_that_was_cut_off_does_not_count() -> None:
    whole = report("start", "ok 0", "ok 1", "done")
    assert counts(parse_test_report(whole[:-1], SECRET, 2)) == (1, 2)


def test_a_suite_announces_how_many_tests_it_has() -> None:
    assert counts(
        parse_test_report(report("start", "plan 3", "ok 0", "ok 1", "fail 2", "done"), SECRET, 1)
    ) == (2, 3)
    assert counts(
        parse_test_report(report("start", "plan 1", "ok 0", "plan 2", "ok 1", "done"), SECRET, 1)
    ) == (2, 2)


def test_skipped_tests_are_not_counted() -> None:
    assert counts(
        parse_test_report(report("start", "plan 3", "ok 0", "skip 1", "ok 2", "done"), SECRET, 1)
    ) == (2, 2)


def test_how_tests_ended_is_told_in_numbers() -> None:
    proof = parse_test_report(
        report("start", "fail 0", "raise 1", "stack 2", "raise 3", "done"), SECRET, 5
    )
    assert proof.reasons == (
        "1 of 5 tests failed an assertion",
        "2 of 5 tests ended with an exception",
        "1 of 5 tests ran out of stack",
        "1 of 5 tests did not run to their end",
    )


def test_the_secret_of_another_run_proves_nothing() -> None:
    proof = parse_test_report(report("start", "ok 0", "done", secret="a0" * 16), SECRET, 1)
    assert (proof.started, counts(proof)) == (False, (0, 1))


WORDS = st.sampled_from(
    [
        "start",
        "ok 0",
        "ok 1",
        "fail 0",
        "done",
        "plan 9",
        "skip 1",
        "ok -1",
        "ok 1.5",
        "ok 99999999999",
    ]
)
FORGED = st.one_of(
    st.binary(max_size=120),
    WORDS.map(lambda word: f"{SECRET[:-1]} {word}\n".encode()),
    WORDS.map(lambda word: f"{SECRET}{word}\n".encode()),
    WORDS.map(lambda word: f" {SECRET} {word}\n".encode()),
    WORDS.map(lambda word: f"{SECRET} {word} more\n".encode()),
    WORDS.map(lambda word: f"{SECRET.upper()} {word}\n".encode()),
    WORDS.map(lambda word: f"{word}\n".encode()),
    st.sampled_from(["ok", "ok x", "ok \u0661", "ok  0", "OK 0", "passed 0", "ok 0 0", ""]).map(
        lambda word: f"{SECRET} {word}\n".encode()
    ),
).filter(lambda forged: forged != f"{SECRET} ok\n".encode())


@given(st.lists(FORGED, max_size=8))
def test_garbage_and_forgeries_never_raise_and_never_add_a_pass(forged: list[bytes]) -> None:
    honest = report("start", "ok 0", "fail 1", "done").splitlines(keepends=True)
    noise = b"".join(piece if piece.endswith(b"\n") else piece + b"\n" for piece in forged)
    for place in range(len(honest) + 1):
        mixed = b"".join(honest[:place]) + noise + b"".join(honest[place:])
        assert counts(parse_test_report(mixed, SECRET, 3)) == (1, 3)


@given(st.binary(max_size=300), st.integers(0, 20))
def test_what_has_no_secret_proves_nothing_at_all(noise: bytes, expected: int) -> None:
    proof = parse_test_report(noise, SECRET, expected)
    assert (proof.started, counts(proof)) == (False, (0, expected))


@given(st.integers(0, len(ALL_PASSED)))
def test_of_a_report_that_was_cut_anywhere_only_whole_lines_count(length: int) -> None:
    proof = parse_test_report(ALL_PASSED[:length], SECRET, 3)
    assert proof.tests.passed <= ALL_PASSED[:length].count(b"\n")
    assert (proof.tests.passed == 3) == (length == len(ALL_PASSED))


@given(st.binary(min_size=1, max_size=40).filter(lambda junk: b"\n" not in junk))
def test_junk_before_a_line_voids_that_line_and_no_other(junk: bytes) -> None:
    lines = report("start", "ok 0", "ok 1", "done").splitlines(keepends=True)
    lines[1] = junk + lines[1]
    assert counts(parse_test_report(b"".join(lines), SECRET, 2)) in {(1, 2), (2, 2)}
