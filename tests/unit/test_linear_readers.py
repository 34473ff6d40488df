"""Readers of what clients send do work in proportion to it."""

from __future__ import annotations

from pathlib import Path

import pytest

from gradus.integrations.openrlhf_query import extract_completion
from gradus.json_tokens import MAX_DEPTH
from gradus.row_reader import read_rows
from gradus.strict_json import parse_strict_json


def test_a_key_that_occurs_twice_among_many_is_found_at_once() -> None:
    keys = ",".join(f'"k{number}": 1' for number in range(150_000))
    with pytest.raises(ValueError, match="'k149999' occurs twice"):
        parse_strict_json(f'{{{keys}, "k149999": 2}}')


def test_many_end_tokens_are_taken_away_at_once() -> None:
    assert extract_completion("pa </s> " + "</s>" * 100_000 + " \n", "p") == "a "
    assert extract_completion("pa \n", "p") == "a \n"


def test_depth_is_bounded_and_brackets_in_texts_do_not_count() -> None:
    brackets = '"' + '\\"[' * 1000 + '"'
    assert parse_strict_json(brackets) == '"[' * 1000
    assert parse_strict_json("[" * MAX_DEPTH + "]" * MAX_DEPTH)
    with pytest.raises(ValueError, match="nested deeper"):
        parse_strict_json("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1))


@pytest.mark.parametrize(
    ("text", "bound"),
    [
        ("[" + "[]," * 200_000 + "1]", "more than 500000 strings, brackets"),
        (f'["{"x" * 12_000_001}"]', "a string of the JSON is longer than 12000000 bytes"),
    ],
)
def test_a_value_is_bounded(text: str, bound: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=bound):
        parse_strict_json(text)
    file = tmp_path / "rows.jsonl"
    file.write_text(f'{{"a": {text}}}\n{{"a": 1}}\n')
    first, second = read_rows(file)
    assert bound in (first.problem or "")
    assert second.values == {"a": 1}
