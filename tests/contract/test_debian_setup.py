"""deploy/setup/debian.sh on a machine without Rust: says what to run, and fails for nobody who does
without it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "deploy" / "setup" / "debian.sh"


@pytest.mark.parametrize(
    ("rustc", "lacks", "does"),
    [
        ("exit 1", "rustc", "rustup toolchain install 1.95 --profile minimal --component clippy"),
        ("echo /nowhere", "clippy-driver", "rustup component add clippy"),
    ],
)
def test_what_rust_lacks_is_told_with_the_command_that_brings_it(
    tmp_path: Path, rustc: str, lacks: str, does: str
) -> None:
    program = tmp_path / "rustc"
    program.write_text(f"#!/bin/sh\n{rustc}\n")
    program.chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "GRADUS_SKIP_SYSTEM": "1",
    }
    done = subprocess.run(
        ["sh", SCRIPT, "rust"], capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode == 0
    assert f"there is no working {lacks}" in done.stderr
    assert does in done.stderr


def test_on_a_mac_setup_goes_on_without_a_variable(tmp_path: Path) -> None:
    program = tmp_path / "uname"
    program.write_text("#!/bin/sh\necho Darwin\n")
    program.chmod(0o755)
    environment = {
        name: value for name, value in os.environ.items() if name != "GRADUS_SKIP_SYSTEM"
    }
    environment["PATH"] = f"{tmp_path}:{os.environ['PATH']}"
    done = subprocess.run(
        ["sh", SCRIPT, "python", "grader", "queue"],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    assert (done.returncode, done.stdout) == (0, "")
    assert "docker compose up" in done.stderr


def test_forbidden_namespaces_are_said_before_anything_is_installed(tmp_path: Path) -> None:
    for name, body in {"unshare": "exit 1", "uname": "echo Darwin"}.items():
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\n{body}\n")
        program.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["sh", SCRIPT, "grader"], capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode == 0
    assert "namespaces are forbidden here" in done.stderr
