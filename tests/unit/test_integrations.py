"""The core of the integrations: tasks from rows, single calls that are sent together, faults that
stay faults."""

from __future__ import annotations

import asyncio
import json
import math
import multiprocessing
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import numpy as np
import pytest
import torch
from datasets import Dataset

from gradus.coalescing import CoalescingClient
from gradus.contract import Faulted, Graded
from gradus.errors import (
    DeadlineFault,
    Fault,
    FaultKind,
    Misuse,
    QueueFault,
    SandboxFault,
    TooLarge,
)
from gradus.integrations import areal, core, openrlhf, slime, trl, verl
from gradus.integrations.advantages import leave_out_faults
from gradus.integrations.core import Completion, grade_blocking, parse_task, settings
from gradus.integrations.nemo_rl import leave_out_masked
from gradus.integrations.openrlhf_query import extract_completion
from tests.fake_grader import Service

TASK = {"tests": "let () = assert (f 1 = 2)"}
NOBODY = "http://127.0.0.1:1"


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with Service().running() as running:
        yield running


@pytest.fixture(autouse=True)
def _environment(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRADUS_URL", service.url)
    monkeypatch.setenv("GRADUS_GRADER", "ocaml")


def requests_at(service: Service) -> int:
    """Requests for grades that the service has answered."""
    text = httpx.get(f"{service.url}/metrics").text
    lines = [
        line
        for line in text.splitlines()
        if line.startswith("gradus_api_requests_total") and "/stream" in line
    ]
    return int(sum(float(line.rpartition(" ")[2]) for line in lines))


# ------------------------------------------------------------------------------------------- tasks


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (TASK, TASK),
        (json.dumps(TASK), TASK),
        (json.dumps(TASK).encode(), TASK),
        ({"id": "row", "task": json.dumps(TASK)}, TASK),
        (
            TASK | {"signature": None, "limits": {"cpu_s": None, "memory_mb": 64}},
            TASK | {"limits": {"memory_mb": 64}},
        ),
        (TASK | {"packages": np.array(["str"])}, TASK | {"packages": ["str"]}),
        (json.dumps(TASK | {"signature": None}), TASK),
        ("row-7", {"tests": "seven"}),
    ],
)
def test_a_task_is_read_from_what_a_cell_holds(given: Any, expected: dict[str, Any]) -> None:
    assert parse_task(given, {"row-7": {"tests": "seven"}}) == expected


@pytest.mark.parametrize("given", ["row-8", "{not json", '{"tests": NaN}', 7, ["tests"]])
def test_what_is_no_task_is_refused(given: Any) -> None:
    with pytest.raises(Misuse, match="task"):
        parse_task(given)


def test_fields_that_arrow_fills_with_null_count_as_absent() -> None:
    first = {"task": TASK}
    second = {"task": TASK | {"signature": "val f : int -> int", "files": {"a.ml": "let x = 1"}}}
    rows = Dataset.from_list([first, second])
    assert rows[0]["task"]["signature"] is None
    results = grade_blocking([Completion(row["task"], "reward 1") for row in rows], settings())
    assert [result.status for result in results] == ["graded", "graded"]


def test_a_row_of_a_file_of_tasks_is_named_by_its_id(tmp_path: Path) -> None:
    file = tmp_path / "tasks.jsonl"
    row = {
        "id": "a",
        "prompt": "p",
        "solution": "s",
        "stub": "x",
        "difficulty": 3,
        "signature": None,
        **TASK,
    }
    file.write_text(json.dumps(row) + "\n")
    chosen = settings(tasks=str(file))
    assert core.build_submission("ocaml", Completion("a", "x"), chosen)["task"] == TASK
    assert core.build_submission("another", Completion("a", "x"), chosen)["task"] == TASK
    with pytest.raises(Misuse, match="no task with the id 'b'"):
        grade_blocking([Completion("b", "x")], chosen)


def test_an_id_that_occurs_twice_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "tasks.jsonl"
    file.write_text((json.dumps({"id": "a", **TASK}) + "\n") * 2)
    with pytest.raises(Misuse, match="tasks.jsonl:2.*occurred before"):
        core.load_tasks((str(file),))


@pytest.mark.parametrize(
    ("completion", "text"),
    [
        ("plain", "plain"),
        ({"role": "assistant", "content": "one"}, "one"),
        ([{"role": "user", "content": "q"}, {"role": "assistant", "content": "last"}], "last"),
        (
            [
                {
                    "content": [
                        {"type": "text", "text": "a"},
                        {"type": "image"},
                        {"type": "text", "text": "b"},
                    ]
                }
            ],
            "ab",
        ),
        ([{"content": None}], ""),
        ([], ""),
    ],
)
def test_the_text_of_a_completion(completion: Any, text: str) -> None:
    assert core.get_completion_text(completion) == text


