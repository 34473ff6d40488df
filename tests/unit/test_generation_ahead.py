"""Rounds that a vLLM server writes while the one before is trained on."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gradus.errors import Misuse
from tests.fake_vllm import VllmLike
from tests.unit.test_generation_client import PROMPTS, RUN, Run
from trainer.config.run import TrainConfig
from trainer.generation.responses import GenerationStopped
from trainer.stages.ahead import Lookahead, refuse_wrong_ahead

COMPLETIONS = "/v1/completions"
NEXT = [[8, 9], [9, 8]]


@pytest.fixture
def like() -> Iterator[VllmLike]:
    with VllmLike().serving() as like:
        yield like


@pytest.fixture
def run(like: VllmLike, tmp_path: Path) -> Iterator[Run]:
    run = Run(like.url, tmp_path / "weights", tries=1)
    run.client.connect(wants_adapter=False)
    run.step()
    yield run
    run.client.close()


def ask_next(run: Run) -> dict[str, Any]:
    return run.client.generate(NEXT, None, n=2, max_tokens=4, temperature=0.7)


def test_completions_begun_ahead_are_asked_for_once(run: Run, like: VllmLike) -> None:
    run.client.start_ahead(NEXT)
    made = ask_next(run)
    assert made["prompt_ids"] == NEXT
    assert made["completion_ids"] == [[1, 2]] * 4
    asked = [body for path, body in like.log if path == COMPLETIONS]
    ahead = [body for body in asked if body["prompt"][0] in NEXT]
    assert len(ahead) == len(NEXT)
    assert all(body["n"] == 2 and body["temperature"] == 0.7 for body in ahead)
    ask_next(run)
    assert [path for path, _ in like.log].count(COMPLETIONS) == len(asked) + len(NEXT)


def test_new_weights_wait_for_completions_begun_ahead(run: Run, like: VllmLike) -> None:
    asked, may_answer = threading.Event(), threading.Event()

    def before(path: str, body: Any) -> None:
        if path == COMPLETIONS:
            asked.set()
            assert may_answer.wait(60)

    like.before = before
    run.client.start_ahead(NEXT)
    assert asked.wait(60)
    sending = threading.Thread(target=run.client.send_weights)
    sending.start()
    assert like.weight_version == f"{RUN}-1"
    may_answer.set()
    sending.join(60)
    assert like.weight_version == f"{RUN}-2"
    paths = like.paths()
    last_update = len(paths) - paths[::-1].index("/start_weight_update")
    assert COMPLETIONS not in paths[last_update:]
    assert ask_next(run)["prompt_ids"] == NEXT
    assert COMPLETIONS not in like.paths()[last_update:]


def test_other_prompts_do_not_use_up_what_was_begun_ahead(run: Run, like: VllmLike) -> None:
    run.client.start_ahead(NEXT)
    assert run.generate()["prompt_ids"] == PROMPTS
    assert ask_next(run)["prompt_ids"] == NEXT
    asked = [body["prompt"][0] for path, body in like.log if path == COMPLETIONS]
    assert sorted(prompt for prompt in asked if prompt in NEXT) == NEXT


def test_what_goes_wrong_ahead_is_raised_where_the_round_is_asked_for(
    run: Run, like: VllmLike
) -> None:
    like.before = lambda path, body: (400, b"no") if path == COMPLETIONS else None
    run.client.start_ahead(NEXT)
    with pytest.raises(GenerationStopped, match="status 400: no"):
        ask_next(run)


def test_weights_are_compared_before_the_trainer_changes_its_own(
    like: VllmLike, tmp_path: Path
) -> None:
    run = Run(like.url, tmp_path / "weights", verify_sync="always")
    run.client.connect(wants_adapter=False)
    run.step()
    run.client.start_ahead(NEXT)
    run.client.send_weights()
    ask_next(run)
    assert len(run.compared) == 1, "these completions are of the weights before"
    run.client.start_ahead(PROMPTS)
    assert len(run.compared) == 2
    run.generate()
    assert len(run.compared) == 2


def test_the_next_round_is_known_while_this_one_is_trained_on() -> None:
    lookahead = Lookahead(round_batches=4)
    epoch = iter([name for name in "abc" for _ in range(4)])
    trained: list[Any] = []
    following = []
    for step in count():
        taken = lookahead.take(epoch, 2)  # type: ignore[arg-type]
        if not taken:
            break
        if step % 2 == 0:
            following.append(lookahead.get_next_round())
        trained += taken
    assert "".join(trained) == "aaaabbbbcccc"
    assert following == ["b", "c", None]


def test_each_epoch_is_read_by_itself() -> None:
    lookahead = Lookahead(round_batches=1)
    for letters in ("ab", "cd"):
        epoch = iter(letters)
        assert lookahead.take(epoch, 1) == [letters[0]]  # type: ignore[arg-type]
        assert lookahead.get_next_round() == letters[1]  # type: ignore[comparison-overlap]
        assert lookahead.take(epoch, 1) == [letters[1]]  # type: ignore[arg-type]
        assert lookahead.get_next_round() is None


SERVED = {"backend": "vllm", "ahead": 1}
TRL = {
    "steps_per_generation": 2,
    "num_iterations": 1,
    "gradient_accumulation_steps": 2,
    "vllm_importance_sampling_correction": True,
}


@pytest.mark.parametrize(
    ("changes", "options", "why"),
    [
        ({"generation": {"ahead": 1}}, {}, "needs generation.backend: vllm"),
        ({"generation": {**SERVED, "sync": "nccl"}}, {}, "sync file, lora"),
        ({"stage": "rloo"}, {}, "stage: rloo"),
        ({}, {"vllm_importance_sampling_correction": False}, "weighs tokens of older"),
        ({"turns": {"max": 2}}, {}, "needs the grade of the first"),
        ({"task_sampling": {"refill": 1}}, {}, "depends on grades"),
        ({}, {"gradient_accumulation_steps": 4}, "no multiple of 4"),
    ],
)
def test_what_a_round_ahead_cannot_do_is_refused(
    changes: dict[str, Any], options: dict[str, Any], why: str
) -> None:
    config = TrainConfig.model_validate(
        {
            "model": {"name": "m"},
            "data": {"dataset": "d"},
            "reward": {"grader": "ocaml"},
            "output_dir": "runs/x",
            "generation": SERVED,
            **changes,
        }
    )
    with pytest.raises(Misuse, match=f"generation.ahead.*{why}"):
        refuse_wrong_ahead(config, SimpleNamespace(**{**TRL, **options}))
