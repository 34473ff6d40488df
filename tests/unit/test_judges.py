"""Reward models beside the grader of the tasks: what they are asked and what is kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from gradus.contract import PreferenceSubmission
from trainer.config.run import RewardConfig
from trainer.rewards.judge import CompletionsFile
from trainer.rewards.judges import build_preference
from trainer.runs.folder import read_lines


def test_a_reward_model_is_asked_as_the_prompt_is_rendered() -> None:
    plain = build_preference("add 1\0", "x\ud800", "s1")
    assert isinstance(plain, PreferenceSubmission)
    assert (plain.prompt, plain.completion, plain.task.messages) == ("add 1\ufffd", "x\ufffd", ())
    chat = build_preference(
        [{"role": "system", "content": "be brief"}, {"role": "user", "content": "add 1"}], "x", "s2"
    )
    assert isinstance(chat, PreferenceSubmission)
    assert chat.prompt == ""
    assert [(one.role, one.content) for one in chat.task.messages] == [
        ("system", "be brief"),
        ("user", "add 1"),
    ]


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"grader": "preference"}, "a reward model judges no tasks: give models"),
        ({"models": [{"path": "a/judge"}, {"path": "b/judge/final"}]}, "are called judge"),
        ({"grader": "ocaml", "models": [{"path": "x/gradus"}]}, "are called gradus"),
        ({"grader": "ocaml", "services": [{"grader": "ocaml"}]}, "services"),
        ({}, "give a grader, reward models or reward functions"),
    ],
)
def test_judges_that_cannot_be_asked_are_refused(told: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        RewardConfig.model_validate(told)


# ---------------------------------------------------------------------- completions.jsonl


def test_what_reward_models_said_stands_in_the_line_of_its_completion(tmp_path: Path) -> None:
    file = CompletionsFile(tmp_path / "completions.jsonl")
    file.add_extra_results(
        "strict", [{"reward": 0.1}, {"reward": None}]
    )  # before the grader's, or after
    file.take([{"completion": "a"}, {"completion": "b"}])
    file.add_extra_results("judge", [{"reward": 0.3}, {"reward": 0.4}])
    file.write_round([0.5, -0.5])
    first, second = read_lines(tmp_path / "completions.jsonl")
    assert first == {
        "completion": "a",
        "reward_models": {"strict": {"reward": 0.1}, "judge": {"reward": 0.3}},
        "advantage": 0.5,
    }
    assert second["reward_models"] == {"strict": {"reward": None}, "judge": {"reward": 0.4}}


def test_what_belongs_to_no_completion_is_left_out_and_not_carried_over(tmp_path: Path) -> None:
    file = CompletionsFile(tmp_path / "completions.jsonl")
    file.take([{"completion": "a"}])
    file.add_extra_results("strict", [{"reward": 0.1}, {"reward": 0.2}])
    file.write_round([0.5])
    file.take([{"completion": "b"}])
    file.write_round([0.5])
    assert [line.get("reward_models") for line in read_lines(tmp_path / "completions.jsonl")] == [
        None,
        None,
    ]
