"""The reward function against the real API with a trivial worker: floats for verdicts, None for
faults, a limit."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from gradus.client import RewardClient
from gradus.contract import Faulted, Graded
from gradus.errors import FaultKind
from gradus.tasks.base import clean_text
from gradus.tasks.ocaml import OcamlTask
from tests.fake_grader import HIDDEN, Service
from trainer.config.run import FaultBudget, RewardConfig
from trainer.data.tasks import Example
from trainer.rewards.judge import GradingStopped, Judge, build_submission_maker, make_http_grade

NOBODY = "http://127.0.0.1:1"
EXAMPLES = [Example(name, f"task {name}", OcamlTask(tests=HIDDEN)) for name in "ab"]
FAULT = "fault"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with Service().running() as service:
        yield service.url


class SamplingOptions:
    """The judge of the tasks and what it told TRL and the run folder; `ahead` is what is sent
    before a step asks."""

    def __init__(self, url: str, opening: str = "", **options: Any) -> None:
        self.records: list[dict[str, Any]] = []
        self.metrics: dict[str, float] = {}
        self.ahead: list[tuple[str, str]] = []
        config = RewardConfig(grader="ocaml", urls=[url], **{"deadline_s": 5, **options})
        examples = {example.id: example for example in EXAMPLES}
        self.judge = Judge(
            config,
            build_submission_maker(config, examples, opening),
            make_http_grade(config, RewardClient(url, attempts=1)),
            record=self.records.extend,
        )

    def step(self, *completions: Any, done: int = 0) -> list[float | None]:
        """Completions for task a, a, ..., b, b, ...: one group each."""
        half = len(completions) // 2

        async def asked() -> list[float | None]:
            self.judge.send_ahead(self.ahead)
            return await self.judge.compute_rewards(
                prompts=["the prompt"] * len(completions),
                completions=list(completions),
                completion_ids=[[1]] * len(completions),
                prompt_id=["a"] * half + ["b"] * (len(completions) - half),
                trainer_state=SimpleNamespace(global_step=done),
                log_extra=lambda name, column: None,
                log_metric=self.metrics.__setitem__,
            )

        return asyncio.run(asked())


def test_verdicts_are_floats_in_order_and_faults_are_none(url: str) -> None:
    assert SamplingOptions(url).step("reward 0.5", FAULT, "reward 0.25", "reward 1") == [
        0.5,
        None,
        0.25,
        1.0,
    ]


def test_chat_completions_are_graded_by_their_content(url: str) -> None:
    chat = [{"role": "assistant", "content": "reward 0.75"}]
    assert SamplingOptions(url).step(chat, chat) == [0.75, 0.75]


def test_graders_read_what_the_prompt_has_already_written_and_the_record_does_not(url: str) -> None:
    asked = SamplingOptions(url, opening="reward ")
    asked.ahead = [("a", "0.25")]
    assert asked.step("0.25", "0.5") == [0.25, 0.5]
    assert [record["completion"] for record in asked.records] == ["0.25", "0.5"]


def test_what_was_seen_is_written_down_without_test_text(url: str) -> None:
    asked = SamplingOptions(url)
    asked.step("reward 0.5", "reward 1", FAULT, "reward 0", done=4)
    first, _, faulted, last = asked.records
    assert (first["step"], first["prompt_id"], first["sample"], first["prompt"]) == (
        5,
        "a",
        0,
        "the prompt",
    )
    assert (first["reward"], first["stage"], first["passed"]) == (0.5, "tests", False)
    assert first["components"] == {"tests": 0.5}
    assert first["tests"] == {"passed": 0, "total": 1}
    assert first["grader"] == "ocaml@r1"
    assert (last["prompt_id"], last["sample"]) == ("b", 1)
    assert faulted["reward"] is None
    assert faulted["fault"]["kind"] == "sandbox"
    assert faulted.keys() == first.keys()
    assert HIDDEN not in str(asked.records)


def test_shares_are_of_graded_samples_and_faults_of_all(url: str) -> None:
    asked = SamplingOptions(url)
    asked.step("reward 1", "reward 0", "reward 0.5", FAULT)
    assert asked.metrics["gradus/faulted"] == 0.25
    assert asked.metrics["gradus/passed"] == pytest.approx(1 / 3)
    assert asked.metrics["gradus/group_passed"] == 0.5
    assert asked.metrics["gradus/stage/tests"] == pytest.approx(1)
    assert asked.metrics["gradus/component/tests"] == pytest.approx(0.5)


def test_text_that_no_contract_takes_is_mended_before_sending(url: str) -> None:
    assert SamplingOptions(url).step("reward 1 \0", "reward 1 \ud800") == [1.0, 1.0]
    assert clean_text("b\ud83dc") == "b\N{REPLACEMENT CHARACTER}c"
    assert clean_text('let s = "é\u2028😀"') == 'let s = "é\u2028😀"'
    assert len(clean_text("x" * 2_000_000)) == 1_000_000


def test_a_service_that_is_away_stops_the_run_at_once_and_says_what_to_start() -> None:
    asked = SamplingOptions(NOBODY, deadline_s=2)
    with pytest.raises(GradingStopped) as caught:
        asked.step("reward 1", "reward 1")
    message = str(caught.value)
    assert all(
        part in message
        for part in ("step 1: none of 2", NOBODY, "gradus serve", "gradus worker ocaml --redis")
    )
    assert [record["reward"] for record in asked.records] == [None, None]


def test_too_many_faults_stop_the_run_only_after_so_many_steps_in_a_row(url: str) -> None:
    asked = SamplingOptions(url, fault_budget=FaultBudget(share=0.25, steps=3))
    bad = (FAULT, "reward 1")
    good = ("reward 1", "reward 0")
    for completions in (bad, bad, good, bad, bad):
        asked.step(*completions)
    with pytest.raises(
        GradingStopped, match="1 of 2 samples could not be graded, and it is step 3 in a row"
    ):
        asked.step(*bad)


def test_faults_within_the_budget_never_stop_the_run(url: str) -> None:
    asked = SamplingOptions(url, fault_budget=FaultBudget(share=0.5, steps=1))
    for _ in range(3):
        assert asked.step(FAULT, "reward 1") == [None, 1.0]


def test_what_was_sent_ahead_is_not_asked_again_and_belongs_to_its_own_task_and_text(
    url: str,
) -> None:
    asked = SamplingOptions(url)
    asked.ahead = [
        ("a", "reward 0.125"),
        ("a", "reward 0.125"),
        ("b", "reward 0.375"),
        ("a", "never asked for"),
    ]
    assert asked.step("reward 0.125", "reward 1", "reward 0.125", "reward 0.375") == [
        0.125,
        1.0,
        0.125,
        0.375,
    ]
    assert asked.metrics["gradus/early"] == 0.5
    asked.ahead = []
    assert asked.step("reward 0.125", "reward 0") == [0.125, 0.0]
    assert asked.metrics["gradus/early"] == 0


def test_a_fault_of_what_was_sent_ahead_is_asked_once_more(url: str) -> None:
    asked = SamplingOptions(url)
    asked.ahead = [("a", "late"), ("b", FAULT)]
    assert asked.step("late", FAULT) == [1.0, None]


def test_a_service_that_is_away_also_stops_what_was_sent_ahead() -> None:
    asked = SamplingOptions(NOBODY, deadline_s=2)
    asked.ahead = [("a", "reward 1")]
    with pytest.raises(GradingStopped, match="none of 2 samples"):
        asked.step("reward 1", "reward 1")


def test_a_fault_has_no_reward_to_mistake() -> None:
    assert "reward" in Graded.model_fields
    assert "reward" not in Faulted.model_fields
    assert FaultKind.SANDBOX.value == "sandbox"
