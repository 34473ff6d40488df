"""Fixtures that several suites share (Redis, graders, the command line), the order of test files,
the cost of a run."""

from __future__ import annotations

import io
import itertools
import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import settings

from gradus.cli import main
from gradus.errors import Fault
from services.graders.ocaml.grader import OcamlGrader
from services.graders.preference.grader import PreferenceGrader
from services.graders.rust.grader import RustGrader
from services.graders.story.grader import StoryGrader

ROOT = Path(__file__).parent.parent
SECONDS = Path(__file__).parent / "seconds.json"
"""Wall time in seconds of each test file that takes at least one, as `pytest --record-seconds`
measured it."""

FAST_S = 2
"""Seconds that a file of `make test-fast` takes at most."""
STARTED = time.monotonic()

# A busy machine takes longer than Hypothesis allows one example by default (0.2 s).
settings.register_profile("gradus", deadline=None)
settings.load_profile("gradus")

# What graders prepare (compile servers, models) is kept in the clone, under names that hold a hash
# of the contents.
os.environ.setdefault("GRADUS_CACHE_DIR", str(ROOT / ".cache"))


# ----------------------------------------------------------- two processes, the longest file first


def _seconds() -> dict[str, float]:
    known: dict[str, float] = json.loads(SECONDS.read_text())
    return known


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--record-seconds",
        action="store_true",
        help=f"Write the wall time of test files to {SECONDS}",
    )
    parser.addoption(
        "--fast", action="store_true", help=f"Leave out test files that take more than {FAST_S} s"
    )


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    name = collection_path.relative_to(ROOT).as_posix()
    return True if config.getoption("--fast") and _seconds().get(name, 0) > FAST_S else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sorts test files by their recorded time, longest first. pytest-xdist hands out files in this
    order."""
    seconds = _seconds()
    items.sort(key=lambda item: -seconds.get(item.nodeid.partition("::")[0], 0))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Hands out whole files, so that fixtures of a module are set up once, in the order of
    collection."""
    from xdist.scheduler import LoadFileScheduling

    config.option.loadscopereorder = False
    return LoadFileScheduling(config, log)


@pytest.hookimpl(trylast=True)  # after pytest's list of the slowest tests
def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Reports the time of the whole run and, with `--record-seconds`, writes down the time of each
    file."""
    used = [resource.getrusage(whose) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    cpu = sum(usage.ru_utime + usage.ru_stime for usage in used)
    wall = time.monotonic() - STARTED
    terminalreporter.write_line(
        f"{wall:.0f} s of wall time, {cpu:.0f} s of CPU time in all processes"
    )
    if not config.getoption("--record-seconds"):
        return
    seconds: Counter[str] = Counter()
    for report in itertools.chain.from_iterable(terminalreporter.stats.values()):
        if isinstance(report, pytest.TestReport):
            seconds[report.nodeid.partition("::")[0]] += report.duration
    known = {**_seconds(), **seconds}
    kept = {
        name: round(known[name])
        for name in sorted(known)
        if known[name] >= 1 and (ROOT / name).exists()
    }
    SECONDS.write_text(json.dumps(kept, indent=1) + "\n")


# ---------------------------------------------------------------------------------------- fixtures


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
        command = [
            "redis-server",
            "--bind",
            "127.0.0.1",
            "--port",
            str(self.port),
            "--dir",
            str(self._directory),
        ]
        command += [
            "--save",
            "",
            "--appendonly",
            "yes" if self._append_only else "no",
            "--appendfsync",
            "everysec",
        ]
        command += self._options
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
    """Starts a server of the test's own: `redis_server(append_only=True)`; `options` of its command
    line."""
    if shutil.which("redis-server") is None:
        pytest.skip("redis-server is not installed (Debian: apt-get install redis-server)")
    servers: list[RedisServer] = []

    def started(*, append_only: bool = False, options: Sequence[str] = ()) -> RedisServer:
        server = RedisServer(
            tmp_path_factory.mktemp("redis"), append_only=append_only, options=options
        )
        servers.append(server)
        server.start()
        return server

    yield started
    for server in servers:
        server.stop()


@pytest.fixture(scope="session")
def redis_url(redis_server: Callable[..., RedisServer]) -> str:
    """A Redis for the whole session. It is shared: keep to a key prefix or a database number of
    your own."""
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
        grader.self_test()
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
def preference_grader(
    reward_model: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[PreferenceGrader]:
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
    # the process of the tests keeps its own logging
    monkeypatch.setattr("services.json_logging.LOGGERS", {})
    return Cli(monkeypatch, capsys)
