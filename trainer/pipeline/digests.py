"""What files hold, as SHA-256: of files, of folders, and of whatever a text names if that is there. Writes nothing.

A file that was read is not read again while its size and its time of change stay the same.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from gradus.errors import Misuse

Seen = dict[str, tuple[int, int, str]]
SKIPPED = (".lock",)


class Digests:
    """Remembers what it has read; `seen` can be kept and given again."""

    def __init__(self, seen: Seen | None = None) -> None:
        self.seen: Seen = dict(seen or {})

    def of(self, path: Path) -> str:
        """Of a file's bytes, or of the names and bytes of a folder's files. Raises Misuse when it cannot be read."""
        if path.is_dir():
            told = "".join(f"{name}\0{digest}\n" for name, digest in self.files(path).items())
            return hashlib.sha256(told.encode(errors="surrogateescape")).hexdigest()
        return self._file(path)

    def files(self, folder: Path) -> dict[str, str]:
        """Each file in a folder, whatever its depth, in the order of their names; of a file only itself."""
        if not folder.is_dir():
            return {folder.name: self._file(folder)}
        return {str(path.relative_to(folder)): self._file(path) for path in sorted(folder.rglob("*")) if _counts(path)}

    def shallow(self, folder: str) -> str | None:
        """Of the files that lie in a folder itself; None where there is no such folder."""
        if not Path(folder).is_dir():
            return None
        told = "".join(f"{path.name}\0{self._file(path)}\n" for path in sorted(Path(folder).glob("*")) if _counts(path))
        return hashlib.sha256(told.encode(errors="surrogateescape")).hexdigest()

    def named(self, text: str) -> str | None:
        """Of what a text names, if there is such a file or folder; None for anything else, such as a name on a hub."""
        try:
            path = Path(text)
            return self.of(path) if text and path.exists() else None
        except (OSError, ValueError):
            return None

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


def _counts(path: Path) -> bool:
    return path.is_file() and path.name not in SKIPPED
