"""Values of an answer as Rust writes them, from the canonical text of `harness/value.rs`."""

from __future__ import annotations

import re
import struct

from gradus.tasks.rust import RustTask

_SIMPLE_STRING = re.compile(r"[ !#-\[\]-~]*")
_WRAPPERS = {"S": "Some", "K": "Ok", "E": "Err"}
_ORDERINGS = {"-1": "Less", "0": "Equal", "1": "Greater"}


def value_text(task: RustTask, word: str) -> str | None:
    """The value; None where its type is not of the standard library, or its text of another form.

    `word` is the canonical text in hexadecimal digits. It comes from the answer's process, so it
    may be anything.
    """
    try:
        words = bytes.fromhex(word).decode("latin-1").split()[::-1]
        text = _written(words)
    except (ValueError, KeyError, IndexError, OverflowError, struct.error, RecursionError):
        return None
    return text if not words else None


def _written(words: list[str]) -> str:
    """The value that the last words are the beginning of; they are removed. Raises what
    `value_text` expects."""
    word = words.pop()
    kind = word[0]
    rest = word[1:]
    match kind:
        case "i":
            return str(int(rest))
        case "b":
            return ("false", "true")[int(rest)]
        case "f":
            return repr(struct.unpack(">f", struct.pack(">I", int(rest, 16)))[0])
        case "d":
            return repr(struct.unpack(">d", struct.pack(">Q", int(rest, 16)))[0])
        case '"':
            return f'"{_simple(bytes.fromhex(rest).decode())}"'
        case "c":
            return f"'{_simple(chr(int(rest)))}'"
        case "o":
            return _ORDERINGS[rest]
        case "N":
            return "None"
        case "S" | "K" | "E":
            return f"{_WRAPPERS[kind]}({_written(words)})"
        case "[":
            return f"[{_listed(words, rest)}]"
        case "{":
            return f"{{{_listed(words, rest)}}}"
        case "(":
            return f"({_listed(words, rest)})"
    raise ValueError(f"no canonical text begins with {kind!r}")


def _listed(words: list[str], number: str) -> str:
    if not number.isdecimal():
        raise ValueError("not a length")
    return ", ".join(_written(words) for _ in range(int(number)))


def _simple(text: str) -> str:
    if not _SIMPLE_STRING.fullmatch(text):
        raise ValueError("not plain text")
    return text
