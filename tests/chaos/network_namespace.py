"""A network namespace of its own, joined to this machine by one cable that can be cut. Needs root; runs nothing itself.

A cut cable is what a partition looks like from both ends: nothing is refused and nothing is closed, there is silence.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class NoNetworkNamespace(Exception):
    """This machine makes no network namespaces for us; the message says why."""


class NetworkNamespace:
    def __init__(self) -> None:
        number = os.getpid() % 16000  # several may run on one machine
        self._name = f"chaos{number}"
        self._cable = f"chaos{number}a"
        network = f"10.213.{number // 64}"
        first = number % 64 * 4
        self.mainland = f"{network}.{first + 1}"
        """This machine's address as the island sees it."""
        self._address = f"{network}.{first + 2}"

    @contextmanager
    def standing(self) -> Iterator[NetworkNamespace]:
        """Raises NoIsland."""
        try:
            self._build()
            yield self
        finally:
            for command in (["link", "del", self._cable], ["netns", "del", self._name]):
                with suppress(NoNetworkNamespace):
                    _ip(*command)

    def _build(self) -> None:
        far = f"{self._cable[:-1]}b"
        _ip("netns", "add", self._name)
        _ip("link", "add", self._cable, "type", "veth", "peer", "name", far, "netns", self._name)
        _ip("addr", "add", f"{self.mainland}/30", "dev", self._cable)
        _ip("link", "set", self._cable, "up")
        _ip("-n", self._name, "addr", "add", f"{self._address}/30", "dev", far)
        _ip("-n", self._name, "link", "set", far, "up")

    def inside(self, command: list[str]) -> list[str]:
        """`command`, to be started on the island; the process keeps its number."""
        return ["ip", "netns", "exec", self._name, *command]

    def cut(self) -> None:
        _ip("link", "set", self._cable, "down")

    def mend(self) -> None:
        _ip("link", "set", self._cable, "up")


def _ip(*arguments: str) -> None:
    try:
        done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise NoNetworkNamespace("there is no `ip` command (Debian: apt-get install iproute2)") from None
    if done.returncode:
        raise NoNetworkNamespace(f"`ip {' '.join(arguments[:2])}` is not allowed here: {done.stderr.strip()}")
