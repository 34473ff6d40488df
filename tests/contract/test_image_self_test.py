"""deploy/docker/self_test.sh, the last step of a grader's image: it fails unless the grader holds,
or says why not."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "deploy/docker/self_test.sh"


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """Programs that stand before the system's; the interpreter is ours, as in an image."""
    folder = tmp_path / "programs"
    folder.mkdir()
    (folder / "python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (folder / "python").chmod(0o755)
    return folder


def prove(programs: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    path = f"{programs}:{os.environ['PATH']}"
    around = {**os.environ, "PATH": path, "PYTHONPATH": str(SCRIPT.parents[2]), **environment}
    return subprocess.run(
        ["sh", SCRIPT, *words], capture_output=True, text=True, check=False, env=around
    )


def forbid_namespaces(programs: Path) -> None:
    (programs / "unshare").write_text(
        "#!/bin/sh\necho 'unshare failed: Operation not permitted' >&2\nexit 1\n"
    )
    (programs / "unshare").chmod(0o755)


@pytest.mark.parametrize(("mode", "status"), [("auto", 0), ("required", 1)])
def test_a_builder_without_namespaces_is_told_and_passes_only_by_auto(
    programs: Path, mode: str, status: int
) -> None:
    forbid_namespaces(programs)
    done = prove(programs, "ocaml", mode)
    assert done.returncode == status
    assert (
        "NOT PROVEN HERE: this builder lets a build step make no namespaces (unshare failed"
        in done.stderr
    )


@pytest.mark.parametrize("mode", ["", "Required", "later", "auto "])
def test_a_mode_that_is_none_is_no_way_around(programs: Path, mode: str) -> None:
    forbid_namespaces(programs)
    done = prove(programs, "ocaml", mode)
    assert done.returncode == 2
    assert "SELF_TEST is required or auto" in done.stderr


@pytest.mark.usefixtures("ocaml_grader")  # skips where its toolchain is missing
def test_a_grader_that_holds_is_proven_whatever_the_image_asks_of_its_container(
    programs: Path,
) -> None:
    done = prove(programs, "ocaml", "required", GRADUS_REQUIRE_HARDENING="network,root")
    assert done.returncode == 0, done.stderr
    assert (
        done.stdout
        == "ocaml holds: own cases graded as expected, every attack on its boxes failed\n"
    )


def test_a_grader_without_its_compiler_fails_the_build_even_by_auto(programs: Path) -> None:
    for name in ("sh", "unshare", "true", "prlimit", "mount", "bwrap", "setpriv"):
        found = shutil.which(name)
        if found is None:
            pytest.skip(f"{name} is not installed")
        (programs / name).symlink_to(found)
    done = prove(programs, "ocaml", "auto", PATH=str(programs))
    assert done.returncode == 1
    assert "ocaml" in done.stderr
    assert "NOT PROVEN HERE" not in done.stderr
