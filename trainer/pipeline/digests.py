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
from trainer.pipeline.stages import Stage, find_references

Inputs = dict[str, str | None]


def compute_digest(path: Path) -> str:
    """Hash a file's bytes, or the names and bytes of a folder's files, whatever their depth. Raises
    Misuse if it is unreadable."""
    if path.is_dir():
        return _merge_digests(compute_file_digests(path))
    return _compute_file_digest(path)


def compute_file_digests(path: Path) -> dict[str, str]:
    """Hash each file in a folder, in the order of their names; of a file only itself."""
    if not path.is_dir():
        return {path.name: _compute_file_digest(path)}
    return _compute_digests(path, path.rglob("*"))


def compute_named_digest(text: str) -> str | None:
    """Hash the file or folder that a text names; None for anything else, such as a name on a
    hub."""
    try:
        path = Path(text)
        return compute_digest(path) if text and path.exists() else None
    except (OSError, ValueError):
        return None


def compute_run_digest(folder: str) -> str | None:
    """Hash the records of a run: checkpoints below may be a hundred gigabytes, and never change
    without them. None if there is no such folder."""
    if Path(folder).is_dir():
        return _merge_digests(compute_record_digests(Path(folder)))
    return None


def compute_record_digests(folder: Path) -> dict[str, str]:
    """Hash each file of a folder, but none of those in its folders."""
    return _compute_digests(folder, folder.glob("*"))


def collect_inputs(
    raw_stage: Stage, ready: Stage, places: Mapping[tuple[str, str], Path]
) -> Inputs:
    """Hash everything that a stage reads; None for what is no file.

    `raw_stage` still has `{name.output}`, `ready` has paths in their place.
    """
    refs = list(find_references(raw_stage.model_dump()))
    runs = {str(places[ref]) for ref in refs if ref[1] == "run"}
    names = dict.fromkeys([*ready.list_inputs(), *(str(places[ref]) for ref in refs)])
    digests = {}
    for name in names:
        if name in runs:
            digests[name] = compute_run_digest(name)
        else:
            digests[name] = compute_named_digest(name)
    return digests


def fingerprint(raw_stage: Stage, inputs: Inputs) -> str:
    """Hash a stage's settings and what it reads. Only contents count: files that were moved are no
    change."""
    counted = {"settings": raw_stage.model_dump(mode="json"), "inputs": list(inputs.values())}
    return _compute_sha256(json.dumps(counted, sort_keys=True))


def _compute_digests(folder: Path, paths: Iterable[Path]) -> dict[str, str]:
    files = sorted(path for path in paths if path.is_file() and path.name != ".lock")
    return {str(path.relative_to(folder)): _compute_file_digest(path) for path in files}


def _merge_digests(files: Mapping[str, str]) -> str:
    return _compute_sha256("".join(f"{name}\0{digest}\n" for name, digest in files.items()))


def _compute_file_digest(path: Path) -> str:
    try:
        stat = path.stat()
        return _compute_cached_digest(path.absolute(), stat.st_size, stat.st_mtime_ns)
    except OSError as error:
        raise Misuse(f"{path}: cannot be read: {error.strerror}") from None


@cache
def _compute_cached_digest(path: Path, size: int, changed_ns: int) -> str:
    """Read a file; once in this process while its size and time of change stay the same."""
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def _compute_sha256(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()
