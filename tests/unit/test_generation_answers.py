"""What of a generation server's answers is believed: nothing that is short, foreign, infinite or of
another shape."""

from __future__ import annotations

import copy
import json
import re
from importlib.metadata import requires
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from trainer.generation.responses import (
    DECLARED,
    TESTED,
    GenerationStopped,
    TransientServerError,
    parse_group,
    parse_prompt_logprobs,
    refuse_untested,
)

pytestmark = pytest.mark.training

PROMPT = [5, 6]
BOUNDS = {"max_tokens": 3, "vocab_size": 10}


def choice(index: int, **changed: Any) -> dict[str, Any]:
    given = {
        "index": index,
        "prompt_token_ids": PROMPT,
        "token_ids": [index, 9],
        "logprobs": {"token_logprobs": [-0.5, -1]},
    }
    return given | changed


def test_completions_come_in_the_order_of_their_indices() -> None:
    group = parse_group({"choices": [choice(1), choice(0)]}, PROMPT, 2, **BOUNDS)
    assert [one.ids_T for one in group] == [[0, 9], [1, 9]]
    assert group[0].logprobs_T == [-0.5, -1.0]


@pytest.mark.parametrize(
    ("said", "complaint"),
    [
        (None, "no choices"),
        ([], "no choices"),
        ({"choices": "many"}, "no choices"),
        ({"choices": []}, "0 completions in place of 2"),
        ({"choices": [choice(0)]}, "1 completions in place of 2"),
        ({"choices": [choice(0), choice(1), choice(2)]}, "3 completions in place of 2"),
        ({"choices": [choice(0), choice(0)]}, "numbered"),
        ({"choices": [choice(0), choice(7)]}, "numbered"),
        ({"choices": [choice(0), None]}, "no index"),
        ({"choices": [choice(0), choice(1, prompt_token_ids=[5, 7])]}, "another prompt"),
        ({"choices": [choice(0), choice(1, prompt_token_ids=None)]}, "no prompt_token_ids"),
        ({"choices": [choice(0), choice(1, token_ids=[])]}, "0 tokens"),
        ({"choices": [choice(0), choice(1, token_ids=[1])]}, "1 tokens, 2 log-probabilities"),
        (
            {
                "choices": [
                    choice(0),
                    choice(1, token_ids=[1] * 4, logprobs={"token_logprobs": [-1] * 4}),
                ]
            },
            "of 1 to 3",
        ),
        ({"choices": [choice(0), choice(1, token_ids=[1, 10])]}, "outside of 0 to 9"),
        ({"choices": [choice(0), choice(1, token_ids=[1, -1])]}, "outside of 0 to 9"),
        ({"choices": [choice(0), choice(1, token_ids=[1, True])]}, "outside of 0 to 9"),
        ({"choices": [choice(0), choice(1, token_ids=[1, 2.0])]}, "outside of 0 to 9"),
        ({"choices": [choice(0), choice(1, logprobs=None)]}, "no logprobs"),
        (
            {"choices": [choice(0), choice(1, logprobs={"token_logprobs": [-1, None]})]},
            "no log-probability",
        ),
        (
            {"choices": [choice(0), choice(1, logprobs={"token_logprobs": [-1, "-1"]})]},
            "no log-probability",
        ),
        (
            {"choices": [choice(0), choice(1, logprobs={"token_logprobs": [-1, False]})]},
            "no log-probability",
        ),
        (
            {"choices": [choice(0), choice(1, logprobs={"token_logprobs": [-1, 0.5]})]},
            "no log-probability",
        ),
    ],
)
def test_a_group_that_is_not_what_was_asked_for_is_trouble(said: Any, complaint: str) -> None:
    with pytest.raises(TransientServerError, match=complaint):
        parse_group(said, PROMPT, 2, **BOUNDS)


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity"])
def test_a_log_probability_that_json_should_not_know_is_trouble(word: str) -> None:
    said = json.loads(
        json.dumps({"choices": [choice(0, logprobs={"token_logprobs": [-1, "X"]})]}).replace(
            '"X"', word
        )
    )
    with pytest.raises(TransientServerError, match="no log-probability"):
        parse_group(said, PROMPT, 1, **BOUNDS)


def test_a_prompts_log_probabilities_are_those_of_its_own_tokens() -> None:
    rows = [None, {"6": {"logprob": -2.5}, "1": {"logprob": -0.1}}]
    assert parse_prompt_logprobs({"choices": [{"prompt_logprobs": rows}]}, PROMPT) == [-2.5]


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"choices": []},
        {"choices": [{"prompt_logprobs": None}]},
        {"choices": [{"prompt_logprobs": [None]}]},
        {"choices": [{"prompt_logprobs": [None, None]}]},
        {"choices": [{"prompt_logprobs": [None, {"7": {"logprob": -1}}]}]},
        {"choices": [{"prompt_logprobs": [None, {"6": -1}]}]},
        {"choices": [{"prompt_logprobs": [None, {"6": {"logprob": float("nan")}}]}]},
    ],
)
def test_a_prompt_without_all_its_log_probabilities_is_trouble(said: Any) -> None:
    with pytest.raises(TransientServerError):
        parse_prompt_logprobs(said, PROMPT)


