"""A spread of the Rust programs is judged by the grader as by real cargo; the script beside it compares all of them."""

from __future__ import annotations

import shutil

import pytest

from gradus.errors import Fault
from tests.e2e.rust_against_cargo import EXPLAINED, Compared, Ours, compare, lints_not_as_they_should_be
from tests.e2e.rust_programs import SOURCES, Program, missing_corpora, programs

EVERY = {"exercism": 20, "rustlings": 23, "tasks": 30, "lints": 20, "crates": 8, "editions": 8}
"""One program in so many of each source is judged here: about a minute of CPU in all."""


pytestmark = pytest.mark.timeout(900)  # half a minute of CPU is long on a machine that does much else


@pytest.fixture(scope="module")
def ours() -> Ours:
    if shutil.which("cargo") is None:
        pytest.skip("cargo is not installed (https://rustup.rs)")
    try:
        return Ours()
    except Fault as fault:
        pytest.skip(f"the Rust grader cannot start here: {fault.message}")


def sample(source: str) -> list[Program]:
    return list(programs(source))[:: EVERY[source]]


@pytest.fixture(scope="module")
def compared(ours: Ours) -> list[Compared]:
    return list(compare([program for source in SOURCES for program in sample(source)], ours))


@pytest.mark.slow
def test_the_grader_sees_what_cargo_sees(compared: list[Compared]) -> None:
    assert [text for one in compared for text in one.wrong] == []
    assert sum(one.cargo.passed for one in compared) > 10


@pytest.mark.slow
def test_lints_come_and_go_with_their_cause(compared: list[Compared]) -> None:
    assert list(lints_not_as_they_should_be(compared)) == []
    assert sum(one.program.source == "lints" for one in compared) > 5


@pytest.mark.slow
def test_the_corpora_are_part_of_the_sample(compared: list[Compared]) -> None:
    if absent := missing_corpora():
        pytest.skip(f"the corpora are not beside this checkout: {', '.join(absent)}")
    assert {"exercism", "rustlings", "editions"} <= {one.program.source for one in compared}


def test_reasons_are_given_for_programs_that_exist() -> None:
    if absent := missing_corpora():
        pytest.skip(f"the corpora are not beside this checkout: {', '.join(absent)}")
    assert EXPLAINED.keys() <= {program.id for source in SOURCES for program in programs(source)}
