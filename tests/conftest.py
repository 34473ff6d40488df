"""What tests of several suites share: a real Redis on a free port, the OCaml grader, the command line."""

from __future__ import annotations

import io
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from gradus.cli import main
from gradus.errors import Fault
from services.graders.ocaml.grader import OcamlGrader
from services.graders.preference.grader import PreferenceGrader
from services.graders.rust.grader import RustGrader
from services.graders.story.grader import StoryGrader


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class RedisServer:
    """A redis-server in a directory of its own; it can be killed and started again on what it left there."""

    def __init__(self, directory: Path, *, append_only: bool, options: Sequence[str] = ()) -> None:
        self._directory = directory
        self._options = options
        self._append_only = append_only
        self._port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self.url = f"redis://127.0.0.1:{self._port}/0"

    def start(self) -> None:
        command = ["redis-server", "--bind", "127.0.0.1", "--port", str(self._port), "--dir", str(self._directory)]
        command += ["--save", "", "--appendonly", "yes" if self._append_only else "no", "--appendfsync", "everysec"]
        command += self._options
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
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
            with socket.create_connection(("127.0.0.1", self._port), timeout=1) as connection:
                connection.sendall(b"PING\r\n")
                return connection.recv(5) == b"+PONG"
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


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., RedisServer]]:
    """Starts a server of the test's own: `redis_server(append_only=True)`."""
    if shutil.which("redis-server") is None:
        pytest.skip("redis-server is not installed (Debian: apt-get install redis-server)")
    servers: list[RedisServer] = []

    def started(*, append_only: bool = False) -> RedisServer:
        server = RedisServer(tmp_path_factory.mktemp("redis"), append_only=append_only)
        servers.append(server)
        server.start()
        return server

    yield started
    for server in servers:
        server.stop()


@pytest.fixture(scope="session")
def redis_url(redis_server: Callable[..., RedisServer]) -> str:
    """A Redis for the whole session. It is shared: keep to a key prefix or a database number of your own."""
    return redis_server().url


@pytest.fixture(scope="session")
def ocaml_grader() -> Iterator[OcamlGrader]:
    """The OCaml grader in its real boxes, made once for the session."""
    try:
        grader = OcamlGrader()
    except Fault as fault:
        pytest.skip(f"the OCaml grader cannot start here: {fault.message}")
    yield grader
    grader.warm.close()


@pytest.fixture(scope="session")
def rust_grader() -> RustGrader:
    """The Rust grader in its real boxes, made once for the session."""
    try:
        return RustGrader()
    except Fault as fault:
        pytest.skip(f"the Rust grader cannot start here: {fault.message}")


@pytest.fixture(scope="session")
def story_grader() -> Iterator[StoryGrader]:
    """The story grader with its real model, made once for the session."""
    try:
        grader = StoryGrader()
        grader.prove()
    except Fault as fault:
        pytest.skip(f"the story grader cannot start here: {fault.message}")
    yield grader
    grader.encoder.close()


@pytest.fixture(scope="session")
def reward_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny reward model that was trained on nothing: its scores differ, and mean nothing."""
    from tests.tiny_models import make_judge

    return make_judge("qwen3", tmp_path_factory.mktemp("reward_models") / "judge")


@pytest.fixture
def preference_grader(reward_model: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PreferenceGrader]:
    """The preference grader with a tiny model on the CPU, which the environment names meanwhile."""
    monkeypatch.setenv("GRADUS_PREFERENCE_MODEL", str(reward_model))
    monkeypatch.setenv("GRADUS_PREFERENCE_DEVICE", "cpu")
    grader = PreferenceGrader()
    yield grader
    grader.scorer.close()


class Said(NamedTuple):
    status: int | str | None
    out: str
    err: str


class Cli:
    """Runs `gradus ...` in this process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch = monkeypatch
        self._capsys = capsys

    def __call__(self, *argv: str | Path, stdin: bytes = b"") -> Said:
        self._monkeypatch.setattr(sys, "argv", ["gradus", *map(str, argv)])
        self._monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = self._capsys.readouterr()
        return Said(ended.value.code, out, err)


@pytest.fixture
def gradus(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(monkeypatch, capsys)
