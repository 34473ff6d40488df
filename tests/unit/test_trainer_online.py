"""The online trainers between two of TRL's calls: what judges read, what is watched, and how a run
ends."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset

from gradus.errors import GradusError
from tests.tiny_models import built, make_model, run_of, trainer_of
from trainer.config.device import choose_device
from trainer.config.run import RewardConfig, TrainConfig
from trainer.evaluate.local import LocalModel
from trainer.evaluate.plan import GeneratedCompletion, build_problems, build_requests, make_plan
from trainer.rewards.judge import CompletionsFile, GradingStopped, Judge
from trainer.runs.folder import read_lines
from trainer.runs.oom_recovery import UpdateWatch, detect_oom
from trainer.stages.base import build_stage
from trainer.stages.online import compute_effective_share, make_reward_function, sum_weights

pytestmark = pytest.mark.training

ROWS = [{"prompt": f"(* add {row // 4} *)", "prompt_id": f"p{row // 4}"} for row in range(8)]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model("qwen2", tmp_path_factory.mktemp("qwen2"))


def test_measurements_render_prompts_as_training_does(model: Path, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    shutil.copytree(model, tmp_path / "model")
    tokenizer = AutoTokenizer.from_pretrained(model)
    tokenizer.chat_template += "{% if enable_thinking is false %}<think></think>{% endif %}"
    tokenizer.save_pretrained(tmp_path / "model")
    config = TrainConfig(
        model={"name": str(tmp_path / "model"), "device": "cpu"},
        data={"dataset": "demo:ocaml", "limit": 40},
        prompt={"style": "chat", "chat_template_kwargs": {"enable_thinking": False}},
        reward={"grader": "ocaml"},
        grpo={"max_completion_length": 4, "num_generations": 4},
        output_dir=tmp_path / "run",
    )
    trainer = built(config)
    problems = build_problems(run_of(config).data.train[:2], config.prompt)
    ids, *_ = trainer._tokenize_prompts([one.prompt for one in problems])
    assert all(tokenizer.decode(one).endswith("assistant\n<think></think>") for one in ids)

    fields: dict[str, Any] = {
        "model": "m",
        "served": False,
        "samples": 0,
        "temperature": 0,
        "greedy": True,
    }
    plan = make_plan(problems, config.prompt, tasks="t", max_new_tokens=4, **fields)
    written = LocalModel(lambda: (trainer.model, tokenizer), plan, 8).write_batch(
        [*build_requests(problems, plan)]
    )
    assert [made.prompt_tokens for _, made in written if isinstance(made, GeneratedCompletion)] == [
        *map(len, ids)
    ]


def test_judges_read_the_whole_text_although_the_tokenizer_parses_responses(
    model: Path, tmp_path: Path
) -> None:
    read: list[Any] = []

    async def reading(completions: Sequence[Any], **columns: Any) -> list[float]:
        await asyncio.sleep(0)
        read.extend(completions)
        return [0.0] * len(completions)

    trainer = trainer_of(model, tmp_path, reward_funcs=[reading])
    ids = trainer.processing_class("<think>why</think>let f x = x")["input_ids"]
    parsed = [{"role": "assistant", "reasoning_content": "why", "content": "let f x = x"}]
    trainer._calculate_rewards(ROWS[:1], [[{"role": "user", "content": "add"}]], [parsed], [ids])
    assert read == ["<think>why</think>let f x = x"]


@pytest.mark.parametrize("early", [True, False])
def test_tokens_are_watched_only_where_completions_are_graded_early(
    early: bool, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = trainer_of(model, tmp_path)
    sent: list[Any] = []
    monkeypatch.setattr(trainer, "_send_ahead", sent.extend)
    trainer.asked_early = ["a judge"] if early else ()
    watched = []
    generate = type(trainer.model).generate

    def seen(self: Any, *given: Any, **named: Any) -> Any:
        watched.append("stopping_criteria" in named)
        return generate(self, *given, **named)

    monkeypatch.setattr(type(trainer.model), "generate", seen)
    trainer._generate_and_score_completions(ROWS)
    assert watched == [early]


def test_a_judge_that_stops_lets_the_step_end_and_the_run_stops_after_it(
    model: Path, tmp_path: Path
) -> None:
    async def grade(submissions: Sequence[Any], deadline_s: float) -> list[Any]:
        await asyncio.sleep(0)
        raise GradingStopped("none of 8 samples could be graded")

    errors: list[GradusError] = []
    judge = Judge(RewardConfig(grader="ocaml"), lambda *given: None, grade)  # type: ignore[arg-type, return-value]
    trainer = trainer_of(
        model,
        tmp_path,
        reward_funcs=[make_reward_function(judge.compute_rewards, "gradus", errors)],
    )
    assert trainer.reward_func_names == ["gradus"]
    trainer.errors = errors
    trainer.completions_file = CompletionsFile(tmp_path / "completions.jsonl")
    trainer.completions_file.take([{"sample": 0}])
    with pytest.raises(GradingStopped, match="none of 8 samples"):
        trainer._generate_and_score_completions(ROWS)
    # what a round has graded is written, though it has no advantages
    assert read_lines(tmp_path / "completions.jsonl") == [{"sample": 0, "advantage": None}]


def test_out_of_memory_starts_no_second_engine_of_vllm_in_the_process(
    model: Path, tmp_path: Path
) -> None:
    trainer = trainer_of(model, tmp_path)
    trainer.use_vllm = True
    trainer.vllm_mode = "colocate"
    data = {"dataset": "demo:ocaml"}
    config = TrainConfig(
        model={"name": str(model)}, data=data, reward={"grader": "ocaml"}, output_dir=tmp_path
    )
    with (
        pytest.raises(torch.OutOfMemoryError) as raised,
        detect_oom(trainer, UpdateWatch(), config),
    ):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
    assert "halve per_device_train_batch_size" in raised.value.__notes__[0]


def test_an_order_of_tasks_is_the_order_of_training(model: Path, tmp_path: Path) -> None:
    """TRL draws in the order of the dataset with the option that `data.order` sets, and in another
    without."""
    (tmp_path / "tasks.jsonl").write_text(
        "".join(f'{{"id": "t{n}", "prompt": "{"x" * (9 - n)}"}}\n' for n in range(8))
    )
    drawn = {}
    for order in ("length", "shuffled"):
        given = {
            "model": {"name": str(model), "device": "cpu"},
            "output_dir": str(tmp_path / order),
        }
        data = {"dataset": str(tmp_path / "tasks.jsonl"), "order": order}
        reward = {"models": [{"path": str(model)}]}
        config = TrainConfig.model_validate(
            {**given, "data": data, "reward": reward, "grpo": {"num_generations": 2}}
        )
        stage = build_stage(config)
        options = stage.options(choose_device(config.model), print)
        trainer = trainer_of(
            model, tmp_path, num_generations=2, shuffle_dataset=options.get("shuffle_dataset", True)
        )
        tasks = stage.read().train
        trainer.train_dataset = Dataset.from_list(
            [{"prompt": one.prompt, "prompt_id": one.id} for one in tasks]
        )
        drawn[order] = [tasks[at].id for at in dict.fromkeys(trainer._get_train_sampler())]
    assert drawn["length"] == [f"t{n}" for n in reversed(range(8))]
    assert sorted(drawn["shuffled"]) == sorted(drawn["length"])
    assert drawn["shuffled"] not in (drawn["length"], drawn["length"][::-1])


@pytest.mark.parametrize(
    ("weights", "share"),
    [
        ([[1.0, 1.0, 9.0], [1.0, 9.0, 9.0]], 1.0),  # what is masked does not count
        ([[0.5, 0.5, 0.5], [0.5, 0.5, 0.5]], 1.0),
        ([[3.0, 0.0, 0.0], [0.0, 0.0, 0.0]], 1 / 3),
        ([[0.0, 0.0, 0.0], [0.0, 0.0, 0.0]], 0.0),
        ([[1.0], [0.0]], 2 / 3),  # a weight for each completion
    ],
)
def test_weights_that_differ_leave_a_share_of_the_tokens(
    weights: list[list[float]], share: float
) -> None:
    mask_BT = torch.tensor([[1, 1, 0], [1, 0, 0]])
    assert compute_effective_share(sum_weights(torch.tensor(weights), mask_BT)) == (
        pytest.approx(share)
    )
    nothing = sum_weights(torch.tensor(weights), torch.zeros_like(mask_BT))
    assert compute_effective_share(nothing) == 1.0