def test_prompts_are_sent_to_graders_that_read_them() -> None:
    chosen = settings()
    messages = [{"role": "user", "content": "p"}]
    assert "prompt" not in core.build_submission("ocaml", Completion(TASK, "x", "p"), chosen)
    assert core.build_submission("preference", Completion({}, "x", "p"), chosen)["prompt"] == "p"
    assert core.build_submission("preference", Completion({}, "x", messages), chosen)["task"] == {
        "messages": messages
    }


def test_text_that_no_contract_takes_is_no_misuse_of_the_trainer() -> None:
    [result] = grade_blocking([Completion(TASK, "\0half \ud800" + "x" * 2_000_000)], settings())
    assert result.status == "graded"


def test_the_prefix_stands_before_each_completion() -> None:
    assert (
        core.build_submission("ocaml", Completion(TASK, "x"), settings(prefix="<think>"))[
            "completion"
        ]
        == "<think>x"
    )


@pytest.mark.parametrize(
    ("query", "more", "expected"),
    [
        ("<|user|>p<|assistant|>answer<|im_end|>", (), "answer"),
        ("<|user|>p<|assistant|>answer</s>\n<|endoftext|>", (), "answer"),
        ("<|user|>p<|assistant|>answer\n", (), "answer\n"),
        ("<|user|>p<|assistant|>answer<stop>", ("<stop>",), "answer"),
        ("<s><|user|>p<|assistant|>answer</s>", (), "answer"),
    ],
)
def test_a_query_of_openrlhf_holds_the_completion(
    query: str, more: tuple[str, ...], expected: str
) -> None:
    assert extract_completion(query, "<|user|>p<|assistant|>", more) == expected


def test_a_query_without_its_prompt_is_refused() -> None:
    with pytest.raises(Misuse, match="does not hold its prompt"):
        extract_completion("something else", "<|user|>p<|assistant|>")


# ---------------------------------------------------------------------- sent together


async def test_single_calls_are_sent_together(service: Service) -> None:
    before = requests_at(service)
    chosen = settings()
    calls = (
        core.grade([Completion(TASK, f"reward 0.{number:03}")], chosen) for number in range(60)
    )
    results = await asyncio.gather(*calls)
    rewards = [result.reward if isinstance(result, Graded) else None for [result] in results]
    assert rewards == [number / 1000 for number in range(60)]
    assert requests_at(service) - before == 1


async def test_a_call_does_not_wait_for_the_slowest_of_those_it_is_sent_with(
    service: Service,
) -> None:
    client = CoalescingClient(service.url)
    slow, fast = (
        asyncio.create_task(client.grade("ocaml", [{"id": text, "completion": text, "task": TASK}]))
        for text in ("hold while others return", "reward 0.125")
    )
    [result] = await asyncio.wait_for(fast, 10)
    assert isinstance(result, Graded)
    assert not slow.done()
    slow.cancel()
    await asyncio.wait([slow])


async def test_a_refused_submission_harms_no_neighbour(service: Service) -> None:
    client = CoalescingClient(service.url)

    async def reward(name: str, task: dict[str, Any]) -> Any:
        [result] = await client.grade(
            "ocaml", [{"id": name, "completion": f"reward 1 {name}", "task": task}]
        )
        return result.status

    found = await asyncio.gather(
        reward("a", TASK), reward("b", {"test": ""}), reward("c", TASK), return_exceptions=True
    )
    assert [found[0], found[2]] == ["graded", "graded"]
    assert isinstance(found[1], Misuse)


async def test_what_the_service_refuses_is_the_misuse_of_one_call() -> None:
    with Service(max_body_bytes=10_000).running() as small:
        client = CoalescingClient(small.url)
        completions = ["reward 1 a", "reward 1 " + "b" * 10_000, "reward 1 c"]
        calls = (
            client.grade("ocaml", [{"id": one[:10], "completion": one, "task": TASK}])
            for one in completions
        )
        found = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(one) for one in found] == [list, TooLarge, list]


async def test_calls_with_the_same_id_are_both_graded(service: Service) -> None:
    client = CoalescingClient(service.url)
    one = {"id": "same", "task": TASK}
    calls = [
        client.grade("ocaml", [one | {"completion": f"reward {reward}"}]) for reward in (0.25, 0.5)
    ]
    results = [
        result.reward for [result] in await asyncio.gather(*calls) if isinstance(result, Graded)
    ]
    assert results == [0.25, 0.5]


