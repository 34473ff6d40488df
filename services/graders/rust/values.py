"""Values of an answer as Rust writes them, from the canonical text of `harness/value.rs`."""

from __future__ import annotations

import re
import struct

from gradus.tasks.rust import RustTask

_SIMPLE_STRING = re.compile(r"[ !#-\[\]-~]*")
_WRAPPERS = {"S": "Some", "K": "Ok", "E": "Err"}
_CLOSING = {"[": "]", "{": "}", "(": ")"}
_ORDERINGS = {"-1": "Less", "0": "Equal", "1": "Greater"}


def value_text(task: RustTask, word: str) -> str | None:
    """Return the value; None where its type is not of the standard library, or its text of another
    form.

    `word` is the canonical text in hexadecimal digits. It comes from the answer's process, so it
    may be anything.
    """
    try:
        words = bytes.fromhex(word).decode("latin-1").split()[::-1]
        text = _render_value(words)
    except (ValueError, KeyError, IndexError, OverflowError, struct.error, RecursionError):
        return None
    return text if not words else None


def _render_value(words: list[str]) -> str:
    """Return the value that the last words are the beginning of; they are removed. Raises what
    `value_text` expects."""
    word = words.pop()
    kind = word[0]
    payload = word[1:]
    match kind:
        case "i":
            return str(int(payload))
        case "b":
            return ("false", "true")[int(payload)]
        case "f":
            return repr(struct.unpack(">f", struct.pack(">I", int(payload, 16)))[0])
        case "d":
            return repr(struct.unpack(">d", struct.pack(">Q", int(payload, 16)))[0])
        case '"':
            return f'"{_require_plain(bytes.fromhex(payload).decode())}"'
        case "c":
            return f"'{_require_plain(chr(int(payload)))}'"
        case "o":
            return _ORDERINGS[payload]
        case "N":
            return "None"
        case "S" | "K" | "E":
            return f"{_WRAPPERS[kind]}({_render_value(words)})"
        case "[" | "{" | "(":
            if not payload.isdecimal():
                raise ValueError("not a length")
            parts = [_render_value(words) for _ in range(int(payload))]
            return f"{kind}{', '.join(parts)}{_CLOSING[kind]}"
    raise ValueError(f"no canonical text begins with {kind!r}")


def _require_plain(text: str) -> str:
    if not _SIMPLE_STRING.fullmatch(text):
        raise ValueError("not plain text")
    return text
