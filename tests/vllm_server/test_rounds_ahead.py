"""`generation.ahead` with a real vLLM server: whose weights wrote each round, by the probabilities
that every checkpoint of the run gives its tokens."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.test_training import TASKS
from tests.fake_vllm import Relay
from tests.vllm_server.conftest import EXACT, Server, Training

pytestmark = pytest.mark.training
STEPS = 4
COMPLETIONS = "/v1/completions"


class RecordingRelay(Relay):
    """Keeps the groups that the real server wrote, in the order in which they were asked for."""

    def __init__(self, to: str) -> None:
        super().__init__(to=to)
        self.groups: list[dict[str, Any]] = []

    def _usual(self, method: str, target: str, sent: bytes) -> tuple[int, Any]:
        status, body = super()._usual(method, target, sent)
        if target == COMPLETIONS and "prompt_logprobs" not in json.loads(sent):
            self.groups.append(json.loads(body))
        return status, body


def find_writer(choices: list[dict[str, Any]], models: list[Any]) -> int:
    """Return the number of the model that gives the tokens of a group the probabilities that the
    server gave them."""
    from trainer.generation.parity import compare_logprobs, compute_logprobs

    differences = []
    for model in models:
        worst = 0.0
        for choice in choices:
            prompt = choice["prompt_token_ids"]
            written = choice["token_ids"]
            own = compute_logprobs(model, [*prompt, *written])[-len(written) :]
            worst = max(worst, compare_logprobs(own, choice["logprobs"]["token_logprobs"])[1])
        differences.append(worst)
    best = min(range(len(models)), key=differences.__getitem__)
    assert differences[best] <= EXACT
    return best


@pytest.fixture(scope="module")
def fresh(server: Server, model: Path) -> Server:
    server.gradus(model)
    return server


@pytest.mark.parametrize(("ahead", "processes"), [(0, 1), (1, 1), (1, 2)])
def test_each_round_but_an_epochs_first_is_written_by_the_weights_before(
    fresh: Server, model: Path, training: Callable[..., Training], ahead: int, processes: int
) -> None:
    from transformers import AutoModelForCausalLM

    relay = RecordingRelay(to=fresh.url)
    with relay.serving():
        run = training(model, relay.url)
        options = ["--max_steps", str(STEPS), "--save_steps", "1", "--generation.ahead", str(ahead)]
        if processes == 1:
            assert run(*options) == 0
        else:
            done = run.in_processes(processes, *options)
            assert done.returncode == 0, done.stderr[-3000:]
    folders = [model, *(run.folder / f"checkpoint-{step}" for step in range(1, STEPS))]
    models = [AutoModelForCausalLM.from_pretrained(folder).eval() for folder in folders]
    groups_per_round = len(relay.groups) // STEPS
    rounds_per_epoch = len(TASKS) // groups_per_round
    assert groups_per_round * STEPS == len(relay.groups), "no round was written twice"
    for index in range(STEPS):
        begins_epoch = index % rounds_per_epoch == 0
        writer = index if begins_epoch else index - ahead
        first = index * groups_per_round
        for group in relay.groups[first : first + groups_per_round]:
            assert find_writer(group["choices"], models) == writer
    assert run.largest("generation/sync_logprob_difference_max") <= EXACT
    stale = run.largest("sampling/sampling_logp_difference/max")
    assert stale > EXACT if ahead else stale <= EXACT
