"""Languages that are installed on this machine, with their versions."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from services.graders.program.config import LanguageSettings

SEARCH_PATH = "/usr/local/bin:/usr/bin:/bin"
"""Where boxes look for programs, too."""
_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class Language:
    """A language whose toolchain is installed."""

    name: str
    settings: LanguageSettings
    version: str
    root: str
    """Folder of the toolchain; empty for one below /usr."""

    @property
    def binds(self) -> tuple[str, ...]:
        root = (self.root,) if self.root else ()
        return ("/usr", "/etc/alternatives", *root, *self.settings.see)

    @property
    def mounts(self) -> dict[str, str]:
        """Files of this folder, and where the box sees them."""
        here = Path(__file__).parent
        return {str(here / name): target for target, name in self.settings.mounts.items()}

    def fill(self, words: tuple[str, ...], **paths: str) -> tuple[str, ...]:
        """Return a command of the configuration with `{root}` and `paths` filled in."""
        filled = []
        for word in words:
            for name, path in {"root": self.root, **paths}.items():
                word = word.replace("{" + name + "}", path)  # noqa: PLW2901
            filled.append(word)
        return tuple(filled)

    @property
    def compile_line(self) -> str:
        return self.fill((self.settings.compile,))[0]

    @property
    def environment(self) -> dict[str, str]:
        values = self.fill(tuple(self.settings.environment.values()))
        return {"PATH": SEARCH_PATH, **dict(zip(self.settings.environment, values, strict=True))}


def find_language(name: str, settings: LanguageSettings) -> Language | None:
    """Return the language; None if its toolchain is not installed."""
    root = ""
    if settings.locate:
        root = _run(settings.locate)
        if not os.path.isabs(root):
            return None
    version = _run(settings.version)
    return Language(name, settings, version, root) if version else None


def _run(command: tuple[str, ...]) -> str:
    """Return the first line that a command prints; nothing if it is not there or fails."""
    path = shutil.which(command[0], path=SEARCH_PATH) or shutil.which(command[0])
    if path is None:
        return ""
    try:
        done = subprocess.run(
            [path, *command[1:]],
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    lines = (done.stdout + done.stderr).strip().splitlines()
    return lines[0].strip() if lines and done.returncode == 0 else ""
