"""The broker's Lua scripts are files: documented, each used, and free of values that Python has
filled in."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from services.broker.streams import scripts
from services.broker.streams.scripts import LUA, Script

SCRIPTS = [value for value in vars(scripts).values() if type(value) is Script]
PRELUDES = {
    "history": ("note(", "uncount_lapse("),
    "bound": ("find_full_bound(",),
    "runs": ("enter(", "leave(", "drop("),
}
"""What a script calls that begins with the file."""


def test_every_file_is_a_script_or_joined_in_front_of_one() -> None:
    files = {file.stem for file in LUA.iterdir()}
    assert files == {script.name for script in SCRIPTS} | PRELUDES.keys() | {"partition"}


def test_every_script_looks_first_whether_its_slot_moves() -> None:
    text = (LUA / "partition.lua").read_text("utf-8")
    assert [script.name for script in SCRIPTS if not script.body.startswith(text)] == []


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_every_script_is_used(script: Script) -> None:
    sources = [
        file for file in Path(scripts.__file__).parent.glob("*.py") if file.name != "scripts.py"
    ]
    assert any(
        re.search(rf"\b{script.name.upper()}\b", file.read_text("utf-8")) for file in sources
    )


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_the_header_lists_the_keys_and_arguments_that_the_script_uses_and_its_reply(
    script: Script,
) -> None:
    text = (LUA / f"{script.name}.lua").read_text("utf-8")
    header, _, code = text.partition("\n\n")
    listed: dict[str, set[int]] = {"KEYS": set(), "ARGV": set()}
    of = ""
    for line in header.splitlines():
        assert line.startswith("--"), line
        named, colon, _ = line[3:].partition(":")
        of = named if colon and re.fullmatch("[A-Z][A-Za-z]+", named) else of
        if of in listed:
            listed[of] |= {
                int(number)
                for number in re.findall(r"(?:^-- (?:KEYS|ARGV)?:? *|  |, )(\d+)\b", line)
            }
    assert "-- Reply: " in header
    for table, numbers in listed.items():
        assert {int(number) for number in re.findall(rf"{table}\[(\d+)\]", code)} <= numbers, table


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
@pytest.mark.parametrize("prelude", PRELUDES)
def test_a_script_has_a_prelude_where_it_calls_it(script: Script, prelude: str) -> None:
    text = (LUA / f"{script.name}.lua").read_text("utf-8")
    calls = any(function in text for function in PRELUDES[prelude])
    assert ((LUA / f"{prelude}.lua").read_text("utf-8") in script.body) == calls
