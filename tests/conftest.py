"""Fixtures that several suites share: Redis, graders, the command line."""

from __future__ import annotations

import io
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import settings

from gradus.cli import main
from gradus.errors import Fault
from services.graders.ocaml.grader import OcamlGrader
from services.graders.preference.grader import PreferenceGrader
from services.graders.program.grader import ProgramGrader
from services.graders.rust.grader import RustGrader
from services.graders.story.grader import StoryGrader
from tests.redis_cluster import RedisCluster
from tests.redis_server import RedisServer

ROOT = Path(__file__).parent.parent

# A busy machine takes longer than Hypothesis allows one example by default (0.2 s).
settings.register_profile("gradus", deadline=None)
settings.load_profile("gradus")

# What graders prepare (compile servers, models) is kept in the clone, under names that hold a hash
# of the contents.
os.environ.setdefault("GRADUS_CACHE_DIR", str(ROOT / ".cache"))


# ---------------------------------------------------------------------------------------- fixtures


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
def redis_cluster(
    redis_url: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RedisCluster]:
    """Three masters without replicas, for the whole session. Keep to a key prefix of your own."""
    with RedisCluster(tmp_path_factory.mktemp("cluster"), replicated=False).running() as cluster:
        yield cluster


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
def program_grader() -> ProgramGrader:
    """The program grader in its real boxes, made once for the session."""
    try:
        return ProgramGrader()
    except Fault as fault:
        pytest.skip(f"the program grader cannot start here: {fault.message}")


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
