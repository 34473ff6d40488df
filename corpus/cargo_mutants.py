"""What `cargo mutants --list --json` would change in a crate, as edits. Applies and tests nothing.

cargo-mutants reads sources and starts `cargo metadata`; it is given the reference answers of tasks
only, without dependencies, and never runs tests here: mutants are graded in boxes like any answer.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from corpus.mutation import Edit
from gradus.errors import InternalFault

ENTRY = "src/lib.rs"
_MANIFEST = (
    '[package]\nname = "solution"\nversion = "0.1.0"\nedition = "{edition}"\n\n[workspace]\n'
)
_TIMEOUT_S = 120
_KINDS = {
    "FnValue": "function value",
    "BinaryOperator": "operator",
    "UnaryOperator": "operator",
    "MatchArm": "case",
    "MatchArmGuard": "condition",
    "StructField": "element",
}


def is_installed() -> bool:
    return shutil.which("cargo") is not None and shutil.which("cargo-mutants") is not None


class CargoMutants:
    """Needs `cargo-mutants` on PATH."""

    engine = "cargo-mutants"

    def edits(self, source: str, edition: str = "2021") -> list[Edit]:
        """Every edit of a library. Raises InternalFault when cargo-mutants fails."""
        with tempfile.TemporaryDirectory(prefix="gradus-mutants-") as name:
            folder = Path(name)
            (folder / "src").mkdir()
            (folder / "Cargo.toml").write_text(_MANIFEST.format(edition=edition))
            (folder / ENTRY).write_text(source)
            command = ["cargo", "mutants", "--list", "--json", "--dir", name]
            try:
                done = subprocess.run(
                    command, capture_output=True, text=True, check=False, timeout=_TIMEOUT_S
                )
            except subprocess.TimeoutExpired:
                raise InternalFault(f"cargo mutants did not end within {_TIMEOUT_S} s") from None
        if done.returncode != 0:
            raise InternalFault(
                f"cargo mutants failed: {done.stderr.strip()[-1000:]}", retryable=False
            )
        return edits_in(done.stdout, source)


def edits_in(listing: str, source: str) -> list[Edit]:
    """The edits of `source` in cargo-mutants' own JSON. Raises InternalFault for a form that we do
    not know."""
    try:
        said = json.loads(listing)
        return [_edit(one, source) for one in said if one["file"] == ENTRY]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        reason = f"{type(error).__name__}: {error}"
        message = (
            f"the listing of cargo-mutants is of a form that this version does not know: {reason}"
        )
        raise InternalFault(message, retryable=False) from None


def _edit(said: dict[str, Any], source: str) -> Edit:
    span = said["span"]
    start, end = (_offset(span[name], source) for name in ("start", "end"))
    genre, text = said["genre"], said["replacement"]
    if not (start <= end and isinstance(text, str) and isinstance(genre, str)):
        raise ValueError("a span ends before it starts, or a replacement is no text")
    return Edit(_KINDS.get(genre, genre), start, end, text)


def _offset(place: dict[str, Any], source: str) -> int:
    """Lines and columns count from 1; columns in characters."""
    line, column = place["line"], place["column"]
    lines = source.split("\n")
    if not (isinstance(line, int) and isinstance(column, int) and 1 <= line <= len(lines)):
        raise ValueError(f"line {line} of {len(lines)}")
    if not 1 <= column <= len(lines[line - 1]) + 1:
        raise ValueError(f"column {column} of line {line}")
    return sum(len(text) + 1 for text in lines[: line - 1]) + column - 1
