"""A user of another system follows the guide for it: its commands run as they are written, on data
of their shape.

Commands are read from the guide, so that the two cannot differ. They run in a folder with the
user's data, tiny untrained models under the names of the real ones, and `configs/` of this
checkout.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import httpx

V = TypeVar("V")

ROOT = Path(__file__).parents[3]
LIMIT_S = 900
"""Seconds for one command on a busy machine."""
READY_S = 300
"""Seconds until a server answers."""
SERVERS = {"serve": "/readyz", "dashboard": "/"}
"""Commands that run until they are stopped, and where each answers."""


@dataclass(frozen=True)
class User:
    guide: str
    """Name of the page in docs/guides, without its ending."""
    prepare: Callable[[Path], None]
    """Lays the data, models and settings out in the folder."""
    smaller: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Options added to commands that begin so, to fit a tiny model and a few minutes."""
    not_run: Mapping[str, str] = field(default_factory=dict)
    """Beginnings of commands that are not run, and why."""
    statuses: Mapping[str, int] = field(default_factory=dict)
    """Exit status of commands that begin so, where it is not 0."""
    serves: str | None = None
    """Graders of a service that the guide expects elsewhere, on another machine."""
    check: Callable[[Path], None] = lambda folder: None
    """Asserts what the commands left in the folder."""

    @property
    def page(self) -> Path:
        return ROOT / "docs" / "guides" / f"{self.guide}.md"

    def commands(self) -> list[str]:
        """The commands of the guide, each once: those in blocks of `sh`, then those in its text and
        tables.

        Blocks of `bash` hold what needs several GPUs or a Mac, and `gradus` alone, the menu, needs
        a terminal.
        """
        text = self.page.read_text(encoding="utf-8")
        blocks = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
        lines = [line.partition(" #")[0].strip() for block in blocks for line in block.splitlines()]
        spans = re.findall(r"`(gradus [^`]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
        named = [
            span for span in spans if not re.fullmatch(r"[a-z -]+", span)
        ]  # the rest are names of commands
        return list(dict.fromkeys(line for line in [*lines, *named] if line not in ("", "gradus")))

    def is_run(self, command: str) -> bool:
        return not any(command.startswith(start) for start in self.not_run)

    def unused(self) -> list[str]:
        """Beginnings that no command of the guide has."""
        starts = {*self.smaller, *self.not_run, *self.statuses}
        for command in self.commands():
            starts = {start for start in starts if not command.startswith(start)}
        return sorted(starts)

    def follow(self, folder: Path, port: int, page_port: int) -> None:
        """Run every command in the folder, in order, and check what is left. The ports are free."""
        for name in ("configs", ".venv"):
            (folder / name).symlink_to(ROOT / name)
        self.prepare(folder)
        with ExitStack() as servers:
            if self.serves is not None:
                servers.enter_context(
                    _serving(
                        ["gradus", "serve", "--graders", self.serves, "--port", str(port)], folder
                    )
                )
            for command in self.commands():
                if self.is_run(command):
                    words = self._words(command, port, page_port)
                    print(f"$ {command}", flush=True)
                    if words[0] == "gradus" and words[1] in SERVERS:
                        servers.enter_context(_serving(words, folder))
                    else:
                        _run(words, folder, self._of(command, self.statuses, 0))
        self.check(folder)

    def _words(self, command: str, port: int, page_port: int) -> list[str]:
        words = shlex.split(re.sub(r"[|>&].*", "", command.replace(":8000", f":{port}")))
        if words[:2] == ["gradus", "serve"]:
            words += ["--port", str(port)]
        if words[:2] == ["gradus", "dashboard"]:
            words += ["--port", str(page_port)]
        return [
            *words,
            *(one.replace(":8000", f":{port}") for one in self._of(command, self.smaller, ())),
        ]

    @staticmethod
    def _of(command: str, by_start: Mapping[str, V], otherwise: V) -> V:
        """What the longest beginning of the command has."""
        starts = [start for start in by_start if command.startswith(start)]
        return by_start[max(starts, key=len)] if starts else otherwise


def _environment(folder: Path) -> dict[str, str]:
    """The hub is off: what a command does not find in the folder, it does not find."""
    own = {
        "PYTHONPATH": str(ROOT),
        "HF_HUB_OFFLINE": "1",
        "HF_HOME": str(folder / "hf"),
        "COLUMNS": "120",
    }
    return {
        **os.environ,
        **own,
        "GRADUS_CACHE_DIR": os.environ.get("GRADUS_CACHE_DIR", str(ROOT / ".cache")),
    }


def _program(words: Sequence[str]) -> list[str]:
    if words[0] == "make":
        # -o: the environment that runs this is not installed anew.
        return ["make", "-f", str(ROOT / "Makefile"), "-o", ".venv/.done", *words[1:]]
    assert words[0] == "gradus", words
    return [sys.executable, "-m", *words]


def _run(words: Sequence[str], folder: Path, status: int) -> None:
    done = subprocess.run(
        _program(words),
        cwd=folder,
        env=_environment(folder),
        input="Hello.\n" if words[1:2] == ["chat"] else "",
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    if done.returncode != status:
        said = f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        raise AssertionError(
            f"{shlex.join(words)}: exit status {done.returncode}, not {status}\n{said}"
        )


@contextmanager
def _serving(words: Sequence[str], folder: Path) -> Iterator[None]:
    """Inside the block the server runs. Raises AssertionError where it ends or does not answer."""
    log = folder / f"{words[1]}.log"
    port = words[words.index("--port") + 1]
    with log.open("w") as output:
        server = subprocess.Popen(
            _program(words), cwd=folder, env=_environment(folder), stdout=output, stderr=output
        )
        try:
            give_up_at = time.monotonic() + READY_S
            while not _answers(f"http://127.0.0.1:{port}{SERVERS[words[1]]}"):
                said = log.read_text()[-2000:]
                assert server.poll() is None, f"{shlex.join(words)} ended\n{said}"
                assert time.monotonic() < give_up_at, f"{shlex.join(words)} does not answer\n{said}"
                time.sleep(0.2)
            yield
        finally:
            server.terminate()
            try:
                server.wait(30)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=5).status_code == 200
    except httpx.TransportError:
        return False
