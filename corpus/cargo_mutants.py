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
from gradus.errors import InternalFault, boundary

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
    """Mutations by `cargo-mutants` on PATH."""

    engine = "cargo-mutants"

    def edits(self, source: str, edition: str = "2021") -> list[Edit]:
        """Return every edit of a library. Raises InternalFault when cargo-mutants fails."""
        with tempfile.TemporaryDirectory(prefix="gradus-mutants-") as name:
            folder = Path(name)
            (folder / "src").mkdir()
            (folder / "Cargo.toml").write_text(_MANIFEST.format(edition=edition))
            (folder / ENTRY).write_text(source)
            command = ["cargo", "mutants", "--list", "--json", "--dir", name]
            with boundary(InternalFault, "cargo mutants"):
                done = subprocess.run(
                    command, capture_output=True, text=True, check=False, timeout=_TIMEOUT_S
                )
        if done.returncode != 0:
            raise InternalFault(
                f"cargo mutants failed: {done.stderr.strip()[-1000:]}", retryable=False
            )
        return edits_in(done.stdout, source)


def edits_in(listing: str, source: str) -> list[Edit]:
    """Return the edits of `source` in cargo-mutants' own JSON. Raises InternalFault for a form that
    this version does not know."""
    try:
        return [_edit(one, source) for one in json.loads(listing) if one["file"] == ENTRY]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        message = "the listing of cargo-mutants is of a form that this version does not know"
        raise InternalFault(
            f"{message}: {type(error).__name__}: {error}", retryable=False
        ) from None


def _edit(mutant: dict[str, Any], source: str) -> Edit:
    start, end = (_offset(mutant["span"][name], source) for name in ("start", "end"))
    if not 0 <= start <= end <= len(source):
        raise ValueError("a span ends before it starts, or behind the file")
    return Edit(_KINDS.get(mutant["genre"], mutant["genre"]), start, end, mutant["replacement"])


def _offset(place: dict[str, int], source: str) -> int:
    """Return the offset of a place, whose line and column count from 1, columns in characters."""
    before = source.split("\n")[: place["line"] - 1]
    return sum(len(line) + 1 for line in before) + place["column"] - 1
