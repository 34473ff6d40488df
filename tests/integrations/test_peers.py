"""Trainers' own code with rewards from Gradus: right 1.0, a stub less, broken code 0, a fault never a number.

Each script of `peers/` runs in a process of its own, in the environment that `make test-integrations` fills with
`requirements.txt`. It prints what the code of the trainer made of three answers, and of a fault.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fake_grader import Service

ROOT = Path(__file__).parents[2]
PYTHON = Path(os.environ.get("GRADUS_INTEGRATIONS_VENV", ROOT / ".venv-integrations")) / "bin" / "python"
TASKS = ROOT / "configs" / "tasks" / "ocaml.jsonl"
ADAPTERS = "openrlhf,slime,nemo_gym,openenv,sandbox_fusion"

pytestmark = pytest.mark.slow

FAULTS = {
    ("verl",): "QueueFault",
    ("skyrl",): "QueueFault",
    ("areal",): "QueueFault",
    ("tinker",): "QueueFault",
    ("inspect",): "unscored samples: 1",
    ("openrlhf",): None,
    ("openrlhf", "route"): None,
    ("verifiers",): "TaskError",
    ("verifiers", "nemo_gym"): "TaskError",
    ("openenv",): "RuntimeError",
    ("sandbox_fusion",): "Exception",
}
"""What each client's own code makes of a fault: the beginning of its exception, or None for no reward."""


@pytest.fixture(scope="module")
def service(ocaml_grader: object, rust_grader: object) -> Iterator[str]:
    """The URL of a service with real graders. The fixtures skip where there is no compiler."""
    command = [sys.executable, "-m", "gradus", "serve", "--port", "0", "--graders", "ocaml,rust"]
    command += ["--adapters", ADAPTERS, "--tasks", f"ocaml={TASKS}"]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            found = next(re.search(r"serving on (\S+)", line) for line in process.stderr if "serving on" in line)
            assert found
            yield found[1]
        finally:
            process.terminate()


@pytest.fixture(scope="module")
def faulty() -> Iterator[str]:
    """The URL of a service without a grader."""
    with Service(worker=False, adapters=tuple(ADAPTERS.split(","))).running() as running:
        yield running.url


def told(service: str, faulty: str, script: str, *words: str) -> dict[str, Any]:
    """What the script printed. Skips where the trainer is not installed."""
    if not PYTHON.exists():
        pytest.skip("the trainers are not installed: `make test-integrations` installs them")
    environment = {"GRADUS_URL": service, "FAULTY_URL": faulty, "GRADUS_GRADER": "ocaml", "GRADUS_DEADLINE_S": "30"}
    command = [PYTHON, ROOT / "tests" / "integrations" / "peers" / f"{script}_peer.py", *words]
    done = subprocess.run(
        command,
        env={**os.environ, **environment, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    results = [line.removeprefix("RESULT ") for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    assert results, done.stderr[-3000:] + done.stdout[-1000:]
    found: dict[str, Any] = json.loads(results[-1])
    return found


@pytest.mark.parametrize("client", FAULTS, ids="-".join)
def test_a_trainer_gets_its_rewards(service: str, faulty: str, client: tuple[str, ...]) -> None:
    found = told(service, faulty, *client)
    assert found["right"] == 1.0
    assert 0.0 < found["stub"] < 1.0
    assert found["broken"] == 0.0
    assert not isinstance(found["fault"], float | int)
    if FAULTS[client] is None:
        assert found["fault"] is None
    else:
        assert found["fault"].startswith(FAULTS[client])


@pytest.mark.parametrize("way", ["function", "route"])
@pytest.mark.parametrize("peer", ["slime", "miles"])
def test_slime_and_miles_get_their_rewards(service: str, faulty: str, peer: str, way: str) -> None:
    """They are in no package index: `SLIME_CHECKOUT` and `MILES_CHECKOUT` name checkouts."""
    checkout = os.environ.get(f"{peer.upper()}_CHECKOUT")
    if not checkout:
        pytest.skip(f"{peer.upper()}_CHECKOUT names no checkout of {peer}")
    found = told(service, faulty, "slime", peer, checkout, way)
    assert (found["right"], found["broken"]) == (1.0, 0.0)
    assert 0.0 < found["stub"] < 1.0
    assert found["fault"].startswith("QueueFault" if way == "function" else "ClientResponseError")
