"""`make verify-gpu` on a CPU: the checks of a CUDA card with a tiny model, and what it says where
there is none."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.training, pytest.mark.timeout(900)]


def verify(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "trainer.doctor.gpu", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=800)


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(("lora",), marks=pytest.mark.slow),
        pytest.param(("resume", "full"), marks=pytest.mark.slow),
    ],
    ids="-".join,
)
def test_the_checks_pass_with_a_tiny_model_on_the_cpu_and_are_written_down(
    names: tuple[str, ...], tmp_path: Path
) -> None:
    ended = verify("--device", "cpu", "--out", str(tmp_path / "out"), "--only", *names)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    checks = json.loads((tmp_path / "out" / "verify.json").read_text())["checks"]
    assert {name: check["status"] for name, check in checks.items()} == dict.fromkeys(names, "ok")
    for name in names:
        figures = checks[name]["figures"]
        assert figures["steps"] == 6
        assert figures["generated_tokens_per_s"] > 0
        assert figures["peak_memory_gib"] > 0.1


def test_checks_that_do_not_end_in_time_have_failed(tmp_path: Path) -> None:
    ended = verify(
        "--device",
        "cpu",
        "--out",
        str(tmp_path / "out"),
        "--only",
        "lora",
        "full",
        "--budget",
        "1.5",
    )
    assert ended.returncode == 1
    checks = json.loads((tmp_path / "out" / "verify.json").read_text())["checks"]
    assert [check["status"] for check in checks.values()] == ["failed", "failed"]


def test_without_a_card_it_says_so_and_fails(tmp_path: Path) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a card")
    ended = verify("--out", str(tmp_path / "out"))
    assert ended.returncode == 1
    assert ended.stdout.startswith("MISS no CUDA card: torch ")
    assert not (tmp_path / "out").exists()
