"""Trainers' own code with rewards from Gradus: right 1.0, a stub less, broken code 0, a fault never
a number.

Each script of `peers/` runs in a process of its own, in the environment that `make
test-integrations` fills with `requirements.txt`. It prints what the code of the trainer made of
three answers, and of a fault.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.fake_grader import Service
from tests.ports import free_port
from tests.report_runs import rich_run

ROOT = Path(__file__).parents[2]
PYTHON = (
    Path(os.environ.get("GRADUS_INTEGRATIONS_VENV", ROOT / ".venv-integrations")) / "bin" / "python"
)
NEMO_GYM_PYTHON = (
    Path(os.environ.get("GRADUS_NEMO_GYM_VENV", ROOT / ".venv-nemo-gym")) / "bin" / "python"
)
PEERS = ROOT / "tests" / "integrations" / "peers"
TASKS = ROOT / "configs" / "tasks" / "ocaml.jsonl"
NEMO_GYM_PORT, FAULTY_NEMO_GYM_PORT = free_port(), free_port()
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
    ("nemo_gym",): "failure row: judge_failed",
    ("openenv",): "RuntimeError",
    ("sandbox_fusion",): "Exception",
}
"""What each client's own code makes of a fault: the beginning of its exception or failure, or None
for no reward."""


@pytest.fixture(scope="module")
def service(ocaml_grader: object, rust_grader: object) -> Iterator[str]:
    """The URL of a service with real graders. The fixtures skip where there is no compiler."""
    command = [sys.executable, "-m", "gradus", "serve", "--port", "0", "--graders", "ocaml,rust"]
    command += [
        "--adapters",
        ADAPTERS,
        "--tasks",
        f"ocaml={TASKS}",
        "--nemo-gym-port",
        f"ocaml={NEMO_GYM_PORT}",
    ]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            lines = []
            for line in process.stderr:
                lines.append(line)
                if found := re.search(r"serving on (\S+)", line):
                    threading.Thread(
                        target=process.stderr.read, daemon=True
                    ).start()  # a full pipe would stop it
                    yield found[1]
                    return
            pytest.fail("".join(lines[-5:]))
        finally:
            process.terminate()


@pytest.fixture(scope="module")
def faulty() -> Iterator[str]:
    """The URL of a service without a grader."""
    ports = f"ocaml={FAULTY_NEMO_GYM_PORT}"
    with Service(
        worker=False, adapters=tuple(ADAPTERS.split(",")), nemo_gym_ports=ports
    ).running() as running:
        yield running.url


def python_of(script: str) -> Path:
    """nemo-gym and Harbor need Python 3.12."""
    return NEMO_GYM_PYTHON if script in ("nemo_gym", "harbor") else PYTHON


def told(service: str, faulty: str, script: str, *words: str) -> Any:
    """What the script printed of a service and of one without a grader."""
    environment = {
        "GRADUS_URL": service,
        "FAULTY_URL": faulty,
        "GRADUS_GRADER": "ocaml",
        "GRADUS_DEADLINE_S": "30",
        "NEMO_GYM_PORT": str(NEMO_GYM_PORT),
        "FAULTY_NEMO_GYM_PORT": str(FAULTY_NEMO_GYM_PORT),
    }
    return run_peer(script, *words, environment=environment)


def run_peer(script: str, *words: str, environment: dict[str, str]) -> Any:
    """Return what the script printed. Skips where the trainer is not installed."""
    if not python_of(script).exists():
        pytest.skip(
            "the trainers are not installed: `make test-integrations` installs them (NeMo Gym:"
            " Python 3.12)"
        )
    command = [
        python_of(script),
        PEERS / f"{script}_peer.py",
        *words,
    ]
    done = subprocess.run(
        command,
        env={**os.environ, **environment, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    results = [
        line.removeprefix("RESULT ")
        for line in done.stdout.splitlines()
        if line.startswith("RESULT ")
    ]
    assert results, done.stderr[-3000:] + done.stdout[-1000:]
    return json.loads(results[-1])


@pytest.mark.parametrize("client", FAULTS, ids="-".join)
def test_a_trainer_gets_its_rewards(service: str, faulty: str, client: tuple[str, ...]) -> None:
    check_rewards(told(service, faulty, *client), FAULTS[client])


def check_rewards(found: dict[str, Any], fault: str | None) -> None:
    assert found["right"] == 1.0
    assert 0.0 < found["stub"] < 1.0
    assert found["broken"] == 0.0
    assert not isinstance(found["fault"], float | int)
    if fault is None:
        assert found["fault"] is None
    else:
        assert found["fault"].startswith(fault)


def test_nemo_gym_of_a_checkout_gets_its_rewards(service: str, faulty: str) -> None:
    checkout = find_checkout("nemo_gym")
    check_rewards(told(service, faulty, "nemo_gym", checkout), FAULTS[("nemo_gym",)])


CONFORMANCE = yaml.safe_load((ROOT / "docs" / "conformance.yaml").read_text())
RUN = [row["key"] for row in CONFORMANCE if row["key"] not in ("", "trl")]


@pytest.mark.parametrize("trainer", RUN)
def test_a_fault_is_in_no_baseline_and_has_no_advantage(trainer: str) -> None:
    """TRL's row is proven by test_trl.py."""
    environment = {"VERL_USE_EXTERNAL_MODULES": "gradus.integrations.verl_advantage"}
    [row] = [row for row in CONFORMANCE if row["key"] == trainer]
    for found in run_peer("advantages", trainer, environment=environment):
        check_advantages(found)
        assert bool(found["faulted"]) <= (row["leaves_out"] == "sample")


