"""A spread of the Rust programs is judged by the grader as by real cargo; the script beside it
compares all of them."""

from __future__ import annotations

import shutil
from itertools import chain

import pytest

from gradus.errors import Fault
from tests.e2e.rust_against_cargo import (
    EXPLAINED,
    Compared,
    Ours,
    compare,
    lints_not_as_they_should_be,
)
from tests.e2e.rust_programs import SOURCES, missing_corpora, programs

EVERY = {"exercism": 20, "rustlings": 23, "tasks": 30, "lints": 20, "crates": 8, "editions": 8}
"""One program in so many of each source is judged here: about a minute of CPU in all."""

PARTS = {"the first of each source": slice(1), "the others": slice(1, None)}

pytestmark = pytest.mark.timeout(
    900
)  # half a minute of CPU is long on a machine that does much else


@pytest.fixture(scope="module")
def ours() -> Ours:
    if shutil.which("cargo") is None:
        pytest.skip("cargo is not installed (https://rustup.rs)")
    try:
        return Ours()
    except Fault as fault:
        pytest.skip(f"the Rust grader cannot start here: {fault.message}")


@pytest.fixture(
    scope="module", params=[[*PARTS][0], pytest.param([*PARTS][1], marks=pytest.mark.slow)]
)
def compared(ours: Ours, request: pytest.FixtureRequest) -> list[Compared]:
    first, *_ = PARTS
    # building the crates takes most of the time: `make test-slow` compares programs that use them
    sources = [name for name in SOURCES if name != "crates" or request.param != first]
    chosen = [list(programs(name))[:: EVERY[name]][PARTS[request.param]] for name in sources]
    return list(compare(chain.from_iterable(chosen), ours))


def test_the_grader_sees_what_cargo_sees(compared: list[Compared]) -> None:
    assert [text for one in compared for text in one.wrong] == []
    assert sum(one.cargo.passed for one in compared) > 5
    absent = (
        {"crates"} if not missing_corpora() else {"crates", "exercism", "rustlings", "editions"}
    )
    assert {one.program.source for one in compared} >= {*SOURCES} - absent


def test_lints_come_and_go_with_their_cause(compared: list[Compared]) -> None:
    assert list(lints_not_as_they_should_be(compared)) == []


def test_reasons_are_given_for_programs_that_exist() -> None:
    if absent := missing_corpora():
        pytest.skip(f"the corpora are not beside this checkout: {', '.join(absent)}")
    assert EXPLAINED.keys() <= {program.id for source in SOURCES for program in programs(source)}
