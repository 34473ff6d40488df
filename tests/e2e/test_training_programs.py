"""Two steps of GRPO on program tasks, with a tiny model on the CPU and the real grader behind the
API."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from services.graders.program.grader import ProgramGrader
from tests.conftest import Cli
from tests.grader_service import serve_grader
from trainer.config.run import FreshModel
from trainer.models.fresh import make_fresh_model

pytestmark = pytest.mark.training
PAGE = Path(__file__).parents[2] / "docs" / "programs.md"
STEPS = 2
CHARACTERS = [f"{digit}\n" for digit in range(10)]
"""Text of the tokenizer. A model that knows nothing then writes digits, some of them alone."""


def read_documented_config() -> dict[str, Any]:
    """Return the configuration that docs/programs.md shows."""
    blocks = PAGE.read_text().split("```yaml\n")[1:]
    [text] = [block.partition("```")[0] for block in blocks if "reward:" in block]
    found: dict[str, Any] = yaml.safe_load(text)
    return found


def test_two_steps_learn_from_rewards_of_the_program_grader(
    program_grader: ProgramGrader, gradus: Cli, tmp_path: Path
) -> None:
    sizes = FreshModel(
        hidden_size=32, intermediate_size=64, layers=1, heads=2, kv_heads=1, vocab_size=300
    )
    make_fresh_model("qwen3", sizes, CHARACTERS, tmp_path / "model", seed=1)
    tasks = []
    for number in range(4):
        about = {"id": f"t{number}", "prompt": f"# print {number}", "language": "python"}
        tasks.append({**about, "cases": [{"stdout": str(number)}]})
    file = tmp_path / "tasks.jsonl"
    file.write_text("".join(json.dumps(task) + "\n" for task in tasks))
    config = read_documented_config()
    config["model"] = {"name": str(tmp_path / "model"), "cpu_threads": 1}
    config["data"] = {"dataset": str(file)}
    config["grpo"] |= {
        "max_steps": STEPS,
        "num_generations": 8,
        "per_device_train_batch_size": 16,
        "max_completion_length": 2,
        "learning_rate": 1e-2,
    }
    config["output_dir"] = str(tmp_path / "run")
    with serve_grader(program_grader) as url:
        config["reward"]["urls"] = url
        path = tmp_path / "run.yaml"
        path.write_text(yaml.safe_dump(config))
        said = gradus("train", path)
        assert said.status == 0, said.err
        said = gradus("replay", tmp_path / "run", "--url", url)
        assert said.status == 0, said.err
    metrics = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    steps = [json.loads(line) for line in metrics if '"reward"' in line]
    assert len(steps) == STEPS
    assert max(step["reward"] for step in steps) > 0, "a digit is a program that compiles"
    assert max(step["grad_norm"] for step in steps) > 0, "answers of one group differ"
