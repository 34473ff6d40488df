"""Preference pairs from graded completions, and that TRL's DPO reads them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gradus.errors import Misuse
from trainer.evaluate.completion_store import write_lines
from trainer.evaluate.pairs import build_preference_pairs, main
from trainer.rewards.judge import Record


def answer(
    reward: float,
    text: str = "",
    task: str = "t",
    *,
    passed: bool | None = None,
    prompt: Any = "Do it.",
) -> Record:
    return {
        "prompt_id": task,
        "prompt": prompt,
        "completion": text or f"answer worth {reward}",
        "reward": reward,
        "passed": reward == 1 if passed is None else passed,
    }


def made(*answers: Record, min_margin: float = 0.05, max_per_task: int = 1) -> list[dict[str, Any]]:
    return list(build_preference_pairs(answers, min_margin, max_per_task))


def rewards(rows: list[dict[str, Any]]) -> list[tuple[float, float]]:
    return [(row["chosen_reward"], row["rejected_reward"]) for row in rows]


def test_the_best_is_chosen_over_the_worst() -> None:
    (row,) = made(answer(0.25), answer(1.0), answer(0.0), answer(0.5))
    assert row == {
        "prompt": "Do it.",
        "chosen": "answer worth 1.0",
        "rejected": "answer worth 0.0",
        "prompt_id": "t",
        "chosen_reward": 1.0,
        "rejected_reward": 0.0,
        "margin": 1.0,
        "chosen_passed": True,
        "rejected_passed": False,
    }


def test_more_pairs_of_a_task_share_no_completion() -> None:
    some = [answer(reward / 10) for reward in range(5)]
    assert rewards(made(*some, max_per_task=9)) == [(0.4, 0.0), (0.3, 0.1)]


@pytest.mark.parametrize(("margin", "count"), [(0.0, 1), (0.1, 1), (0.1 + 1e-12, 1), (0.11, 0)])
def test_a_margin_is_kept(margin: float, count: int) -> None:
    assert len(made(answer(0.3), answer(0.2), min_margin=margin)) == count


def test_alike_rewards_make_no_pair_even_without_a_margin() -> None:
    assert made(answer(0.5, "a"), answer(0.5, "b"), min_margin=0.0) == []
    assert made(answer(0.5)) == []


def test_what_passed_goes_before_what_did_not() -> None:
    (row,) = made(answer(0.7, passed=True), answer(0.1), answer(0.6))
    assert (row["chosen_reward"], row["rejected_reward"]) == (0.7, 0.1)


def test_a_completion_counts_once_and_prompts_are_kept_apart() -> None:
    some = [
        answer(1.0),
        answer(1.0),
        answer(0.0),
        answer(0.2, task="u"),
        answer(1.0, prompt="Do that."),
        answer(0.0),
    ]
    (row,) = made(*some, max_per_task=2)
    assert (row["chosen_reward"], row["rejected_reward"]) == (1.0, 0.0)


def test_chats_are_rows_of_messages() -> None:
    chat = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Do it."}]
    (row,) = made(answer(1.0, prompt=chat), answer(0.0, prompt=chat))
    assert row["prompt"] == chat
    assert row["chosen"] == [{"role": "assistant", "content": "answer worth 1.0"}]


# ---------------------------------------------------------------------------------------- the file


def record(reward: float | None, completion: Any = None, **changed: Any) -> dict[str, Any]:
    text = f"worth {reward}" if completion is None else completion
    base = {
        "prompt_id": "t",
        "prompt": "Do it.",
        "completion": text,
        "reward": reward,
        "passed": reward == 1,
        "fault": None,
    }
    return base | changed


def test_faults_and_what_was_never_written_are_not_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fault = record(None, "a fault", fault={"kind": "worker", "message": "gone"})
    lost = record(None, "", status="generation_error", error={"kind": "timeout", "message": "late"})
    write_lines(tmp_path / "completions.jsonl", [record(0.5), fault, lost, record(1.0)])
    out = tmp_path / "out" / "pairs.jsonl"
    assert main([tmp_path], out, 0.05, 1) == 0
    (row,) = [json.loads(line) for line in out.read_text().splitlines()]
    assert (row["chosen"], row["rejected"], row["margin"]) == ("worth 1.0", "worth 0.5", 0.5)
    said = capsys.readouterr().out.splitlines()
    assert said[-1] == str(out)
    assert said[0] == "1 pairs of 2 completions with a verdict"


def test_no_pair_at_all_is_status_one_and_an_empty_file(tmp_path: Path) -> None:
    write_lines(tmp_path / "x.jsonl", [record(0.5)])
    assert main([tmp_path / "x.jsonl"], tmp_path / "pairs.jsonl", 0.05, 1) == 1
    assert (tmp_path / "pairs.jsonl").read_text() == ""


def test_several_inputs_are_one(tmp_path: Path) -> None:
    write_lines(tmp_path / "a.jsonl", [record(0.5)])
    write_lines(
        tmp_path / "b.jsonl",
        [record(1.0, [{"role": "assistant", "content": "in a chat"}]), record(0.5)],
    )
    assert (
        main([tmp_path / "a.jsonl", tmp_path / "b.jsonl"], tmp_path / "pairs.jsonl", 0.05, 1) == 0
    )
    assert json.loads((tmp_path / "pairs.jsonl").read_text())["chosen"] == "in a chat"


@pytest.mark.parametrize(
    "broken",
    [
        {},
        {"prompt": "x"},
        record(1.0, 7),
        record(1.0, prompt=""),
        record(1.0, prompt=[]),
        record(1.0, prompt=[1]),
    ]
    + [record(1.0) | {"reward": "1"}, record(1.0) | {"reward": True}],
)
def test_what_is_no_graded_completion_is_refused_with_its_line(
    tmp_path: Path, broken: dict[str, Any]
) -> None:
    write_lines(tmp_path / "x.jsonl", [record(1.0), broken])
    with pytest.raises(Misuse, match=r"x\.jsonl:2"):
        main([tmp_path / "x.jsonl"], tmp_path / "pairs.jsonl", 0.05, 1)


@pytest.mark.training
@pytest.mark.parametrize(
    "prompt",
    [
        [{"role": "user", "content": "Do it."}],
        pytest.param("Do it.", marks=pytest.mark.slow),
    ],
)
def test_trls_dpo_reads_them(tmp_path: Path, prompt: Any) -> None:
    from datasets import load_dataset
    from trl import DPOConfig, DPOTrainer

    from tests.tiny_models import make_model
    from trainer.config.run import ModelConfig
    from trainer.models.loading import load_model, load_tokenizer

    write_lines(tmp_path / "x.jsonl", [record(1.0, prompt=prompt), record(0.0, prompt=prompt)])
    main([tmp_path / "x.jsonl"], tmp_path / "pairs.jsonl", 0.05, 1)
    rows = load_dataset(
        "json",
        data_files=str(tmp_path / "pairs.jsonl"),
        split="train",
        cache_dir=str(tmp_path / "cache"),
    )
    settings = ModelConfig(name=str(make_model("qwen3", tmp_path / "model")), device="cpu")
    made = DPOTrainer(
        model=load_model(settings.name, settings, "float32"),
        args=DPOConfig(
            output_dir=str(tmp_path / "out"), max_steps=1, report_to=[], use_cpu=True, bf16=False
        ),
        train_dataset=rows,
        processing_class=load_tokenizer(settings.name, settings),
    )
    assert made.train().global_step == 1
