"""The number of tokens and the depth of a JSON text, counted before a parser makes objects of it.

A list of empty lists takes 3 bytes for each, and 64 bytes in memory: the size of a text does not
bound what it becomes. Counting takes less time than parsing, and the memory of one chunk.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate

from gradus.errors import TooLarge

MAX_DEPTH = 100
"""Levels of lists and objects in one JSON text: what follows recurses over them."""
MAX_TOKENS = 2_000_000
"""Tokens of one request. One of 4,096 programs with 40 short cases each has 1.7 million."""
MAX_VALUE_TOKENS = 500_000
"""Tokens of one value that a parser reads at once, such as a record of a file."""
MAX_STRING_BYTES = 12_000_000
"""Longest string: 1,000,000 characters are a text at most, and escapes take 12 bytes for each."""
CHUNK_BYTES = 16 * 1024
_STRUCTURE = b"[]{},:"
_BESIDE_STRUCTURE = bytes(set(range(256)) - set(_STRUCTURE))
_LEVELS = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}


def count_tokens(data: bytes, limit: int | None = None, n_before: int = 0) -> int:
    """Return the number of strings, brackets, commas and colons of a JSON text, plus `n_before`.

    Raises ValueError for more than `MAX_DEPTH` levels, and TooLarge for more than `limit` tokens
    and for a string longer than `MAX_STRING_BYTES`.
    A text that is no JSON may get any count: its parser refuses it.
    """
    n_tokens = n_before
    depth = 0
    is_inside = False  # whether the next chunk begins inside a string
    n_inside = 0  # bytes since the last quote
    for chunk in mask_escapes(data):
        parts = chunk.split(b'"')
        n_inside += len(parts[0])
        if is_inside and n_inside > MAX_STRING_BYTES:
            raise TooLarge(f"a string of the JSON is longer than {MAX_STRING_BYTES} bytes")
        if len(parts) > 1:
            n_inside = len(parts[-1])
        structure = b"".join(parts[is_inside::2]).translate(None, _BESIDE_STRUCTURE)
        n_tokens += len(structure) + (len(parts) - is_inside) // 2
        is_inside ^= len(parts) % 2 == 0
        if limit is not None and n_tokens > limit:
            raise TooLarge(
                f"the JSON has more than {limit} strings, brackets, commas and colons; divide it"
                " into several"
            )
        brackets = structure.translate(None, b",:")
        depths = list(accumulate(map(_LEVELS.__getitem__, brackets), initial=depth))
        depth = depths[-1]
        if max(depths) > MAX_DEPTH:
            raise ValueError(f"it is nested deeper than {MAX_DEPTH} levels")
    return n_tokens


def mask_escapes(data: bytes) -> Iterator[bytes]:
    """Yield the chunks of a JSON text with `_` for escaped quotes and backslashes, so that each
    quote begins or ends a string. No byte moves."""
    is_escaped = False  # whether the next chunk's first byte is
    for start in range(0, len(data), CHUNK_BYTES):
        chunk = data[start : start + CHUNK_BYTES]
        if is_escaped:
            chunk = b"_" + chunk[1:]
        if b"\\" in chunk:
            chunk = chunk.replace(rb"\\", b"__").replace(rb"\"", b"__")
        is_escaped = chunk.endswith(b"\\")
        yield chunk
