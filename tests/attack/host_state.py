"""The host that attacks must leave as it was: what they could touch, reach or leave behind; and
attacks in batches."""

from __future__ import annotations

import os
import secrets
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue

import pytest

from services.attacks.code import Attack, fill_placeholders

SLOTS = 2
"""Attacks that are graded at the same time."""


@dataclass
class Host:
    """What an attack could leave behind or touch."""

    folder: Path
    port: int
    marker: str = field(default_factory=lambda: f"marker{secrets.token_hex(6)}")

    def fill_in(self, source: str) -> str:
        return fill_placeholders(
            source,
            {"CANARY": self.folder, "PORT": self.port, "PID": os.getpid(), "MARKER": self.marker},
        )

    def places_of_the_marker(self) -> list[str]:
        places = {
            Path("/"),
            Path("/tmp"),
            Path("/var/tmp"),
            Path("/dev/shm"),
            Path.cwd(),
            Path.home(),
            self.folder,
        }
        return [str(place) for place in places if (place / self.marker).exists()]


@contextmanager
def watched(tmp_path: Path) -> Iterator[Host]:
    """A host that must be the same afterwards. Its folder is below `tmp_path`, which is made."""
    folder = tmp_path / "everybody"
    folder.mkdir(parents=True)
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


def boxed_processes() -> Counter[str]:
    """Programs that run in boxes of this process, by name: each bubblewrap and what descends from
    it."""
    parents: dict[int, int] = {}
    names: dict[int, str] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
            except OSError:
                continue
            state, parent = stat.rpartition(")")[2].split()[:2]
            if state != "Z":
                parents[int(entry.name)] = int(parent)
                names[int(entry.name)] = stat.partition("(")[2].rpartition(")")[0]
    ours = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in ours} - ours:
        ours |= more
    boxed = {pid for pid in ours if names.get(pid) == "bwrap"}
    while more := {pid for pid in ours if parents[pid] in boxed} - boxed:
        boxed |= more
    return Counter(names[pid] for pid in boxed)


class Batch:
    """Attacks that are graded in several slots at once. `attempts` holds, by name and variant,
    functions of a slot."""

    def __init__(self, attempts: Mapping[tuple[str, str], Callable[[int], None]]) -> None:
        self._processes = boxed_processes()
        self._slots: SimpleQueue[int] = SimpleQueue()
        for slot in range(SLOTS):
            self._slots.put(slot)
        self._pool = ThreadPoolExecutor(SLOTS)
        self._futures = {
            key: self._pool.submit(self._run, attempt) for key, attempt in attempts.items()
        }

    def _run(self, attempt: Callable[[int], None]) -> None:
        slot = self._slots.get()
        try:
            attempt(slot)
        finally:
            self._slots.put(slot)

    def result(self, attack: Attack, variant: str) -> None:
        """Raises what the attempt raised."""
        self._futures[attack.name, variant].result()

    def wait_for_all(self) -> None:
        wait(self._futures.values())

    def assert_no_process_is_left(self) -> None:
        """Waits for all attempts. To find the attack that left a process, run the tests with `-k`
        and a few names."""
        self.wait_for_all()
        give_up_at = time.monotonic() + 20  # processes end a moment after their box
        while left := boxed_processes() - self._processes:
            assert time.monotonic() < give_up_at, f"left: {left}; there were {self._processes}"
            time.sleep(0.05)

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)


def representatives(attacks: Iterable[Attack]) -> list[str]:
    """Names of one attack of each class: of those that get the same flags, and whose aims begin
    with the same two words. `make test` runs these, `make test-slow` all."""
    classes: dict[tuple[object, ...], str] = {}
    for attack in attacks:
        classes.setdefault((attack.flags, *attack.must_not.split()[:2]), attack.name)
    return list(classes.values())


def chosen_attacks(request: pytest.FixtureRequest) -> list[tuple[Attack, str]]:
    """The (attack, variant) pairs of this module that pytest runs, beginning with those that wait
    for a wall limit."""
    items = [item for item in request.session.items if isinstance(item, pytest.Function)]
    mine = [
        item.callspec.params
        for item in items
        if item.module is request.module and hasattr(item, "callspec")
    ]
    pairs = [(params["attack"], params["variant"]) for params in mine if "attack" in params]
    return sorted(pairs, key=lambda pair: pair[0].wall_s is None)
