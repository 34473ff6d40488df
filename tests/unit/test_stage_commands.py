"""`gradus train STAGE`, `gradus merge` and `gradus model` on the command line: what they print and
how they refuse."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.training

Run = Callable[..., Any]
SFT = """
stage: sft
model: fresh:qwen3
data: {dataset: rows.jsonl}
sft: {max_steps: 2}
output_dir: runs/x
"""


@pytest.fixture
def config(tmp_path: Path) -> str:
    rows = [{"prompt": f"p{n}", "completion": "c"} for n in range(8)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "run.yaml").write_text(SFT)
    return str(tmp_path / "run.yaml")


def test_a_stage_before_the_config_is_checked_and_overrides_come_after(
    gradus: Run, config: str
) -> None:
    said = gradus("train", "sft", config, "--dry-run", "--learning_rate", "1e-3")
    assert said.status == 0
    assert json.loads(said.out)["sft"] == {"max_steps": 2, "learning_rate": 1e-3}
    assert "ok     data: 8 rows to train on, 0 held out" in said.err
    said = gradus("train", "dpo", config)
    assert said.status == 2
    assert "is not for dpo: it says stage: sft" in said.err


@pytest.mark.parametrize(
    "argv", [("train", "sft"), ("train", "sft", "--dry-run"), ("train", "rloo", "--beta", "1")]
)
def test_a_stage_alone_asks_for_a_config(gradus: Run, argv: tuple[str, ...]) -> None:
    said = gradus(*argv)
    assert said.status == 2
    assert "name the config" in said.err


def test_ppo_says_what_to_take_instead(gradus: Run, tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text("stage: ppo\n")
    said = gradus("train", "ppo", str(tmp_path / "run.yaml"))
    assert said.status == 2
    assert "PPO is no longer in TRL" in said.err
    assert "rloo" in gradus("train", "--help").out


def test_a_dry_run_with_bad_rows_names_the_line(gradus: Run, config: str) -> None:
    with (Path(config).parent / "rows.jsonl").open("a") as handle:
        handle.write('{"prompt": "p"}\n')
    said = gradus("train", config, "--dry-run")
    assert said.status == 2
    assert "rows.jsonl:9: completion: is missing or empty" in said.err


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (("merge", "nowhere"), "nowhere: holds no adapter"),
        (
            ("merge", "nowhere", "--dtype", "int8"),
            "--dtype int8: use one of auto, float32, float16, bfloat16",
        ),
        (("model", "nowhere.yaml", "--out", "x"), "nowhere.yaml: there is no such file"),
    ],
)
def test_what_is_not_there_is_refused(gradus: Run, argv: tuple[str, ...], says: str) -> None:
    said = gradus(*argv)
    assert said.status == 2
    assert says in said.err


def test_a_new_model_is_counted(gradus: Run, tmp_path: Path) -> None:
    from trainer.config.run import FreshModel
    from trainer.models.fresh import train_tokenizer

    train_tokenizer(["let x = 1"], FreshModel(vocab_size=280)).save_pretrained(tmp_path / "words")
    (tmp_path / "model.yaml").write_text(
        "architecture: llama\nsizes: {hidden_size: 64, intermediate_size: 96, num_hidden_layers: 1,"
        " num_attention_heads: 2}\ntokenizer: words\n"
    )
    said = gradus(
        "model", str(tmp_path / "model.yaml"), "--out", str(tmp_path / "made"), "--dry-run"
    )
    # The embedding and the head, four projections of attention, three of the layer, three norms.
    words = int(said.out.split()[0].replace(",", "")) - 4 * 64 * 64 - 3 * 64 * 96 - 3 * 64
    assert words % (2 * 64) == 0
    assert 259 <= words // (2 * 64) <= 280
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("stage", ["sft", "dpo", "reward"])
def test_a_preset_takes_the_place_of_a_config(
    gradus: Run, config: str, tmp_path: Path, stage: str
) -> None:
    rows = [{"prompt": f"p{n}", "chosen": "c", "rejected": "r"} for n in range(20)]
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    dataset = str(tmp_path / ("rows.jsonl" if stage == "sft" else "pairs.jsonl"))
    words = [
        "train",
        stage,
        "--model",
        "fresh:qwen3",
        "--dataset",
        dataset,
        "--dry-run",
        "--data.held_out",
        "0.3",
    ]
    quick, standard = (gradus(*words, "--preset", name) for name in ("quick", "standard"))
    assert (quick.status, standard.status) == (0, 0), quick.err + standard.err
    told = [json.loads(said.out) for said in (quick, standard)]
    section = {"reward": "reward_model"}.get(stage, stage)
    assert [one["data"]["limit"] for one in told] == [500, None]
    assert [one[section]["num_train_epochs"] for one in told] == [1.0, 3.0]
    assert told[0]["output_dir"] == f"runs/{stage}-fresh-qwen3-{Path(dataset).stem}"
    named = gradus(
        *words, "--preset", "quick", "--output_dir", "runs/mine", "--num_train_epochs", "2"
    )
    assert json.loads(named.out)["output_dir"] == "runs/mine"
    assert json.loads(named.out)[section]["num_train_epochs"] == 2.0


def test_a_preset_says_what_it_lacks(gradus: Run) -> None:
    for words, why in (
        (("train", "sft", "--preset", "quick", "--model", "m"), "needs --model and --dataset"),
        (("train", "sft", "--preset", "fast", "--model", "m"), "use one of quick, standard"),
        (
            ("train", "grpo", "--preset", "quick", "--model", "m"),
            "give a STAGE before the options, one of sft, dpo",
        ),
        (("train", "sft", "--model", "m"), "or give --preset quick"),
    ):
        said = gradus(*words)
        assert said.status == 2
        assert why in said.err
