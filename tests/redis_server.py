"""One Redis server of a test."""

from __future__ import annotations

import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from tests.ports import free_port


class RedisServer:
    """A redis-server in a directory of its own; it can be killed and started again on what it left
    there."""

    def __init__(self, directory: Path, *, append_only: bool, options: Sequence[str] = ()) -> None:
        self._directory = directory
        self._options = options
        self._append_only = append_only
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self.url = f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        command = ["redis-server", "--bind", "127.0.0.1", "--port", str(self.port)]
        command += ["--dir", str(self._directory), "--save", "", "--appendfsync", "everysec"]
        command += ["--appendonly", "yes" if self._append_only else "no", *self._options]
        self._process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        give_up_at = time.monotonic() + 20
        while not self._answers():
            assert self._process.poll() is None, "redis-server ended at once"
            assert time.monotonic() < give_up_at, "redis-server does not answer"
            time.sleep(0.02)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
                connection.sendall(b"PING\r\n")
                return connection.recv(5) in (b"+PONG", b"-NOAU")
        except OSError:
            return False

    def stop(self, how: signal.Signals = signal.SIGKILL) -> None:
        """SIGKILL: as in a crash. SIGSTOP: it is there and answers nothing."""
        if self._process is None:
            return
        self._process.send_signal(how)
        if how != signal.SIGSTOP:
            self._process.wait()
            self._process = None