async def test_a_call_that_is_cancelled_leaves_the_others(service: Service) -> None:
    client = CoalescingClient(service.url)
    calls = [
        asyncio.create_task(
            client.grade("ocaml", [{"id": name, "completion": f"reward 1 {name}", "task": TASK}])
        )
        for name in "ab"
    ]
    await asyncio.sleep(0)
    calls[0].cancel()
    [result] = await calls[1]
    assert isinstance(result, Graded)
    assert calls[0].cancelled()


async def test_work_that_no_call_waits_for_is_withdrawn(service: Service) -> None:
    client = CoalescingClient(service.url)
    call = asyncio.create_task(
        client.grade("ocaml", [{"id": "a", "completion": "hold cancelled", "task": TASK}])
    )
    await asyncio.wrap_future(
        asyncio.run_coroutine_threadsafe(service.worker.holding.wait(), service.loop)
    )
    call.cancel()
    await asyncio.wait([call])
    others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    await asyncio.wait_for(asyncio.gather(*others, return_exceptions=True), 10)
    assert not client._opened
    assert not client._windows


# ---------------------------------------------------------------------- faults and clients


def in_pool(completion: str) -> float:
    return areal.reward_fn("p", completion, task=json.dumps(TASK))


def test_a_forked_process_grades_and_sends_faults_back() -> None:
    """Pools of reward workers are forked from a process that may have graded before."""
    assert areal.reward_fn("p", "reward 0.25", task=TASK) == 0.25
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert pool.apply_async(in_pool, ("reward 0.5",)).get(60) == 0.5
        with pytest.raises(SandboxFault, match="the box broke") as raised:
            pool.apply_async(in_pool, ("fault",)).get(60)
    assert (raised.value.message, raised.value.retryable) == ("the box broke", True)


def test_areal_gets_its_exception_before_its_own_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    assert areal.MAX_DEADLINE_S < 15
    monkeypatch.setattr(areal, "MAX_DEADLINE_S", 0.2)
    monkeypatch.setenv("GRADUS_DEADLINE_S", "3000")
    monkeypatch.setenv("GRADUS_URL", NOBODY)
    with pytest.raises((QueueFault, DeadlineFault)):
        areal.reward_fn("p", "x", task=TASK)


async def test_trl_gets_none_for_a_fault() -> None:
    metrics: dict[str, float] = {}
    found = await trl.reward()(
        prompts=["p"] * 3,
        completions=["reward 1", "fault", [{"role": "assistant", "content": "reward 0.5"}]],
        task=[json.dumps(TASK)] * 3,
        log_metric=metrics.__setitem__,
    )
    assert found == [1.0, None, 0.5]
    assert metrics == {"gradus/faults": pytest.approx(1 / 3), "gradus/passed": pytest.approx(1 / 3)}


async def test_trl_environment() -> None:
    environment = trl.Environment()
    environment.reset(task=json.dumps(TASK))
    assert await environment.get_reward() == 0.0
    assert "tests pass" in await environment.submit("reward 0.5")
    assert await environment.get_reward() == 0.5
    assert "not available" in await environment.submit("fault")
    assert await environment.get_reward() is None


async def test_verl_names_the_grader_in_four_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    ground_truth = json.dumps(TASK)
    monkeypatch.delenv("GRADUS_GRADER")
    keys = {"score": 1.0, "passed": 1.0, "fault": 0.0}
    for given in (
        {"data_source": "gradus/ocaml"},
        {"data_source": "x", "extra_info": {"grader": "ocaml"}},
        {"data_source": "gradus/story", "grader": "ocaml"},
    ):
        found = await verl.compute_score(
            solution_str="reward 1", ground_truth=ground_truth, **given
        )
        assert {name: found[name] for name in keys} == keys
    with pytest.raises(Misuse, match="no grader is named"):
        await verl.compute_score("x", "reward 1", ground_truth)
    with pytest.raises(Fault):
        await verl.compute_score("gradus/ocaml", "fault", ground_truth)


def test_openrlhf_gets_numbers_for_one_sample_and_lists_for_several() -> None:
    task = json.dumps(TASK)
    assert openrlhf.reward_func(["preward 1</s>"], ["p"], [task])["rewards"] == 1.0
    assert openrlhf.reward_func(["preward 1", "preward 0"], ["p", "p"], [task] * 2)["scores"] == [
        1.0,
        0.0,
    ]
    with pytest.raises(Fault):
        openrlhf.reward_func(["preward 1", "pfault"], ["p", "p"], [task] * 2)


def sample(response: str, group: int = 0) -> SimpleNamespace:
    found = SimpleNamespace(
        prompt="p", response=response, label=json.dumps(TASK), metadata={}, group_index=group
    )
    found.remove_sample = False
    found.get_reward_value = lambda args: found.reward
    return found