def check_advantages(found: dict[str, Any]) -> None:
    assert found["kept"] == pytest.approx(found["expected"], rel=1e-5, abs=1e-6)
    assert len(found["kept"]) > 20
    assert set(found["faulted"]) <= {0.0}
    assert found.get("tokens_in_loss", 0) == 0


def test_harbor_reads_exported_tasks(tmp_path: Path) -> None:
    image = "registry.example/gradus/grader-ocaml@sha256:" + "0" * 64
    command = [sys.executable, "-m", "gradus", "tasks", "export", str(TASKS)]
    command += ["--verifier-image", image, "--out", str(tmp_path / "tasks")]
    subprocess.run(command, cwd=ROOT, check=True, timeout=60)
    found = run_peer("harbor", str(tmp_path / "tasks"), environment={})
    assert found == {"invalid": 0, "networks": ["no-network"], "artifacts": ["/app/answer.ml"]}


EXAMPLES = sorted(
    folder.name for folder in (ROOT / "examples").iterdir() if (folder / "README.md").exists()
)


@pytest.mark.parametrize("name", [name for name in EXAMPLES if name not in ("nemo_gym", "ray")])
def test_an_example_rewards_a_right_answer(service: str, faulty: str, name: str) -> None:
    """The files run as far as the trainer goes without a GPU. Those of nemo_gym run in its client's
    test, those of ray in test_ray.py."""
    assert told(service, faulty, "examples", name)["reward"] == 1.0


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_has_a_readme_of_ten_lines(name: str) -> None:
    lines = (ROOT / "examples" / name / "README.md").read_text().splitlines()
    assert 8 <= len(lines) <= 12
    files = {
        path.name for path in (ROOT / "examples" / name).iterdir() if path.suffix in (".py", ".sh")
    }
    commands = "\n".join(lines)
    assert [file for file in files if Path(file).stem not in commands] == []


def find_checkout(trainer: str) -> str:
    """Return the folder of a trainer that is in no package index. Skips where `..._CHECKOUT` names
    none."""
    variable = f"{trainer.upper()}_CHECKOUT"
    checkout = os.environ.get(variable)
    if not checkout:
        pytest.skip(f"{variable} names no checkout of {trainer}")
    return checkout


@pytest.mark.parametrize("peer", ["slime", "miles"])
def test_slime_and_miles_leave_faults_out(service: str, faulty: str, peer: str) -> None:
    [found] = told(service, faulty, "slime_advantages", peer, find_checkout(peer))
    check_advantages(found)
    assert found["tokens_of_others"] == len(found["kept"])


def test_nemo_rl_leaves_faults_out(service: str, faulty: str) -> None:
    """Without the plug-in the 0.0 of a masked sample is in the baseline of its prompt."""
    estimators = told(service, faulty, "nemo_rl", find_checkout("nemo_rl"))
    for found in estimators:
        check_advantages(found)
        assert found["tokens_of_others"] > 0
    grpo = estimators[0]
    assert grpo["default"] != pytest.approx(grpo["expected"], rel=1e-2)


