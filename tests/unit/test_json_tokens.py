"""Tokens of JSON texts are counted as a parser finds them, wherever chunks end."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradus import json_tokens
from gradus.errors import TooLarge
from gradus.json_tokens import MAX_DEPTH, count_tokens

TEXTS = st.text(st.sampled_from('\\"[]{},:ax\n\u00e9\ud83d'), max_size=12)
VALUES = st.recursive(
    st.none() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=20,
)


def count_parsed(value: Any) -> int:
    """Return the tokens of a value's text: strings, brackets, commas and colons."""
    if isinstance(value, str):
        return 1
    if isinstance(value, list):
        return 2 + max(len(value) - 1, 0) + sum(map(count_parsed, value))
    if isinstance(value, dict):
        return 2 + max(len(value) - 1, 0) + 2 * len(value) + sum(map(count_parsed, value.values()))
    return 0


@given(VALUES, st.integers(1, 30))
def test_tokens_are_those_that_a_parser_finds(value: Any, chunk_bytes: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_tokens, "CHUNK_BYTES", chunk_bytes)
        assert count_tokens(json.dumps(value).encode()) == count_parsed(value)
        text = json.dumps(value, ensure_ascii=False).encode(errors="surrogatepass")
        assert count_tokens(text) == count_parsed(value)


def test_the_limit_is_inclusive_and_depth_is_bounded() -> None:
    assert count_tokens(b'["[[[[", 1]', 4) == 4
    with pytest.raises(TooLarge, match="more than 3 strings"):
        count_tokens(b'["[[[[", 1]', 3)
    deepest = b"[" * MAX_DEPTH + b"]" * MAX_DEPTH
    assert count_tokens(deepest + deepest)
    with pytest.raises(ValueError, match="nested deeper"):
        count_tokens(b"[" + deepest + b"]")
