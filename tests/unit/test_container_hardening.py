"""A worker names what its container was asked to be and is not. tests/cases/container is what a
good one looks like."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from gradus.contract import Graded, Submission
from gradus.descriptions import GraderDescription, GraderInfo
from gradus.errors import Misuse, SandboxFault
from services.broker.from_url import open_broker
from services.broker.memory import MemoryBroker
from services.sandbox.container_hardening import VARIABLE, ContainerState, find_missing_protections
from services.worker import Worker
from tests.conftest import Cli
from tests.fake_grader import INFO
from tests.graders import described

GOOD = Path(__file__).parents[1] / "cases/container"
ALL = "user,capabilities,privileges,seccomp,root,tmp,memory,processes,network"
STATUS, MOUNTS, ROUTES = "proc/self/status", "proc/self/mountinfo", "proc/net/route"
MEMORY, PROCESSES = "sys/fs/cgroup/memory.max", "sys/fs/cgroup/pids.max"
NO_LIMIT_V1 = "9223372036854771712"


@pytest.fixture
def around(tmp_path: Path) -> Path:
    return Path(shutil.copytree(GOOD, tmp_path / "around"))


def lacking(root: Path) -> list[str]:
    return [line.partition(":")[0] for line in find_missing_protections(ALL, ContainerState(root))]


def test_a_container_as_compose_makes_it_lacks_nothing(around: Path) -> None:
    assert lacking(around) == []


@pytest.mark.parametrize(
    ("file", "there", "instead", "wall"),
    [
        (STATUS, "Uid:\t1000", "Uid:\t0", "user"),
        (STATUS, "CapBnd:\t0000000000000000", "CapBnd:\t00000000a80425fb", "capabilities"),
        (STATUS, "NoNewPrivs:\t1", "NoNewPrivs:\t0", "privileges"),
        (STATUS, "Seccomp:\t2", "Seccomp:\t0", "seccomp"),
        (MOUNTS, "/ / ro,", "/ / rw,", "root"),
        (MOUNTS, ",size=65536k", "", "tmp"),
        (MOUNTS, "- tmpfs tmpfs rw", "- ext4 /dev/sda rw", "tmp"),
        (MEMORY, "2147483648", "max", "memory"),
        (MEMORY, "2147483648", NO_LIMIT_V1, "memory"),
        (PROCESSES, "512", "max", "processes"),
        (ROUTES, "eth0\t0000580A", "eth0\t00000000", "network"),
    ],
)
def test_each_setting_that_is_lost_is_named_alone(
    around: Path, file: str, there: str, instead: str, wall: str
) -> None:
    text = (around / file).read_text()
    assert there in text
    (around / file).write_text(text.replace(there, instead))
    assert lacking(around) == [wall]


def test_limits_of_older_control_groups_count(around: Path) -> None:
    for new, old in ((MEMORY, "memory/memory.limit_in_bytes"), (PROCESSES, "pids/pids.max")):
        target = around / "sys/fs/cgroup" / old
        target.parent.mkdir()
        (around / new).rename(target)
    assert lacking(around) == []


def test_what_cannot_be_seen_does_not_stand(tmp_path: Path) -> None:
    assert lacking(tmp_path) == [
        "user",
        "capabilities",
        "privileges",
        "seccomp",
        "root",
        "tmp",
        "memory",
        "processes",
    ]


def test_only_what_is_asked_for_is_looked_at(tmp_path: Path) -> None:
    assert find_missing_protections("", ContainerState(tmp_path)) == []
    assert find_missing_protections(" seccomp , ", ContainerState(tmp_path))[0].startswith(
        "seccomp: no filter is in force; set "
    )


@pytest.mark.parametrize("asked", ["seccomb", "seccomp;root", "user,,ALL"])
def test_a_misspelt_wall_is_not_one_that_stands(asked: str) -> None:
    with pytest.raises(
        SandboxFault, match="GRADUS_REQUIRE_HARDENING names .*; there are: user, capabilities"
    ):
        find_missing_protections(asked, ContainerState(GOOD))


class NeverAsked:
    """A grader that must not be reached."""

    waiting_slots = None

    def description(self) -> GraderDescription:
        return described(self.info())

    def info(self) -> GraderInfo:
        return INFO

    def self_test(self) -> None:
        raise AssertionError("the container does not hold, and the grader was asked all the same")

    def grade(self, submission: Submission, rubric: str, slot: int) -> Graded:
        raise AssertionError(f"{submission.id} was graded by {rubric} in slot {slot}")


async def test_a_worker_whose_container_lost_a_setting_serves_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(VARIABLE, "no-such-wall")
    broker = MemoryBroker()
    with pytest.raises(SandboxFault, match="no-such-wall"):
        await Worker(NeverAsked(), broker, slots=1).run(asyncio.Event())
    assert await broker.graders() == []


def test_nothing_is_loaded_where_the_container_does_not_hold(
    gradus: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "no-such-wall")
    said = gradus("worker", "preference", "--redis", "redis://127.0.0.1:1/0")
    assert "no-such-wall" in said.err  # and not that no model is named
    assert said.status != 0


# ---------------------------------------------------------------------- the URL out of a file


def test_the_brokers_url_may_stand_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "url").write_text("gopher://host\n")
    with pytest.raises(Misuse, match="starts with redis://.*not with gopher"):
        open_broker(f"file:{tmp_path}/url")


@pytest.mark.parametrize(
    "text", [b"", b"\n", b"redis://a file:/etc/passwd", b"file:/etc/passwd", b"\xff\xfe"]
)
def test_a_file_without_one_url_is_misuse_that_tells_nothing_of_it(
    tmp_path: Path, text: bytes
) -> None:
    (tmp_path / "url").write_bytes(text)
    with pytest.raises(Misuse) as misuse:
        open_broker(f"file:{tmp_path}/url")
    assert f"{tmp_path}/url" in str(misuse.value)
    assert "passwd" not in str(misuse.value)


def test_a_file_that_is_not_there_is_misuse() -> None:
    with pytest.raises(Misuse, match="/nowhere/url cannot be read: FileNotFoundError"):
        open_broker("file:/nowhere/url")
