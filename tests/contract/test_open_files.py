"""Processes with a low limit of open files (`ulimit -n`): refused with a clear text, or served
without locking out."""

from __future__ import annotations

import os
import re
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

ROOT = Path(__file__).parents[2]


def started(n_files: int, *words: str) -> subprocess.Popen[str]:
    """A `gradus` process that may open `n_files` files."""
    return subprocess.Popen(
        [sys.executable, "-m", "gradus", *words],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (n_files, n_files)),
    )


@pytest.mark.parametrize(
    "words",
    [
        ("serve", "--redis", "redis://x"),
        ("serve", "--graders", "ocaml"),
        ("worker", "ocaml", "--redis", "redis://x"),
    ],
)
def test_too_few_open_files_are_refused_with_a_text_that_says_what_to_raise(
    words: tuple[str, ...],
) -> None:
    running = started(128, *words)
    _, log = running.communicate(timeout=60)
    assert running.returncode == 2
    assert "may open 128 files, and needs 256" in log
    assert "ulimit -n" in log


def test_idle_connections_lock_nobody_out(redis_server: Callable[..., Any]) -> None:
    """400 idle connections to an API that may open 256 files, and 5 requests over new ones."""
    running = started(256, "serve", "--redis", redis_server().url, "--port", "0")
    try:
        assert running.stderr is not None
        found = re.search(
            r"http://([\d.]+):(\d+)", next(line for line in running.stderr if "serving on" in line)
        )
        assert found
        with ExitStack() as stack, httpx.Client() as kept:
            for _ in range(400):
                stack.enter_context(socket.create_connection((found[1], int(found[2]))))
                time.sleep(
                    0.002
                )  # a burst of all at once fills the process before it can close any
            for _ in range(5):
                assert httpx.get(f"{found[0]}/healthz").status_code == 200
                assert kept.get(f"{found[0]}/healthz").status_code == 200
    finally:
        running.terminate()
        running.communicate(timeout=60)
