"""The host that attacks must leave as it was: what they could touch, reach or leave behind. Attacks nothing itself."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from services.attacks.code import filled_in


@dataclass
class Host:
    """What an attack could leave behind or touch."""

    folder: Path
    port: int
    marker: str = field(default_factory=lambda: f"marker{secrets.token_hex(6)}")

    def fill_in(self, source: str) -> str:
        return filled_in(source, {"CANARY": self.folder, "PORT": self.port, "PID": os.getpid(), "MARKER": self.marker})

    def places_of_the_marker(self) -> list[str]:
        places = {Path("/"), Path("/tmp"), Path("/var/tmp"), Path("/dev/shm"), Path.cwd(), Path.home(), self.folder}
        return [str(place) for place in places if (place / self.marker).exists()]


@contextmanager
def watched(tmp_path: Path) -> Iterator[Host]:
    """A host that must be the same afterwards."""
    folder = tmp_path / "everybody"
    folder.mkdir()
    for parent in (folder, *folder.parents):
        if parent.owner() == folder.owner() and parent.is_relative_to(tmp_path.parent.parent):
            parent.chmod(0o777 if parent == folder else 0o755)
    canary = folder / "canary"
    canary.write_text("as it was")
    canary.chmod(0o666)
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        host = Host(folder, server.getsockname()[1])
        yield host
        with pytest.raises(BlockingIOError):  # nobody called
            server.accept()
    assert [file.name for file in folder.iterdir()] == ["canary"]
    assert canary.read_text() == "as it was"
    assert host.places_of_the_marker() == []


def descendants() -> int:
    """Processes that descend from this one."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
            except OSError:
                continue
            state, parent = stat.rpartition(")")[2].split()[:2]
            if state != "Z":
                parents[int(entry.name)] = int(parent)
    ours = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in ours} - ours:
        ours |= more
    return len(ours) - 1
