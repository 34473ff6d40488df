"""The compile server: every compilation begins in an empty box, whatever the one before left behind
or did."""

from __future__ import annotations

import secrets
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gradus.errors import Fault, SandboxFault
from services.graders.rust.server import PLACE, PRODUCT, CompileResult, CompileServer, ServerExit
from services.graders.rust.toolchain import RustToolchain
from services.sandbox import Command, Limits
from services.sandbox.bubblewrap import Bubblewrap

CODE = b"pub fn one() -> i32 { 1 }\n"
PROGRAM = b"fn main() {}\n"
LINGERER = f"31337.{secrets.randbelow(10**9):09}"
"""Seconds that a left-behind process would sleep: a number that no other process has in its command
line."""


class Server:
    def __init__(self, toolchain: RustToolchain, limits: Limits) -> None:
        self.toolchain = toolchain
        command = Command(
            argv=(toolchain.rustc,),
            limits=limits,
            binds=toolchain.compile_binds,
            mounts=toolchain.compile_mounts,
            environment=toolchain.environment,
        )
        self.server = CompileServer(Bubblewrap(), command)

    def compile(self, code: bytes, *flags: str, **files: bytes) -> CompileResult:
        source = f"{PLACE}/crate/lib.rs"
        argv = [
            self.toolchain.rustc,
            "--edition=2021",
            *self.toolchain.code_flags,
            *flags,
            "-o",
            PRODUCT,
            source,
        ]
        environment = {"PATH": "/usr/bin", "RUSTC_BOOTSTRAP": "1", **self.toolchain.environment}
        others = {f"{PLACE}/crate/{name}": content for name, content in files.items()}
        return self.server.compile(argv, environment, {source: code, **others})

    def library(self, code: bytes, *flags: str, **files: bytes) -> CompileResult:
        return self.compile(code, "--crate-type=lib", "--crate-name=a", *flags, **files)

    def linked_by(self, script: str) -> CompileResult:
        """Compile a program with a shell script for a linker: the one way to make a compiler run
        what we want."""
        words = ("-c", script)
        linker = [
            "-Clinker=/bin/sh",
            "-Clinker-flavor=ld",
            *(f"-Zpre-link-arg={word}" for word in words),
        ]
        return self.compile(PROGRAM, "--crate-name=a", *linker)


@pytest.fixture(scope="module")
def toolchain() -> RustToolchain:
    try:
        return RustToolchain()
    except Fault as fault:
        pytest.skip(f"the Rust grader cannot start here: {fault.message}")


@pytest.fixture
def server(toolchain: RustToolchain, request: pytest.FixtureRequest) -> Iterator[Server]:
    """The parameter, if any: seconds of wall time."""
    wall_s = getattr(request, "param", 30.0)
    limits = Limits(
        cpu_s=1, wall_s=wall_s, memory_mb=3072, processes=64, scratch_mb=64, scratch_files=None
    )
    own = Server(toolchain, limits)
    yield own
    own.server.close()


def test_it_returns_what_the_compiler_made_and_what_it_used(server: Server) -> None:
    done = server.library(CODE)
    assert (done.ended, done.code, done.messages) == (ServerExit.EXIT, 0, b"")
    assert done.product.startswith(b"!<arch>")
    assert 0.01 < done.cpu_s < 2


def test_it_returns_what_the_compiler_says(server: Server) -> None:
    done = server.library(b"pub fn one() -> i32 { one: }\n")
    assert (done.ended, done.code, done.product) == (ServerExit.EXIT, 1, b"")
    assert b"error" in done.messages


def test_the_same_question_twice_gives_the_same_library(server: Server) -> None:
    assert server.library(CODE).product == server.library(CODE).product


def test_files_of_one_compilation_are_gone_in_the_next(server: Server) -> None:
    secret = b'pub const S: &str = include_str!("secret");'
    assert server.library(secret, secret=b"x").code == 0
    assert b"couldn't read" in server.library(secret).messages
    server.linked_by(
        f"mkdir -p {PLACE}/a/b; echo 1 > {PLACE}/a/b/left; ln -s / {PLACE}/root; chmod 0"
        f" {PLACE}/a/b/left"
    )
    left = f'pub const S: &str = include_str!("{PLACE}/a/b/left");'
    assert b"couldn't read" in server.library(left.encode()).messages


def test_processes_of_one_compilation_are_gone_with_it(server: Server) -> None:
    done = server.linked_by(f"setsid sleep {LINGERER} >/dev/null 2>&1 & echo made > {PRODUCT}")
    assert (done.code, done.product) == (0, b"made\n")
    assert LINGERER not in command_lines()


def command_lines() -> str:
    return subprocess.run(
        ["ps", "-e", "-o", "args="], capture_output=True, text=True, check=True
    ).stdout


@pytest.mark.parametrize("server", [3.0], indirect=True)
def test_a_compilation_that_does_not_end_is_ended_and_the_next_is_served(server: Server) -> None:
    assert server.linked_by(f"sleep {LINGERER}").ended is ServerExit.WALL
    give_up_at = time.monotonic() + 60
    while LINGERER in command_lines():  # processes end a moment after their box
        assert time.monotonic() < give_up_at
        time.sleep(0.1)
    assert server.library(CODE).code == 0


def test_a_compilation_that_uses_up_its_cpu_time_is_ended_and_the_next_is_served(
    server: Server,
) -> None:
    done = server.library(
        b"pub const N: u64 = { let mut n = 0u64; while n < u64::MAX { n += 1 } n };",
        "-Along_running_const_eval",
    )
    assert done.ended is ServerExit.SIGNAL
    assert done.cpu_s >= 0.5
    assert server.library(CODE).code == 0


def test_its_channels_are_out_of_reach_of_the_compiler(server: Server) -> None:
    done = server.linked_by(
        f"for fd in 3 4 5 6; do (echo '0 ready' >&$fd) 2>/dev/null && echo $fd; done > {PRODUCT};"
        " true"
    )
    assert (done.code, done.product) == (0, b"")
    assert server.library(CODE).code == 0


def test_a_product_that_is_no_file_of_its_own_is_none(server: Server) -> None:
    assert server.linked_by(f"ln -s /etc/passwd {PRODUCT}; true").product == b""
    assert server.linked_by(f"mkfifo {PRODUCT}; true").product == b""


def test_a_box_that_was_lost_is_a_fault_and_the_next_is_new(server: Server) -> None:
    with pytest.raises(SandboxFault, match="the compile server was lost"):
        server.server.compile(["rustc"], {}, {})
    assert server.library(CODE).code == 0


def test_it_serves_in_a_box_and_nowhere_else(toolchain: RustToolchain) -> None:
    environment = {"LD_PRELOAD": str(toolchain.server)}
    done = subprocess.run(
        ["/bin/true"], env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, "this is no box" in done.stderr) == (70, True)


def test_thousands_of_files_are_taken(server: Server) -> None:
    assert server.library(CODE, **{f"f{number}": b"" for number in range(3000)}).code == 0
    assert Path(PLACE, "crate").exists() is False
