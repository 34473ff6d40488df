"""The parser of JSON that others wrote: values in bodies and frames of adapters' clients, records
of files, and cells of data sets.

One text has one value: parsers differ on names that occur twice, NaN and infinite numbers, so these
are refused. Bounds are those of the API (`gradus.json_tokens`), checked before objects are made.
"""

from __future__ import annotations

import json
import math
from typing import Any

from gradus.errors import TooLarge
from gradus.json_tokens import MAX_DEPTH, MAX_VALUE_TOKENS, count_tokens

# Characters of a name or a number that a message repeats: they are the author's text.
_SHOWN_CHARS = 64


def parse_strict_json(text: str, max_tokens: int | None = MAX_VALUE_TOKENS) -> Any:
    """Return the value of a JSON text, in which half a surrogate pair is a character.

    Raises ValueError where it is none, has a number that is not finite, a name twice, a string
    longer than `MAX_STRING_BYTES`, or more than `MAX_DEPTH` levels or `max_tokens` tokens.
    """
    if len(text) > MAX_VALUE_TOKENS or text.count("[") + text.count("{") > MAX_DEPTH:
        try:
            count_tokens(text.encode(errors="surrogatepass"), max_tokens)
        except TooLarge as error:
            raise ValueError(str(error)) from None
    return json.loads(
        text,
        parse_constant=_parse_finite,
        parse_float=_parse_finite,
        object_pairs_hook=_refuse_twins,
    )


def _parse_finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:_SHOWN_CHARS]} is not a finite number")
    return value


def _refuse_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record: dict[str, Any] = {}
    for name, value in pairs:
        if name in record:
            raise ValueError(f"the key {name[:_SHOWN_CHARS]!r} occurs twice")
        record[name] = value
    return record
