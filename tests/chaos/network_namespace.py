"""A network namespace of its own, joined to this machine by one cable that can be cut. Needs root;
runs nothing itself.

A cut cable is what a partition looks like from both ends: nothing is refused and nothing is closed,
there is silence.
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
        self.host_address = f"{network}.{first + 1}"
        """This machine's address as the namespace sees it."""
        self._address = f"{network}.{first + 2}"

    @contextmanager
    def running(self) -> Iterator[NetworkNamespace]:
        """Raises NoNetworkNamespace."""
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
        _ip("addr", "add", f"{self.host_address}/30", "dev", self._cable)
        _ip("link", "set", self._cable, "up")
        _ip("-n", self._name, "addr", "add", f"{self._address}/30", "dev", far)
        _ip("-n", self._name, "link", "set", far, "up")

    def inside(self, command: list[str]) -> list[str]:
        """`command`, to be started in the namespace; the process keeps its number."""
        return ["ip", "netns", "exec", self._name, *command]

    @contextmanager
    def drop_incoming(self) -> Iterator[None]:
        """What this machine sends to the namespace is dropped; what the namespace sends arrives."""
        with _changed(["route", "{}", "blackhole", f"{self._address}/32"]):
            yield

    @contextmanager
    def drop_outgoing(self) -> Iterator[None]:
        """What the namespace sends is dropped; what this machine sends arrives."""
        with _changed(["-n", self._name, "route", "{}", "blackhole", f"{self.host_address}/32"]):
            yield

    def cut(self) -> None:
        _ip("link", "set", self._cable, "down")

    def restore(self) -> None:
        _ip("link", "set", self._cable, "up")


@contextmanager
def _changed(command: list[str]) -> Iterator[None]:
    """`command` with `add` for `{}`, and in the end with `del`."""
    _ip(*(word.format("add") for word in command))
    try:
        yield
    finally:
        _ip(*(word.format("del") for word in command))


def _ip(*arguments: str) -> None:
    try:
        done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise NoNetworkNamespace(
            "there is no `ip` command (Debian: apt-get install iproute2)"
        ) from None
    if done.returncode:
        raise NoNetworkNamespace(
            f"`ip {' '.join(arguments[:2])}` is not allowed here: {done.stderr.strip()}"
        )