# ---------------------------------------------------------------------- probe and parity


def test_what_is_compared_has_two_tokens_at_least_and_not_many() -> None:
    from trainer.generation.client import PROBE_TOKENS, build_probe

    assert build_probe([[1, 2], [3, 4, 5]]) == [3, 4, 5]
    assert build_probe([[7]]) == [7, 7]
    assert build_probe([list(range(1000))]) == list(range(PROBE_TOKENS))


@pytest.fixture(scope="module")
def model() -> Any:
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(1)
    sizes = {
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_hidden_layers": 1,
        "head_dim": 8,
        "vocab_size": 10,
    }
    return Qwen3ForCausalLM(Qwen3Config(**sizes, num_attention_heads=2, num_key_value_heads=1))


def own_logprobs(model: Any, ids: list[int]) -> list[float]:
    import torch

    model.eval()
    with torch.no_grad():
        table = torch.log_softmax(model(input_ids=torch.tensor([ids])).logits[0], dim=-1)
    return [float(table[at, token]) for at, token in enumerate(ids[1:])]


def test_the_model_gives_each_token_its_log_probability_and_training_goes_on(model: Any) -> None:
    from trainer.generation.parity import compare_logprobs, compute_logprobs

    ids = [1, 2, 3, 4]
    served = own_logprobs(model, ids)
    model.train()
    assert compute_logprobs(model, ids) == pytest.approx(served, abs=1e-6)
    assert model.training
    found = compare_logprobs(served, [served[0], served[1] + 0.25, served[2] - 0.5])
    assert found == pytest.approx((0.25, 0.5))


@pytest.mark.parametrize(
    "served", [[], [-1.0], [-1.0, float("nan"), -1.0], [-1.0, float("-inf"), -1.0]]
)
def test_what_cannot_be_compared_differs_without_end(served: list[float]) -> None:
    from trainer.generation.parity import compare_logprobs

    assert compare_logprobs([-1.0] * 3, served) == (float("inf"), float("inf"))


def test_equal_weights_in_bfloat16_are_within_the_bound_and_weights_before_an_update_are_not() -> (
    None
):
    import torch
    from transformers import AutoModelForCausalLM, Qwen2Config

    from trainer.generation.parity import compare_logprobs, compute_logprobs, select_mean_bound

    sizes = {
        "hidden_size": 256,
        "intermediate_size": 512,
        "num_hidden_layers": 4,
        "vocab_size": 2048,
    }
    config = Qwen2Config(
        **sizes, num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=False
    )
    with torch.random.fork_rng():
        torch.manual_seed(1)
        ours = AutoModelForCausalLM.from_config(config).bfloat16()
        ours.lm_head.weight.data.mul_(20)  # logits of up to 20, as those of a trained model
        theirs = copy.deepcopy(ours).float()  # rounds elsewhere, as the kernels of a server do
        ids = torch.randint(2048, (256,)).tolist()
    served = compute_logprobs(theirs, ids)
    mean, largest = compare_logprobs(compute_logprobs(ours, ids), served)
    bound = select_mean_bound(["torch.bfloat16", "bfloat16"])
    assert largest > 0.05 > mean, "the largest one tells nothing"
    assert mean < bound
    for parameter in ours.parameters():
        parameter.data.mul_(1.05)
    assert compare_logprobs(compute_logprobs(ours, ids), served)[0] > bound


# ---------------------------------------------------------------------------------------- versions


def test_the_pairs_that_were_tried_are_let_through() -> None:
    for trl, releases in TESTED.items():
        for release in releases:
            refuse_untested(release, allowed=False, trl=trl)
            refuse_untested(f"{release}+cpu", allowed=False, trl=trl)


@pytest.mark.parametrize("version", ["0.30.0", "0.32.1", "0.32.0rc1", "1.0", "", "+cpu"])
def test_another_server_is_refused_with_what_was_tried(version: str) -> None:
    with pytest.raises(
        GenerationStopped, match=r"never tried together \(tried: TRL 1\.16\.0 with vLLM 0\.32\.0\)"
    ):
        refuse_untested(version, allowed=False)
    refuse_untested(version, allowed=True)


def test_the_pair_of_the_lock_for_cuda_is_one_that_trl_declares() -> None:
    lock = (Path(__file__).parents[2] / "requirements-gpu.lock").read_text()
    pins = dict(re.findall(r"^(\S+)==(\S+)$", lock, re.M))
    [declared] = [
        requirement
        for requirement in map(Requirement, requires("trl") or ())
        if requirement.name == "vllm"
    ]
    assert pins["vllm"] in declared.specifier
    assert {pins["trl"]: (pins["vllm"],)} == DECLARED
    refuse_untested(pins["vllm"], allowed=False, trl=pins["trl"])
    assert not [pin for pin in pins.values() if "+" in pin], "builds for a CPU"


def test_another_trl_is_refused_too() -> None:
    with pytest.raises(GenerationStopped, match=r"TRL 1\.17\.0"):
        refuse_untested("0.32.0", allowed=False, trl="1.17.0")
