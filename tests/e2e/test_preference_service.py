"""From pairs to a policy: a reward model is trained, served over REST beside the OCaml grader, and
learned from."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from gradus.errors import Misuse
from services.graders.ocaml.grader import OcamlGrader
from tests.conftest import Cli
from tests.tiny_models import make_model, reward_model_scores
from trainer.runs.folder import read_lines
from trainer.train import main

pytestmark = pytest.mark.training

PROMPTS = [f"(* add {n} *)" for n in range(8)]
PAIRS = [
    {"prompt": prompt, "chosen": "let f x = x", "rejected": "let let let"} for prompt in PROMPTS
]
TASKS = [
    {"id": f"t{n}", "prompt": prompt, "tests": f"let () = assert (f 1 = {n + 1})"}
    for n, prompt in enumerate(PROMPTS)
]
OPTIONS = {
    "num_generations": 4,
    "per_device_train_batch_size": 8,
    "max_completion_length": 6,
    "learning_rate": 1e-2,
}
CPU = {"device": "cpu", "cpu_threads": 1}


def jsonl(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def written(path: Path, **told: Any) -> Path:
    path.write_text(yaml.safe_dump(told))
    return path


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model("qwen3", tmp_path_factory.mktemp("models") / "policy")


@pytest.fixture(scope="module")
def judge(policy: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `gradus train reward` makes of the pairs."""
    folder = tmp_path_factory.mktemp("judge")
    config = written(
        folder / "reward.yaml",
        stage="reward",
        model={"name": str(policy), **CPU},
        data={"dataset": str(jsonl(folder / "pairs.jsonl", PAIRS))},
        reward_model={"max_steps": 6, "learning_rate": 1e-2, "save_strategy": "no"},
        output_dir=str(folder / "judge"),
    )
    assert main(config, stage="reward") == 0
    return folder / "judge" / "final"


@pytest.fixture(scope="module")
def url(judge: Path, ocaml_grader: OcamlGrader) -> Iterator[str]:
    """`gradus serve` in a process of its own, with that model."""
    told = {"GRADUS_PREFERENCE_MODEL": str(judge), "GRADUS_PREFERENCE_DEVICE": "cpu"}
    command = [
        sys.executable,
        "-m",
        "gradus",
        "serve",
        "--port",
        "0",
        "--graders",
        "ocaml,preference",
    ]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), **told}
    with subprocess.Popen(command, env=environment, text=True, stderr=subprocess.PIPE) as running:
        assert running.stderr is not None
        said = ""
        for line in running.stderr:
            said += line
            if found := re.search(r"serving on (http://\S+)", line):
                yield found[1]
                break
        else:
            raise AssertionError(said)
        running.send_signal(signal.SIGTERM)
        running.communicate(timeout=60)
        assert running.returncode == 0


@pytest.mark.parametrize("style", ["plain", "chat"])
def test_a_policy_learns_from_a_grader_and_a_served_reward_model(
    style: str, url: str, judge: Path, policy: Path, tmp_path: Path, gradus: Cli
) -> None:
    config = written(
        tmp_path / "run.yaml",
        model={"name": str(policy), **CPU},
        data={"dataset": str(jsonl(tmp_path / "tasks.jsonl", TASKS))},
        prompt={"style": style},
        reward={
            "grader": "ocaml",
            "urls": url,
            "services": [{"grader": "preference", "weight": 0.5, "name": "judge"}],
        },
        grpo={**OPTIONS, "max_steps": 2},
        output_dir=str(tmp_path / "run"),
    )
    assert main(config) == 0
    lines = read_lines(tmp_path / "run" / "metrics.jsonl")
    assert [line["step"] for line in lines] == [1, 2]
    for line in lines:
        assert (line["judge/faulted"], line["gradus/faulted"]) == (0, 0)
        weighed = line["rewards/gradus/mean"] + 0.5 * line["rewards/judge/mean"]
        assert line["reward"] == pytest.approx(weighed, rel=1e-4)
        assert line["judge/component/score"] + line["judge/component/squashed"] == pytest.approx(
            line["rewards/judge/mean"], abs=1e-4
        )
    assert "grading by preference@" in (tmp_path / "run" / "training.log").read_text()

    samples = read_lines(tmp_path / "run" / "completions.jsonl")
    told = [sample["services"]["judge"] for sample in samples]
    prompts = [sample["prompt"] for sample in samples]
    assert all(isinstance(prompt, str if style == "plain" else list) for prompt in prompts)
    completions = [
        sample["completion"]
        if style == "plain"
        else [{"role": "assistant", "content": sample["completion"]}]
        for sample in samples
    ]
    there = [one["components"]["score"] for one in told]
    assert there == pytest.approx(reward_model_scores(judge, prompts, completions), abs=1e-5)
    assert {one["rubric"] for one in told} == {"preference/sigmoid@1"}

    assert gradus("report", tmp_path / "run").status == 0
    replayed = gradus("replay", tmp_path / "run")
    assert replayed.status == 0, replayed.err


