"""Installing one Python package into this environment, by pip or by uv."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from importlib import invalidate_caches

from gradus.errors import InternalFault

TIMEOUT_S = 900


def install_package(name: str, python: str = sys.executable) -> None:
    """Install a package, without what it depends on, into the environment of `python`. Raises
    InternalFault with the last line of what failed."""
    uv = shutil.which("uv")
    own = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    commands = [own]
    if uv is not None:
        commands.append([uv, "pip", "install", "--quiet", "--python", python])
    problem = ""
    for command in commands:
        problem = _run_installer([*command, "--no-deps", name])
        if not problem:
            invalidate_caches()
            return
    raise InternalFault(f"{name} could not be installed: {problem}", retryable=False)


def _run_installer(command: Sequence[str]) -> str:
    """Return the last line of an installer that failed; nothing of one that did its work."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as failure:
        return str(failure)
    if done.returncode == 0:
        return ""
    lines = done.stderr.strip().splitlines() or [f"status {done.returncode}"]
    return lines[-1]
