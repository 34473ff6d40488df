"""Reward models as a source of reward: the trained head or none, scores as in training, and faults
that stay faults."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from gradus.errors import Misuse
from tests.tiny_models import make_model, reward_model_scores
from trainer.config.run import PromptConfig, RewardConfig, RewardModelConfig
from trainer.data.tasks import Example
from trainer.rewards.judges import Judges
from trainer.runs.folder import read_lines
from trainer.train import main

pytestmark = pytest.mark.training

PROMPTS = [f"(* add {n} *)" for n in range(12)]
PAIRS = [
    {"prompt": prompt, "chosen": "let f x = x", "rejected": "let let let"} for prompt in PROMPTS
]


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model("qwen3", tmp_path_factory.mktemp("models") / "policy")


@pytest.fixture(scope="module", params=["whole", "adapter"])
def judge(
    request: pytest.FixtureRequest, policy: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A reward model that a run of ours trained, whole or as an adapter."""
    folder = tmp_path_factory.mktemp(request.param)
    (folder / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in PAIRS))
    told: dict[str, Any] = {
        "stage": "reward",
        "model": {"name": str(policy), "device": "cpu", "cpu_threads": 1},
        "data": {"dataset": "pairs.jsonl"},
        "reward_model": {"max_steps": 6, "learning_rate": 1e-2, "save_strategy": "no"},
        "output_dir": str(folder / "judge"),
        **({"lora": {"r": 4}} if request.param == "adapter" else {}),
    }
    (folder / "run.yaml").write_text(yaml.safe_dump(told))
    assert main(folder / "run.yaml") == 0
    return folder / "judge" / "final"


def loaded(path: Path, **more: Any) -> Any:
    """The grader `preference` with that model, as a run asks it."""
    from trainer.config.device import Device
    from trainer.rewards.judges import open_reward_model

    return open_reward_model(RewardModelConfig(path=str(path), **more), Device("cpu", False, False))


def model_of(grader: Any) -> Any:
    """The reward model in a grader of this process."""
    return grader._grader.model


def scored(grader: Any, prompts: Sequence[str], completions: Sequence[str]) -> list[float | None]:
    """What TRL gets of a reward model."""
    config = RewardConfig(models=[RewardModelConfig(path="judge", name="judge")])
    examples = [Example(f"t{number}", prompt, None) for number, prompt in enumerate(prompts)]
    judge = Judges(config, {one.id: one for one in examples}, PromptConfig()).make_model_judge(
        config.models[0], grader
    )
    columns = {
        "prompt_id": [one.id for one in examples],
        "trainer_state": SimpleNamespace(global_step=0),
    }
    told: dict[str, Any] = {
        "prompts": prompts,
        "completions": completions,
        "log_metric": lambda name, value: None,
    }
    return asyncio.run(judge.compute_rewards(**told, **columns))


# ---------------------------------------------------------------------------------------- the head


def test_the_head_that_was_trained_is_the_head_that_judges(judge: Path, policy: Path) -> None:
    from safetensors.torch import load_file

    model = model_of(loaded(judge)).model
    saved = {
        name: weight
        for file in judge.glob("*.safetensors")
        for name, weight in load_file(file).items()
    }
    heads = [weight for name, weight in saved.items() if "score" in name.split(".")]
    assert len(heads) == 1
    assert model.score.weight.equal(heads[0])
    prompts = [row["prompt"] for row in PAIRS]
    better = reward_model_scores(judge, prompts, [row["chosen"] for row in PAIRS])
    worse = reward_model_scores(judge, prompts, [row["rejected"] for row in PAIRS])
    assert min(better) > max(worse)


def test_a_model_of_texts_is_refused_for_its_head_would_be_random(policy: Path) -> None:
    with pytest.raises(
        Misuse, match=r"reward.models: .*policy: has no trained head, so its scores would be random"
    ):
        loaded(policy)


