"""TCP ports for tests. pytest loads `conftest.py` beside `tests.conftest`; a port of this module
is chosen once for both."""

from __future__ import annotations

import itertools
import os
import socket
from collections.abc import Iterator
from contextlib import suppress


def _ports() -> Iterator[int]:
    """TCP ports of this test process alone, below those that the kernel chooses for connections
    (from 32768 on)."""
    process = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    first = 16_000 + process % 8 * 2_000
    return (first + number % 2_000 for number in itertools.count(os.getpid()))


_PORTS = _ports()


def free_port() -> int:
    while True:
        port = next(_PORTS)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
