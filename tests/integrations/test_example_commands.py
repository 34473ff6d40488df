"""The commands of each examples/NAME/README.md, as they are written there.

They run in a network namespace of their own, so that their ports are free. What follows `gradus
serve ... &` starts once that serves. Without a GPU, a hub or a key the last command of some cannot
run to its end; those are listed with the reason, and all before them run.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integrations.test_peers import EXAMPLES, NEMO_GYM_PYTHON, PEERS, PYTHON, ROOT

pytestmark = pytest.mark.slow

LAST_NEEDS = {
    "areal": "a GPU",
    "openenv": "fastmcp, which openenv asks for beside its client",
    "openrlhf": "a GPU",
    "skyrl": "a GPU",
    "slime": "a GPU",
    "tinker": "a key of Tinker",
    "trl": "a model of the hub",
    "verifiers": "a model of Prime's inference",
    "verl": "a GPU",
}
"""Examples whose last command does not run here, and what it needs."""
ISOLATE = ["unshare", "--net"]
if os.geteuid():
    ISOLATE += ["--user", "--map-current-user", "--keep-caps"]
SCRIPT = """
ip link set lo up
{python} - <<'END' &
import pathlib, time
from tests.fake_openai_server import OpenAiLike
with OpenAiLike(lambda prompt, body, times: "let f x = x").serving() as model:
    pathlib.Path("model.url").write_text(model.url)
    time.sleep(600)
END
model=$!
{serve} 2> serve.log &
server=$!
trap 'kill $(jobs -p); wait $server' EXIT
until curl -sf http://127.0.0.1:8000/readyz > /dev/null && test -s model.url; do
  kill -0 $server && kill -0 $model || {{ cat serve.log >&2; exit 1; }}
  sleep 0.2
done
export OPENAI_BASE_URL=$(cat model.url) OPENAI_API_KEY=any
{commands}
"""
"""A server stands for OpenAI's where an example asks a model."""
RESPONSES = f"""
{sys.executable} -m uvicorn --app-dir {PEERS} --port 8001 --log-level error repeater:model &
until curl -s http://127.0.0.1:8001 > /dev/null; do kill -0 $! && sleep 0.2; done
"""
"""Start of a server of `/v1/responses`, which NeMo Gym's agent asks."""


def read_commands(name: str) -> tuple[str, list[str]]:
    """Return the command that serves and those after it."""
    text = (ROOT / "examples" / name / "README.md").read_text()
    block = re.search(r"```sh\n(.*?)```", text, re.DOTALL)
    assert block is not None
    serve, *commands = block[1].splitlines()
    assert serve.startswith("gradus serve ")
    return serve.removesuffix(" &"), commands


def run_isolated(script: str, folder: Path, python: Path) -> str:
    path = f"{python.parent}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    settings = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [*ISOLATE, "bash", "-ec", script],
        cwd=folder,
        env=settings,
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr[-3000:] + done.stdout[-1000:]
    return done.stdout


@pytest.mark.parametrize("name", [name for name in EXAMPLES if name != "ray"])
def test_the_commands_of_a_readme_run(name: str, tmp_path: Path, ocaml_grader: object) -> None:
    python = NEMO_GYM_PYTHON if name == "nemo_gym" else PYTHON
    if not python.exists():
        pytest.skip("the trainers are not installed: `make test-integrations` installs them")
    for shared in ("examples", "configs"):
        (tmp_path / shared).symlink_to(ROOT / shared)
    serve, commands = read_commands(name)
    if name in LAST_NEEDS:
        commands.pop()
    if name == "nemo_gym":
        commands.insert(0, RESPONSES)
    script = SCRIPT.format(python=sys.executable, serve=serve, commands="\n".join(commands))
    run_isolated(script, tmp_path, python)
    if name == "nemo_gym":
        rows, rollouts = (tmp_path / f"{file}.jsonl" for file in ("rows", "rollouts"))
        assert len(rollouts.read_text().splitlines()) == len(rows.read_text().splitlines())
