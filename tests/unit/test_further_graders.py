"""Graders beside the one that judges the tasks: each its own reward for TRL; a fault of one spoils
the whole reward."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import ValidationError

from gradus.client import RewardClient
from gradus.contract import PreferenceSubmission
from gradus.tasks.ocaml import OcamlTask
from tests.fake_grader import HIDDEN, Service
from trainer.config.run import PromptConfig, RewardConfig
from trainer.data.tasks import Example
from trainer.rewards.judge import CompletionsFile, GradingStopped
from trainer.rewards.judges import Judges, preference_of
from trainer.runs.folder import read_lines

EXAMPLES = [Example(name, f"task {name}", OcamlTask(tests=HIDDEN)) for name in "ab"]
STRICTER = {"grader": "ocaml", "rubric": "ocaml/strict@1", "name": "strict", "weight": 0.5}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with Service().running() as service:
        yield service.url


class Opened(PromptConfig):
    """Prompts that end in the first word of an answer."""

    @property
    def opening(self) -> str:
        return "reward "


class Further:
    """A further grader and everything that it told TRL and the run folder."""

    def __init__(
        self, url: str, file: Path = Path("unwritten"), *, opened: bool = False, **service: Any
    ) -> None:
        told = {"grader": "ocaml", "rubric": "ocaml/binary@1", "name": "strict", **service}
        config = RewardConfig(grader="ocaml", urls=[url], deadline_s=5, services=[told])
        self.metrics: dict[str, float] = {}
        self.file = CompletionsFile(file)
        judges = Judges(
            config,
            {one.id: one for one in EXAMPLES},
            Opened() if opened else PromptConfig(),
            file=self.file,
        )
        self.grader = judges.of_service(config.services[0], RewardClient(url, attempts=1))

    def step(
        self, *completions: Any, ahead: tuple[tuple[str, str], ...] = ()
    ) -> list[float | None]:
        async def asked() -> list[float | None]:
            self.grader.send_ahead(ahead)
            return await self.grader.rewards(
                prompts=["the prompt"] * len(completions),
                completions=list(completions),
                prompt_id=["a"] * len(completions),
                trainer_state=SimpleNamespace(global_step=0),
                log_extra=lambda name, column: None,
                log_metric=self.metrics.__setitem__,
            )

        return asyncio.run(asked())


def test_verdicts_are_floats_in_order_by_the_rubric_that_was_named_and_faults_are_none(
    url: str, tmp_path: Path
) -> None:
    further = Further(url, tmp_path / "completions.jsonl")
    assert further.step("reward 0.5", "fault", "reward 0.25", "reward 1") == [0.5, None, 0.25, 1.0]
    further.file.take([{"sample": number} for number in range(4)])
    further.file.settle([0.0] * 4)
    records = [line["services"]["strict"] for line in read_lines(tmp_path / "completions.jsonl")]
    assert [record["reward"] for record in records] == [0.5, None, 0.25, 1.0]
    assert {record["rubric"] for record in records} == {"ocaml/binary@1", None}
    assert records[1]["fault"]["kind"] == "sandbox"
    assert HIDDEN not in str(records)


def test_its_metrics_stand_beside_the_graders_and_not_in_their_place(url: str) -> None:
    further = Further(url)
    further.step("reward 1", "reward 0", "fault", "flagged")
    assert further.metrics["strict/faulted"] == 0.25
    assert further.metrics["strict/component/tests"] == pytest.approx(2 / 3)
    assert further.metrics["strict/flag/odd"] == pytest.approx(1 / 3)
    assert not [name for name in further.metrics if name.startswith("gradus/") or "passed" in name]


def test_what_was_sent_ahead_is_not_asked_again_and_reads_the_prompts_opening(url: str) -> None:
    further = Further(url, opened=True)
    assert further.step("0.25", "0.5", ahead=(("a", "0.25"), ("a", "0.75"))) == [0.25, 0.5]


def test_a_service_that_judges_nothing_stops_the_run_and_is_named() -> None:
    with pytest.raises(
        GradingStopped, match=r"step 1: none of 2 samples could be graded.*"
    ) as raised:
        Further("http://127.0.0.1:1").step("reward 1", "reward 1")
    assert "http://127.0.0.1:1" in str(raised.value)


def test_a_service_of_its_own_is_asked_where_it_is(url: str) -> None:
    config = RewardConfig(
        grader="ocaml",
        urls="http://a:1",
        services=[{**STRICTER, "urls": url}, {"grader": "preference"}],
    )
    elsewhere, here = map(config.for_service, config.services)
    assert (elsewhere.urls, here.urls) == ([url], ["http://a:1"])
    assert (elsewhere.rubric, here.rubric) == ("ocaml/strict@1", None)
    assert (here.judge, here.services, here.models) == ("preference", [], [])


def test_a_reward_model_is_asked_as_the_prompt_is_rendered() -> None:
    plain = preference_of("add 1\0", "x\ud800", "s1")
    assert isinstance(plain, PreferenceSubmission)
    assert (plain.prompt, plain.completion, plain.task.messages) == ("add 1\ufffd", "x\ufffd", ())
    chat = preference_of(
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
        ({"grader": "preference"}, "a reward model judges no tasks: write services"),
        (
            {"grader": "ocaml", "services": [{"grader": "rust"}]},
            "services: rust: the rows have no tasks for it",
        ),
        ({"services": [{"grader": "ocaml"}]}, "services: ocaml: the rows have no tasks for it"),
        ({"services": [{"grader": "Haskell"}]}, "services.0.grader"),
        (
            {"services": [{"grader": "preference"}] * 2},
            "two sources of reward are called preference",
        ),
        (
            {"grader": "ocaml", "services": [{**STRICTER, "name": "gradus"}]},
            "two sources of reward are called gradus",
        ),
        (
            {
                "services": [{"grader": "preference"}],
                "models": [{"path": "x", "name": "preference"}],
            },
            "are called preference",
        ),
        ({"services": [{"grader": "preference", "weight": float("nan")}]}, "weight"),
        ({"services": [{"grader": "preference", "rubric": "sigmoid"}]}, "rubric"),
        ({"services": [{"grader": "preference", "urls": []}]}, "urls"),
        ({"services": [{"grader": "preference", "wieght": 1}]}, "wieght"),
        ({"services": [{}]}, "grader"),
        ({}, "give a grader, reward models, or both"),
    ],
)
def test_a_service_that_cannot_be_asked_is_refused(told: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError) as raised:
        RewardConfig.model_validate(told)
    assert said in str(raised.value) or said in str(
        [error["loc"] for error in raised.value.errors()]
    ).replace("', ", ".")


def test_a_service_alone_earns_something() -> None:
    assert RewardConfig.model_validate({"services": [{"grader": "preference"}]}).grader is None


# ---------------------------------------------------------------------- completions.jsonl


def test_what_further_graders_said_stands_in_the_line_of_its_completion(tmp_path: Path) -> None:
    file = CompletionsFile(tmp_path / "completions.jsonl")
    file.add_extra_results(
        "strict", [{"reward": 0.1}, {"reward": None}]
    )  # before the grader's, or after
    file.take([{"completion": "a"}, {"completion": "b"}])
    file.add_extra_results("judge", [{"reward": 0.3}, {"reward": 0.4}])
    file.settle([0.5, -0.5])
    first, second = read_lines(tmp_path / "completions.jsonl")
    assert first == {
        "completion": "a",
        "services": {"strict": {"reward": 0.1}, "judge": {"reward": 0.3}},
        "advantage": 0.5,
    }
    assert second["services"] == {"strict": {"reward": None}, "judge": {"reward": 0.4}}


def test_what_belongs_to_no_completion_is_left_out_and_not_carried_over(tmp_path: Path) -> None:
    file = CompletionsFile(tmp_path / "completions.jsonl")
    file.take([{"completion": "a"}])
    file.add_extra_results("strict", [{"reward": 0.1}, {"reward": 0.2}])
    file.settle([0.5])
    file.take([{"completion": "b"}])
    file.settle([0.5])
    assert [line.get("services") for line in read_lines(tmp_path / "completions.jsonl")] == [
        None,
        None,
    ]
