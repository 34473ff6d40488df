"""SHA-256 of what a stage reads, and of its settings with it: when that hash changes, the stage
runs again. Writes nothing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

from gradus.errors import Misuse
from trainer.pipeline.stages import Stage, references

Inputs = dict[str, str | None]


def digest_of(path: Path) -> str:
    """Hash a file's bytes, or the names and bytes of a folder's files, whatever their depth. Raises
    Misuse if it is unreadable."""
    return _of_all(files_in(path)) if path.is_dir() else _of_file(path)


def files_in(path: Path) -> dict[str, str]:
    """Hash each file in a folder, in the order of their names; of a file only itself."""
    if not path.is_dir():
        return {path.name: _of_file(path)}
    return _of_files(path, path.rglob("*"))


def digest_of_named(text: str) -> str | None:
    """Hash the file or folder that a text names; None for anything else, such as a name on a
    hub."""
    try:
        path = Path(text)
        return digest_of(path) if text and path.exists() else None
    except (OSError, ValueError):
        return None


def digest_of_run(folder: str) -> str | None:
    """Hash the records of a run: checkpoints below may be a hundred gigabytes, and never change
    without them. None if there is no such folder."""
    return _of_all(records_in(Path(folder))) if Path(folder).is_dir() else None


def records_in(folder: Path) -> dict[str, str]:
    """Hash each file of a folder, but none of those in its folders."""
    return _of_files(folder, folder.glob("*"))


def inputs_of(written: Stage, ready: Stage, places: Mapping[tuple[str, str], Path]) -> Inputs:
    """Hash everything that a stage reads; None for what is no file.

    `written` still has `{name.output}`, `ready` has paths in their place.
    """
    found = list(references(written.model_dump()))
    runs = {str(places[one]) for one in found if one[1] == "run"}
    names = dict.fromkeys([*ready.reads(), *(str(places[one]) for one in found)])
    return {name: digest_of_run(name) if name in runs else digest_of_named(name) for name in names}


def fingerprint(written: Stage, inputs: Inputs) -> str:
    """Hash a stage's settings and what it reads. Only contents count: files that were moved are no
    change."""
    counted = {"settings": written.model_dump(mode="json"), "inputs": list(inputs.values())}
    return _sha256(json.dumps(counted, sort_keys=True))


def _of_files(folder: Path, paths: Iterable[Path]) -> dict[str, str]:
    files = sorted(path for path in paths if path.is_file() and path.name != ".lock")
    return {str(path.relative_to(folder)): _of_file(path) for path in files}


def _of_all(files: Mapping[str, str]) -> str:
    return _sha256("".join(f"{name}\0{digest}\n" for name, digest in files.items()))


def _of_file(path: Path) -> str:
    try:
        found = path.stat()
        return _of_contents(path.absolute(), found.st_size, found.st_mtime_ns)
    except OSError as error:
        raise Misuse(f"{path}: cannot be read: {error.strerror}") from None


@cache
def _of_contents(path: Path, size: int, changed_ns: int) -> str:
    """Read a file; once in this process while its size and time of change stay the same."""
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()
