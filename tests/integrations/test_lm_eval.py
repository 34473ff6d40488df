"""lm-eval's own code on a model's folder: the command of docs/evaluation.md, and a gate on what it
leaves."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.conftest import Cli
from tests.integrations.test_peers import PYTHON, ROOT
from tests.tiny_models import make_model

CASES = ROOT / "tests" / "cases" / "lm_eval"

pytestmark = pytest.mark.slow


@pytest.mark.skipif(not PYTHON.exists(), reason="needs `make test-integrations`")
def test_a_gate_reads_what_lm_eval_leaves(
    gradus: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    make_model("llama", tmp_path / "runs" / "my" / "final")
    for name in ("own_questions.yaml", "questions.jsonl"):
        shutil.copy(CASES / name, tmp_path)
    command = "--model hf --model_args pretrained=runs/my/final --tasks own_questions.yaml"
    command += " --output_path runs/eval/questions --log_samples --device cpu"
    done = subprocess.run(
        [PYTHON.with_name("lm_eval"), *command.split()],
        env={**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "hf")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=250,
    )
    assert done.returncode == 0, done.stdout
    gate = {
        "name": "questions",
        "of": "runs/eval/questions",
        "against": "runs/eval/questions",
        "metric": "results.own_questions.acc,none",
        "at_least": -0.5,
    }
    Path("gates.yaml").write_text(json.dumps({"model": "runs/my/final", "gates": [gate]}))
    ended = gradus("gate", "gates.yaml")
    assert ended.status == 0, ended.out
    record = json.loads(Path("promotion.json").read_text())
    assert [found["passed"] for found in record["gates"]] == [True]
    assert record["evidence"][0]["model_name"] == "runs/my/final"
    assert record["evidence"][0]["task_hashes"]["own_questions"]