def test_a_checkpoint_that_lost_its_head_is_refused(judge: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    copy = tmp_path / "beheaded"
    shutil.copytree(judge, copy)
    for file in copy.glob("*.safetensors"):
        save_file(
            {name: weight for name, weight in load_file(file).items() if "score" not in name}, file
        )
    with pytest.raises(Misuse, match="has no trained head"):
        loaded(copy)


def test_an_adapter_that_writes_texts_is_refused(judge: Path, tmp_path: Path) -> None:
    if not (judge / "adapter_config.json").exists():
        pytest.skip("this one is whole")
    copy = tmp_path / "writer"
    shutil.copytree(judge, copy)
    told = json.loads((copy / "adapter_config.json").read_text()) | {"task_type": "CAUSAL_LM"}
    (copy / "adapter_config.json").write_text(json.dumps(told))
    with pytest.raises(Misuse, match="is an adapter for CAUSAL_LM, not for scores"):
        loaded(copy)


def test_a_torn_file_is_refused(judge: Path, tmp_path: Path) -> None:
    copy = tmp_path / "torn"
    shutil.copytree(judge, copy)
    for file in copy.glob("*.safetensors"):
        file.write_bytes(file.read_bytes()[:20])
    with pytest.raises(Misuse, match="torn: its weights cannot be read"):
        loaded(copy)


def test_weights_that_are_no_safetensors_are_not_read(judge: Path, tmp_path: Path) -> None:
    import torch

    copy = tmp_path / "pickled"
    shutil.copytree(judge, copy)
    for file in copy.glob("*.safetensors"):
        file.unlink()
        torch.save({}, file.with_suffix(".bin"))
    with pytest.raises(Misuse, match=r"pickled: cannot be loaded: it holds no \*.safetensors"):
        loaded(copy)


def test_a_model_that_gives_two_numbers_is_refused(judge: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    copy = whole_copy(judge, tmp_path / "two")
    told = json.loads((copy / "config.json").read_text())
    told |= {"id2label": {"0": "worse", "1": "better"}, "label2id": {"worse": 0, "better": 1}}
    (copy / "config.json").write_text(json.dumps(told))
    weights = load_file(copy / "model.safetensors")
    weights["score.weight"] = weights["score.weight"].repeat(2, 1)
    save_file(weights, copy / "model.safetensors", {"format": "pt"})
    with pytest.raises(Misuse, match="two: gives 2 numbers for a text, and a reward is one"):
        loaded(copy)


def test_a_model_that_lacks_a_layer_is_refused(judge: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    copy = whole_copy(judge, tmp_path / "torn")
    weights = {
        k: v for k, v in load_file(copy / "model.safetensors").items() if "layers.1.mlp" not in k
    }
    save_file(weights, copy / "model.safetensors", {"format": "pt"})
    with pytest.raises(Misuse, match=r"torn: lacks weights, the first model.layers.1.mlp"):
        loaded(copy)


def test_a_tokenizer_with_more_tokens_than_the_model_is_refused(
    judge: Path, tmp_path: Path
) -> None:
    from transformers import AutoTokenizer

    copy = whole_copy(judge, tmp_path / "wide")
    tokenizer = AutoTokenizer.from_pretrained(copy)
    tokenizer.add_tokens([f"word{n}" for n in range(300)])
    tokenizer.save_pretrained(copy)
    with pytest.raises(Misuse, match="wide: its tokenizer has 5.. tokens and its model only 300"):
        loaded(copy)


def test_code_that_a_checkpoint_brings_along_is_not_run(judge: Path, tmp_path: Path) -> None:
    copy = whole_copy(judge, tmp_path / "clever")
    told = json.loads((copy / "config.json").read_text()) | {"model_type": "clever"}
    told["auto_map"] = {
        "AutoConfig": "clever.Config",
        "AutoModelForSequenceClassification": "clever.Model",
    }
    (copy / "config.json").write_text(json.dumps(told))
    (copy / "clever.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    with pytest.raises(Misuse, match="clever: .*cannot be loaded"):
        loaded(copy)
    assert not (tmp_path / "ran").exists()


def whole_copy(judge: Path, folder: Path) -> Path:
    if (judge / "adapter_config.json").exists():
        pytest.skip("this one is an adapter")
    shutil.copytree(judge, folder)
    return folder


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Misuse, match=r"reward.models: .*nowhere: there is no such folder"):
        loaded(tmp_path / "nowhere")


# ----------------------------------------------------------------------------------------- scoring


def test_scores_do_not_depend_on_what_is_scored_beside(judge: Path) -> None:
    completions = ["x" * n for n in (1, 30, 2, 17)]
    together = scored(loaded(judge), PROMPTS[:4], completions)
    alone = [
        scored(loaded(judge, batch_size=1), [prompt], [text])[0]
        for prompt, text in zip(PROMPTS, completions, strict=False)
    ]
    assert together == pytest.approx(alone, abs=1e-4)
    assert together == pytest.approx(reward_model_scores(judge, PROMPTS[:4], completions), abs=1e-4)


@pytest.mark.parametrize(
    "broken", [float("nan"), pytest.param(float("inf"), marks=pytest.mark.slow)]
)
def test_a_score_that_is_no_number_stops_the_run_and_is_no_zero(judge: Path, broken: float) -> None:
    from trainer.rewards.judge import GradingStopped

    grader = loaded(judge)
    model_of(grader).model.score.weight.data.fill_(broken)
    with pytest.raises(
        GradingStopped,
        match=r"none of 2 samples.* the reward model scores .*(\n|.)*gradus train reward",
    ):
        scored(grader, ["a", "b"], ["let f x = x", "let"])


def test_texts_are_scored_at_the_token_that_training_ended_them_with(judge: Path) -> None:
    model = model_of(loaded(judge))
    assert model.reader.read("a", "b").ids[-1] == model.tokenizer.eos_token_id
    chat = model.reader.read([{"role": "user", "content": "a"}], "b").ids
    assert model.tokenizer.decode(chat).endswith("b<|im_end|>\n")
    whole = model.reader.read("a" * 9000, "b")
    assert whole.was_cut
    assert (len(whole.ids), whole.ids[-2:]) == (2048, model.reader.read("", "b").ids)


# ---------------------------------------------------------------------- as a reward


@pytest.mark.parametrize("stage", ["grpo", pytest.param("rloo", marks=pytest.mark.slow)])
def test_a_policy_learns_from_a_reward_model_alone(
    stage: str, judge: Path, policy: Path, tmp_path: Path
) -> None:
    (tmp_path / "prompts.jsonl").write_text(
        "".join(json.dumps({"prompt": prompt}) + "\n" for prompt in PROMPTS)
    )
    options = {
        "max_steps": 4,
        "num_generations": 4,
        "per_device_train_batch_size": 16,
        "max_completion_length": 6,
        "learning_rate": 1e-2,
        "save_steps": 2,
    }
    told = {
        "stage": stage,
        "model": {"name": str(policy), "device": "cpu", "cpu_threads": 1},
        "data": {"dataset": "prompts.jsonl"},
        "reward": {"models": [{"path": str(judge), "weight": 2.0}]},
        stage: options,
        "output_dir": str(tmp_path / "run"),
    }
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(told))
    assert main(tmp_path / "run.yaml", stage=stage) == 0
    lines = read_lines(tmp_path / "run" / "metrics.jsonl")
    assert len(lines) == 4
    for line in lines:
        assert line["reward"] == pytest.approx(2 * line["rewards/judge/mean"], rel=1e-4)
    assert (tmp_path / "run" / "final" / "model.safetensors").exists()


def test_a_completion_that_was_not_judged_earns_nothing_from_a_reward_model(
    policy: Path, tmp_path: Path
) -> None:
    import torch

    from tests.tiny_models import trainer_of

    async def verdicts(completions: Sequence[str], **columns: Any) -> list[float | None]:
        await asyncio.sleep(0)
        return [None if n % 2 else 1.0 for n in range(len(completions))]

    async def scores(completions: Sequence[str], **columns: Any) -> list[float]:
        await asyncio.sleep(0)
        return [5.0] * len(completions)

    trainer = trainer_of(policy, tmp_path, reward_funcs=[verdicts, scores])
    rows = [{"prompt": "p", "prompt_id": "p"}] * 4
    rewards = trainer._calculate_rewards(rows, ["p"] * 4, ["a", "b", "c", "d"], [[1]] * 4)
    assert rewards[0::2].tolist() == [[1.0, 5.0]] * 2
    assert torch.isnan(rewards[1::2]).all()


def test_memory_that_runs_out_while_learning_from_rewards_is_recovered_from(
    reward_model: Path, policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    from trainer.stages.grpo import GradusTrainer

    original = GradusTrainer.training_step
    seen = set()

    def fails(self: Any, *args: Any, **named: Any) -> Any:
        done = original(self, *args, **named)
        seen.add(
            (len(self._buffered_inputs[0]["prompt_ids"]), self.args.gradient_accumulation_steps)
        )
        if self.state.global_step >= 2 and self.args.per_device_train_batch_size > 4:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return done

    monkeypatch.setattr(GradusTrainer, "training_step", fails)
    (tmp_path / "prompts.jsonl").write_text(
        "".join(json.dumps({"prompt": prompt}) + "\n" for prompt in PROMPTS)
    )
    options = {
        "max_steps": 4,
        "num_generations": 4,
        "per_device_train_batch_size": 8,
        "max_completion_length": 6,
    }
    told = {
        "model": {"name": str(policy), "device": "cpu", "cpu_threads": 1},
        "data": {"dataset": "prompts.jsonl"},
        "reward": {"models": [{"path": str(reward_model)}]},
        "grpo": options,
        "output_dir": str(tmp_path / "run"),
    }
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(told))
    assert main(tmp_path / "run.yaml") == 0
    said = (tmp_path / "run" / "training.log").read_text()
    assert "out of memory after step 2 with 8 samples at a time" in said
    assert "continuing with 4 at a time, 2 times for each update, from checkpoint-2" in said
    lines = read_lines(tmp_path / "run" / "metrics.jsonl")
    assert [line["step"] for line in lines] == [1, 2, 3, 4]
    assert seen == {(8, 1), (4, 2)}


def test_a_dry_run_names_a_reward_model_without_a_head(
    policy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "prompts.jsonl").write_text(
        "".join(json.dumps({"prompt": prompt}) + "\n" for prompt in PROMPTS)
    )
    told = {
        "model": str(policy),
        "data": {"dataset": "prompts.jsonl"},
        "reward": {"models": [{"path": str(policy)}]},
        "output_dir": str(tmp_path / "run"),
    }
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(told))
    assert main(tmp_path / "run.yaml", dry_run=True) == 2
    said = capsys.readouterr().err
    assert "ok     tasks: 12 tasks to train on" in said
    assert "FAILED reward models: " in said