async def test_slime_normalizes_without_the_samples_that_have_a_fault() -> None:
    samples = [
        sample("reward 1"),
        sample("fault"),
        sample("reward 0.5"),
        sample("reward 0", 1),
        sample("reward 1", 1),
    ]
    for one in samples:
        one.reward = await slime.masking_reward(None, one)
    args = SimpleNamespace(
        advantage_estimator="grpo", rewards_normalization=True, grpo_std_normalization=False
    )
    raw, rewards = slime.post_process(args, samples)
    assert [one.remove_sample for one in samples] == [False, True, False, False, False]
    assert raw[1] != raw[1]
    assert rewards == [0.25, 0.0, -0.25, -0.5, 0.5]
    with pytest.raises(Fault):
        await slime.reward(args, samples[:2])


def test_a_service_that_is_away_is_a_fault() -> None:
    [result] = grade_blocking([Completion(TASK, "x")], settings(url=NOBODY, deadline_s=0.3))
    assert isinstance(result, Faulted)
    assert result.fault.kind in (FaultKind.QUEUE, FaultKind.DEADLINE)
    assert "gradus serve" in result.fault.message


# -------------------------------------------------------------------------- faults as NaN, if asked


def test_a_fault_is_nan_where_the_settings_ask_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    label = json.dumps(TASK)
    with pytest.raises(Fault):
        areal.reward_fn("p", "fault", task=TASK)
    monkeypatch.setenv("GRADUS_ON_FAULT", "nan")
    assert math.isnan(areal.reward_fn("p", "fault", task=TASK))
    assert areal.reward_fn("p", "reward 0.5", task=TASK) == 0.5
    found = asyncio.run(verl.compute_score("gradus/ocaml", "fault", label))
    assert math.isnan(found["score"])
    assert found["fault"] == 1.0
    rewards = openrlhf.reward_func(["pfault", "preward 1"], ["p", "p"], [label, label])["rewards"]
    assert math.isnan(rewards[0])
    assert rewards[1] == 1.0


def test_another_value_of_on_fault_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRADUS_ON_FAULT", "zero")
    with pytest.raises(Misuse, match="raise"):
        settings()


def test_a_filter_sees_a_fault_in_a_group() -> None:
    assert areal.has_no_fault({"rewards": torch.tensor([1.0, 0.0])})
    assert not areal.has_no_fault({"rewards": torch.tensor([1.0, math.nan])})


def test_an_estimator_gets_the_samples_that_have_a_reward() -> None:
    def center(token_level_rewards: Any, response_mask: Any, index: Any) -> tuple[Any, Any]:
        assert list(index) == ["a", "b"]
        centred = token_level_rewards - token_level_rewards.mean()
        return centred, centred

    mask = torch.ones(3, 1)
    rewards = torch.tensor([[1.0], [math.nan], [0.0]])
    advantages, returns = leave_out_faults(center)(rewards, mask, ["a", "a", "b"])
    assert advantages.flatten().tolist() == returns.flatten().tolist() == [0.5, 0.0, -0.5]
    assert mask.flatten().tolist() == [1.0, 0.0, 1.0]
    alone, _ = leave_out_faults(center)(rewards[1:2], mask[1:2], ["a"])
    assert alone.flatten().tolist() == [0.0]


def test_an_estimator_of_nemo_rl_gets_the_samples_that_are_not_masked() -> None:
    def center(
        self: None, prompt_ids: Any, rewards: Any, mask: Any, repeated_batch: Any, logprobs: Any
    ) -> Any:
        assert len(prompt_ids) == len(mask) == len(logprobs) == len(rewards)
        assert all(len(values) == len(rewards) for values in repeated_batch.values())
        return (rewards - rewards.mean()).unsqueeze(-1).expand(mask.shape)

    compute = leave_out_masked(center)
    masked = [False, True, False]
    batch = {"mask_sample": masked, "reward/tests": torch.ones(3), "agent_ref": ["a"] * 3}
    ids = torch.ones(3, 2)
    rewards = torch.tensor([1.0, 0.0, 0.0])
    mask = torch.ones(3, 1)
    for mask_sample in (masked, torch.tensor(masked)):
        batch["mask_sample"] = mask_sample
        advantages = compute(None, ids, rewards, mask, batch, logprobs=mask)
        assert advantages.flatten().tolist() == [0.5, 0.0, -0.5]
    unmasked = compute(None, ids, rewards, mask, {}, logprobs=mask)
    assert unmasked.flatten().tolist() == pytest.approx([2 / 3, -1 / 3, -1 / 3])
    nothing = compute(None, ids, rewards, mask, {"mask_sample": [True] * 3}, logprobs=mask)
    assert nothing.flatten().tolist() == [0.0] * 3