@pytest.mark.parametrize("way", ["function", "route"])
@pytest.mark.parametrize("peer", ["slime", "miles"])
def test_slime_and_miles_get_their_rewards(service: str, faulty: str, peer: str, way: str) -> None:
    found = told(service, faulty, "slime", peer, find_checkout(peer), way)
    check_rewards(found, "QueueFault" if way == "function" else "ClientResponseError")


def test_prime_rl_trains_on_what_was_graded(service: str, faulty: str) -> None:
    """A fault has no part in the group's mean."""
    found = told(service, faulty, "prime_rl", find_checkout("prime_rl"))
    assert (found["right"], found["broken"], found["fault"]) == (1.0, 0.0, "TaskError")
    assert 0.0 < found["stub"] < 1.0
    mean = (found["right"] + found["stub"] + found["broken"]) / 3
    advantages: dict[str, Any] = {
        name: pytest.approx(found[name] - mean) for name in ("right", "stub", "broken")
    }
    assert found["advantages"] == {**advantages, "fault": None}


def test_the_notebook_runs_as_a_whole(service: str, faulty: str, tmp_path: Path) -> None:
    run = rich_run(tmp_path / "runs" / "demo", steps=5)
    (tmp_path / "examples").mkdir()
    notebook = shutil.copy(ROOT / "examples" / "first_steps.ipynb", tmp_path / "examples")
    found = told(service, faulty, "notebook", str(notebook))
    right, wrong, broken = found["rewards"]
    assert right == 1.0 > wrong > broken == 0.0
    assert found["plotted"] == [
        json.loads(line)["reward"] for line in (run / "metrics.jsonl").read_text().splitlines()
    ]


def test_an_episode_of_the_open_reward_standard_ends_with_its_reward(tmp_path: Path) -> None:
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text(json.dumps({"id": "one", "prompt": "Write it.", "tests": "secret"}) + "\n")
    with Service().running() as service:
        found = run_peer("openreward", str(tasks), service.url, environment={})
    assert found["tasks"] == [{"id": "one", "prompt": "Write it."}]
    assert found["tools"] == ["check"]
    assert found["prompt"] == "Write it."
    assert [found["right"], found["half"]] == [[1.0, True], [0.5, True]]
    assert found["fault"][1] is None
    assert found["check"][:2] == found["second check"][:2] == [None, False]
    assert "0 checks left" in found["check"][2]
    assert found["second check"][2] == "no check is left for one"
    assert "secret" not in json.dumps(found)


def test_an_agent_checks_and_submits_over_mcp(tmp_path: Path) -> None:
    tasks = tmp_path / "tasks.jsonl"
    results = tmp_path / "results.jsonl"
    tasks.write_text(json.dumps({"id": "one", "prompt": "Write it.", "tests": "secret"}) + "\n")
    with Service().running() as service:
        words = (str(tasks), service.url, str(results), str(ROOT))
        found = run_peer("mcp", *words, environment={})
    assert found["tools"] == ["check", "read_task", "submit"]
    errors = {name: found[name][0] for name in found if name != "tools"}
    assert errors == {
        "read": False,
        "check": False,
        "second check": True,
        "fault": True,
        "submit": False,
        "unknown": True,
    }
    assert "1 submissions left" in found["submit"][1]
    assert "secret" not in json.dumps(found)
    assert json.loads(results.read_text())["result"]["reward"] == 0.5


def test_verifiers_loads_the_wheel_of_tasks_as_an_environment(service: str, tmp_path: Path) -> None:
    build = [sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", tmp_path]
    subprocess.run([*map(str, build), str(ROOT / "envs")], check=True, capture_output=True)
    [wheel] = tmp_path.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(tmp_path / "packages")
    shipped = tmp_path / "packages" / "gradus_envs" / "tasks" / "ocaml.jsonl"
    environment = {"GRADUS_URL": service, "SHIPPED": str(shipped)}
    found = run_peer("envs", environment=environment)
    assert found["tasks"] == len(shipped.read_text().splitlines())
    assert found["reward"] == 1.0
