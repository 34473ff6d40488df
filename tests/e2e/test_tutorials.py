"""The tutorials on one's own tasks: the commands of each page, run in an empty folder in their
order, lead to graded answers, a trained step and a report."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from gradus.errors import Fault
from tests.ports import free_port

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "tutorials"
LIMIT_S = 900
"""Seconds for a tutorial on a busy machine, as its first lines promise; nothing waits for them to
pass."""
pytestmark = [pytest.mark.training, pytest.mark.timeout(2 * LIMIT_S)]
TUTORIALS = {
    "own_tasks": "ocaml",
    "rust_tasks": "rust",
    "program_tasks": "program",
    "story_tasks": "story",
}


def list_blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page, re.DOTALL | re.MULTILINE)


def run_page(page: str, folder: Path) -> str:
    """Run the commands of a page as one script, on another port; returns what they print."""
    (folder / "configs").symlink_to(ROOT / "configs")
    (folder / "bin").mkdir()
    program = folder / "bin" / "gradus"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m gradus "$@"\n')
    program.chmod(0o755)
    script = "".join(list_blocks(page, "sh")).replace("8000", str(free_port()))
    environment = {
        **os.environ,
        **{"PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)},
    }
    done = subprocess.run(
        [
            "bash",
            "-c",
            f"set -euo pipefail\ntrap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n{script}",
        ],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name == "own_tasks" else pytest.mark.slow)
        for name in TUTORIALS
    ],
)
def test_a_tutorial_leads_from_nothing_to_a_report(
    name: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    grader = request.getfixturevalue(f"{TUTORIALS[name]}_grader")
    try:
        grader.self_test()
    except Fault as fault:
        pytest.skip(f"the grader does not serve here: {fault.message}")
    page = (FOLDER / f"{name}.md").read_text(encoding="utf-8")
    printed = run_page(page, tmp_path)
    assert list_blocks(page, "text")[0] in printed, "the page shows what the doctor prints"
    [result] = map(json.loads, (tmp_path / "results.jsonl").read_text().splitlines())
    assert result["status"] == "graded"
    assert 0 < result["reward"] < 1
    for shown in re.findall(r'`"reward": ([0-9.]+)`', page):
        assert result["reward"] == pytest.approx(float(shown), abs=0.001)
    steps = (tmp_path / "runs/first_step/metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in steps if "reward" in line] == [1]
    assert "<html" in (tmp_path / "runs/first_step/report.html").read_text()
