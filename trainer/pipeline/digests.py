"""SHA-256 of what a stage reads, and of its settings with it: when that hash changes, the stage
runs again.

A file that was read is not read again while its size and its time of change stay the same. Writes
nothing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from gradus.errors import Misuse
from trainer.pipeline.stages import Stage, references

Seen = dict[str, tuple[int, int, str]]
Inputs = dict[str, str | None]


class Digests:
    """Remembers what it has read; `seen` can be kept and given again."""

    def __init__(self, seen: Seen | None = None) -> None:
        self.seen: Seen = {} if seen is None else seen

    def of(self, path: Path) -> str:
        """Hash of a file's bytes, or of the names and bytes of a folder's files. Raises Misuse if
        it is unreadable."""
        return _of_all(self.files(path)) if path.is_dir() else self._file(path)

    def files(self, folder: Path) -> dict[str, str]:
        """Each file in a folder, whatever its depth, in the order of their names; of a file only
        itself."""
        if not folder.is_dir():
            return {folder.name: self._file(folder)}
        return self._of_files(folder, folder.rglob("*"))

    def shallow(self, folder: str) -> str | None:
        """Hash of the files directly in a folder; None if there is no such folder."""
        path = Path(folder)
        return _of_all(self._of_files(path, path.glob("*"))) if path.is_dir() else None

    def named(self, text: str) -> str | None:
        """Hash of the file or folder that a text names; None for anything else, such as a name on a
        hub."""
        try:
            path = Path(text)
            return self.of(path) if text and path.exists() else None
        except (OSError, ValueError):
            return None

    def inputs(
        self, written: Stage, ready: Stage, places: Mapping[tuple[str, str], Path]
    ) -> Inputs:
        """Everything that a stage reads, with its hash; None for what is no file.

        `written` still says `{name.output}`, `ready` has paths in their place.
        """
        found = list(references(written.model_dump()))
        # Of a run its records: checkpoints may be a hundred gigabytes, and never change without
        # them.
        runs = {str(places[one]) for one in found if one[1] == "run"}
        names = dict.fromkeys([*ready.reads(), *(str(places[one]) for one in found)])
        return {name: (self.shallow if name in runs else self.named)(name) for name in names}

    def _of_files(self, folder: Path, paths: Iterable[Path]) -> dict[str, str]:
        files = sorted(path for path in paths if path.is_file() and path.name != ".lock")
        return {str(path.relative_to(folder)): self._file(path) for path in files}

    def _file(self, path: Path) -> str:
        try:
            found = path.stat()
            known = self.seen.get(str(path.absolute()))
            if known is not None and tuple(known[:2]) == (found.st_size, found.st_mtime_ns):
                return known[2]
            with path.open("rb") as handle:
                digest = hashlib.file_digest(handle, "sha256").hexdigest()
        except OSError as error:
            raise Misuse(f"{path}: cannot be read: {error.strerror}") from None
        self.seen[str(path.absolute())] = (found.st_size, found.st_mtime_ns, digest)
        return digest


def fingerprint(written: Stage, inputs: Inputs) -> str:
    """A stage's settings and what it reads, as one hash. Only contents count: files that were moved
    are no change."""
    counted = {"settings": written.model_dump(mode="json"), "inputs": list(inputs.values())}
    return _sha256(json.dumps(counted, sort_keys=True))


def _of_all(files: Mapping[str, str]) -> str:
    return _sha256("".join(f"{name}\0{digest}\n" for name, digest in files.items()))


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()
