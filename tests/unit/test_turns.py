"""Training over several turns: what is trained, what is masked, and what one process or many make
of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import trl
from transformers import AutoTokenizer
from trl import GRPOConfig

from gradus.errors import Misuse
from tests.tiny_models import make_model
from tests.tiny_turns import Killed, tiny_trainer
from trainer.config.run import TrainConfig, TurnsConfig
from trainer.rollouts.chain import StopReason, compute_turn_advantages
from trainer.rollouts.rollout import encode_user_message, select_template
from trainer.runs.folder import RunFolder, find_resume_checkpoint, read_lines, read_step
from trainer.stages.turns import refuse_wrong_turns

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model("qwen3", tmp_path_factory.mktemp("model"))


@pytest.mark.parametrize(
    ("credit", "scale"),
    [
        ("turn", "group"),
        pytest.param("turn", "batch", marks=pytest.mark.slow),
        pytest.param("chain", "none", marks=pytest.mark.slow),
    ],
)
def test_one_turn_is_single_turn_training_bit_for_bit(
    model: Path, tmp_path: Path, credit: Any, scale: str
) -> None:
    weights = []
    for turns in (None, TurnsConfig(max=1, credit=credit)):
        trainer = tiny_trainer(
            model, tmp_path / str(turns is None), turns, scale_rewards=scale, save_strategy="no"
        )
        before = {name: one.clone() for name, one in trainer.model.state_dict().items()}
        trainer.train()
        weights.append(trainer.model.state_dict())
        assert any(not torch.equal(before[name], one) for name, one in weights[-1].items())
    assert all(torch.equal(weights[0][name], one) for name, one in weights[1].items())


def test_tokens_of_the_user_get_no_gradient(model: Path, tmp_path: Path) -> None:
    trainer = tiny_trainer(model, tmp_path, TurnsConfig(max=3), beta=0.0)
    seen: list[tuple[Any, Any]] = []
    logps_of, loss_of = trainer._get_per_token_logps_and_entropies, trainer._compute_loss

    def kept(*args: Any, **named: Any) -> Any:
        found = logps_of(*args, **named)
        if found[0].requires_grad:
            found[0].retain_grad()
            seen[-1][1].append(found[0])
        return found

    def watched(model: Any, inputs: Any) -> Any:
        seen.append((inputs, []))
        return loss_of(model, inputs)

    trainer._get_per_token_logps_and_entropies = kept
    trainer._compute_loss = watched
    trainer.train()
    masked = trained = 0
    for inputs, (logps,) in seen:
        own = (inputs["completion_mask"] * inputs["tool_mask"]).bool()
        assert torch.count_nonzero(logps.grad[~own]) == 0
        masked += int((inputs["completion_mask"].bool() & ~own).sum())
        trained += int(torch.count_nonzero(logps.grad[own]))
    assert masked > 20
    assert trained > 20


def test_lines_of_turns_and_chains_fit_together(model: Path, tmp_path: Path) -> None:
    trainer = tiny_trainer(model, tmp_path, TurnsConfig(max=3), save_strategy="no", max_steps=3)
    trainer.train()
    turns, chains = read_lines(tmp_path / "turns.jsonl"), read_lines(tmp_path / "completions.jsonl")
    assert len(chains) == 24
    assert sum(chain["turns"] for chain in chains) == len(turns)
    lasts = [one for one in turns if one["stopped"]]
    same = ("step", "prompt_id", "sample", "completion", "reward", "advantage", "stopped")
    for one, chain in zip(lasts, chains, strict=True):
        assert [one[name] for name in same] == [chain[name] for name in same]
    assert {one["stopped"] for one in lasts} <= {*StopReason}
    assert all((one["said"] is None) == (one["turn"] == 1) for one in turns)
    faults = [one for one in turns if one["status"] == "faulted"]
    assert all(
        one["reward"] is None and one["advantage"] == 0 and one["stopped"] == "faulted"
        for one in faults
    )


def test_a_chain_ends_where_its_window_ends(model: Path, tmp_path: Path) -> None:
    trainer = tiny_trainer(model, tmp_path, TurnsConfig(max=3, window=40), save_strategy="no")
    trainer.train()
    chains = read_lines(tmp_path / "completions.jsonl")
    assert {one["turns"] for one in chains} == {1}
    assert "window" in {one["stopped"] for one in chains}


def test_advantages_are_of_the_same_turn_of_the_group() -> None:
    nan = float("nan")
    rewards = torch.tensor(
        [
            [0.0, 1.0],
            [1.0, nan],
            [0.0, 0.0],
            [nan, nan],
            [1.0, nan],
            [0.0, 0.5],
            [1.0, nan],
            [1.0, nan],
        ]
    )
    found = compute_turn_advantages(rewards, 4, "none")
    third = 1 / 3
    expected = [
        [-third, 0.5],
        [2 * third, 0],
        [-third, -0.5],
        [0, 0],
        [0.25, 0],
        [-0.75, 0],
        [0.25, 0],
        [0.25, 0],
    ]
    assert torch.allclose(found, torch.tensor(expected))


def test_templates_that_rewrite_earlier_answers_are_replaced_or_refused(model: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(model)
    ends = [tokenizer.eos_token_id]
    templates = Path(trl.__file__).parent / "chat_templates"
    assert select_template(tokenizer, ends, {}) is None
    tokenizer.chat_template = (
        templates / "qwen3.jinja"
    ).read_text()  # writes empty thoughts into the last answer only
    kept = select_template(tokenizer, ends, {})
    assert kept is not None
    between = encode_user_message(tokenizer, kept, "hi", ends, {})
    assert between is not None
    assert tokenizer.decode(between) == "\n<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    tokenizer.chat_template = (
        templates / "phi3.jinja"
    ).read_text()  # ends answers with no token of this tokenizer
    with pytest.raises(Misuse, match="chat template"):
        select_template(tokenizer, ends, {})


@pytest.mark.parametrize(
    ("changes", "options", "why"),
    [
        ({}, {"loss_type": "dr_grpo"}, "bounds one answer"),
        ({}, {"importance_sampling_level": "sequence"}, "credit: chain"),
        ({}, {"loss_type": "luspo"}, "whole samples"),
        ({"prompt": {"style": "plain"}}, {}, "style: chat"),
        ({"stage": "rloo"}, {}, "stage: grpo"),
        ({"turns": {"window": 6}}, {}, "no prompt fits"),
        (
            {"reward": {"grader": "ocaml", "models": [{"path": "judge"}]}},
            {},
            "all turns as one text",
        ),
    ],
)
def test_combinations_that_would_be_wrong_are_refused(
    changes: dict[str, Any], options: dict[str, Any], why: str, tmp_path: Path
) -> None:
    given = {
        "model": "m",
        "data": {"dataset": "demo:ocaml"},
        "reward": {"grader": "ocaml"},
        "prompt": {"style": "chat"},
        "turns": {"max": 2},
        "output_dir": tmp_path,
    }
    made = GRPOConfig(
        output_dir=str(tmp_path), max_completion_length=6, use_cpu=True, bf16=False, **options
    )
    with pytest.raises(Misuse, match=why):
        refuse_wrong_turns(TrainConfig.model_validate({**given, **changes}), made)
    refuse_wrong_turns(
        TrainConfig.model_validate(given),
        GRPOConfig(output_dir=str(tmp_path), use_cpu=True, bf16=False),
    )


def train(model: Path, output: Path, kill_at: int | None = None) -> dict[str, Any]:
    """Go on from the last checkpoint in the folder, if there is one; the weights."""
    trainer = tiny_trainer(model, output, TurnsConfig(max=3), kill_at, max_steps=3)
    checkpoint = find_resume_checkpoint(output, "auto", print)
    RunFolder(output).drop_after(read_step(checkpoint))
    if checkpoint is not None:
        trainer.resume_from(checkpoint)
    trainer.train(resume_from_checkpoint=checkpoint and str(checkpoint))
    weights: dict[str, Any] = trainer.model.state_dict()
    return weights


def test_a_run_killed_in_the_middle_of_a_chain_goes_on_as_if_it_had_not_been(
    model: Path, tmp_path: Path
) -> None:
    whole = tmp_path / "whole"
    killed = tmp_path / "killed"
    weights = train(model, whole)
    with pytest.raises(Killed):
        train(model, killed, kill_at=8)
    steps = {one["step"] for one in read_lines(whole / "turns.jsonl")}
    assert {one["step"] for one in read_lines(killed / "turns.jsonl")} < steps
    again = train(model, killed)
    assert all(torch.equal(weights[name], one) for name, one in again.items())
    assert read_lines(killed / "turns.jsonl") == read_lines(whole / "turns.jsonl")


@pytest.mark.slow
def test_processes_with_unequal_chains_get_the_completions_of_their_own() -> None:
    """And TRL's vLLM client alone still gives them others': once it does not, `Rollout` need not
    fill up."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    done = subprocess.run(
        [*command, "tests/tiny_turns.py"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    first, second = json.loads(done.stdout.strip().splitlines()[-1])
    assert (first["turns"], second["turns"]) == ([1, 1, 3, 3], [3, 3, 3, 3])
    assert first["right"]
    assert second["right"]
    assert not all(first["upstream"] + second["upstream"])