def test_a_served_reward_model_is_enough_to_learn_from(
    url: str, policy: Path, tmp_path: Path
) -> None:
    config = written(
        tmp_path / "run.yaml",
        stage="rloo",
        model={"name": str(policy), **CPU},
        data={
            "dataset": str(
                jsonl(tmp_path / "prompts.jsonl", [{"prompt": prompt} for prompt in PROMPTS])
            )
        },
        reward={"services": [{"grader": "preference", "urls": url}]},
        rloo={**OPTIONS, "max_steps": 2},
        output_dir=str(tmp_path / "run"),
    )
    assert main(config) == 0
    for line in read_lines(tmp_path / "run" / "metrics.jsonl"):
        assert line["reward"] == pytest.approx(line["rewards/preference/mean"], rel=1e-4)


def test_a_dry_run_tells_of_every_service(
    url: str, policy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told: dict[str, Any] = {
        "model": {"name": str(policy), **CPU},
        "data": {"dataset": str(jsonl(tmp_path / "tasks.jsonl", TASKS))},
        "grpo": OPTIONS,
        "output_dir": str(tmp_path / "run"),
    }
    judges = [
        {"grader": "preference"},
        {"grader": "preference", "urls": "http://127.0.0.1:1", "name": "away"},
    ]
    reward = {"grader": "ocaml", "urls": url, "services": judges}
    assert main(written(tmp_path / "run.yaml", **told, reward=reward), dry_run=True) == 3
    said = capsys.readouterr().err
    assert re.search(
        r"ok     service preference: preference@\w+ at http://\S+, rubric preference/sigmoid@1",
        said,
    )
    assert "FAILED service away: " in said
    reward["services"] = [{"grader": "preference", "rubric": "preference/other@1"}]
    assert main(written(tmp_path / "run.yaml", **told, reward=reward), dry_run=True) == 2
    assert "reward.services.rubric: preference@" in capsys.readouterr().err


def test_a_service_that_is_away_stops_the_run_before_it_begins(
    url: str, policy: Path, tmp_path: Path
) -> None:
    config = written(
        tmp_path / "run.yaml",
        model={"name": str(policy), **CPU},
        data={"dataset": str(jsonl(tmp_path / "tasks.jsonl", TASKS))},
        reward={
            "grader": "ocaml",
            "urls": url,
            "ready_timeout_s": 0.5,
            "services": [{"grader": "preference", "urls": "http://127.0.0.1:1"}],
        },
        grpo={**OPTIONS, "max_steps": 2},
        output_dir=str(tmp_path / "run"),
    )
    assert main(config) == 3
    said = (tmp_path / "run" / "training.log").read_text()
    assert "start `gradus worker preference --redis" in said
    assert not read_lines(tmp_path / "run" / "metrics.jsonl")


def test_a_faulted_verdict_of_a_service_leaves_the_completion_without_any_reward(
    policy: Path, tmp_path: Path
) -> None:
    import torch

    from tests.tiny_models import trainer_of

    async def judged(completions: list[str], **columns: Any) -> list[float | None]:
        return [1.0] * len(completions)

    async def further(completions: list[str], **columns: Any) -> list[float | None]:
        return [None if n % 2 else 0.5 for n in range(len(completions))]

    def scores(completions: list[str], **columns: Any) -> list[float]:
        return [5.0] * len(completions)

    trainer = trainer_of(policy, tmp_path, reward_funcs=[judged, further, scores])
    trainer.graders = 2
    rows = [{"prompt": "p", "prompt_id": "p"}] * 4
    rewards = trainer._calculate_rewards(rows, ["p"] * 4, ["a", "b", "c", "d"], [[1]] * 4)
    assert rewards[0::2].tolist() == [[1.0, 0.5, 5.0]] * 2
    assert torch.isnan(rewards[1::2]).all()


def test_the_grader_of_tasks_cannot_be_a_reward_model(policy: Path, tmp_path: Path) -> None:
    config = written(
        tmp_path / "run.yaml",
        model=str(policy),
        data={"dataset": str(jsonl(tmp_path / "tasks.jsonl", TASKS))},
        reward={"grader": "preference"},
        output_dir=str(tmp_path / "run"),
    )
    with pytest.raises(Misuse, match=r"reward: a reward model judges no tasks: write services"):
        main(config, dry_run=True)
