"""What a run can be told about generation, and what it may not be."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from gradus.errors import Misuse
from gradus.resources import configs
from services.generation.serve import VllmServerOptions, build_command, build_environment, serve
from trainer.config.device import Device
from trainer.config.run import GenerationConfig
from trainer.config.stages import load_stage
from trainer.runs.folder import RunFolder


@pytest.fixture(scope="module")
def backend() -> Any:
    """The module under test. It loads torch and TRL, so it is imported when a test runs, not when
    pytest collects."""
    return import_module("trainer.generation.backend")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("backend", "vLLM"),
        ("sync", "pigeon"),
        ("url", "127.0.0.1:8001"),
        ("url", "ftp://127.0.0.1:8001"),
        ("url", "http://"),
        ("url", "http://host:0"),
        ("url", "http://host:70000"),
        ("url", "http://host:port"),
        ("url", "http://[::1"),
        ("url", ""),
        ("url", None),
        ("verify_sync", "sometimes"),
        ("verify_sync", True),
        ("max_logprob_difference", 0),
        ("max_logprob_difference", float("nan")),
        ("max_logprob_difference", float("inf")),
        ("sync_deadline_s", 0),
        ("sync_deadline_s", float("inf")),
        ("request_timeout_s", -1),
        ("request_timeout_s", 1e9),
        ("restart_wait_s", -1),
        ("restart_wait_s", float("nan")),
        ("tries", 0),
        ("tries", 101),
        ("seed", 1),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(ValidationError) as refused:
        GenerationConfig(**{name: value})
    assert [error["loc"] for error in refused.value.errors()] == [(name,)]


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:8001", "https://vllm.example/behind/a/path", "http://[::1]:8001/"]
)
def test_addresses_of_servers_are_taken_as_they_are(url: str) -> None:
    assert GenerationConfig(url=url).url == url


# ---------------------------------------------------------------------- what TRL is told


def test_trl_is_told_of_a_server_only_when_there_is_one(backend: Any) -> None:
    by_token = {"vllm_importance_sampling_mode": "token_truncate"}
    assert backend.build_vllm_options(GenerationConfig(), {}) == {}
    assert backend.build_vllm_options(GenerationConfig(), {"use_vllm": True}) == by_token
    told = backend.build_vllm_options(
        GenerationConfig(backend="vllm", url="http://h:1"), {"temperature": 0.7}
    )
    server = {"use_vllm": True, "vllm_mode": "server", "vllm_server_base_url": "http://h:1"}
    assert told == server | by_token


@pytest.mark.parametrize("mode", ["sequence_mask", "sequence_truncate", "token_mask"])
def test_a_mode_of_weighing_that_the_config_names_is_kept(backend: Any, mode: str) -> None:
    told = backend.build_vllm_options(SERVER, {"vllm_importance_sampling_mode": mode})
    assert told["vllm_importance_sampling_mode"] == mode
    assert "vllm_importance_sampling_mode" not in backend.build_vllm_options(SERVER, {}, "rloo")


@pytest.mark.parametrize(
    "name",
    ["use_vllm", "vllm_mode", "vllm_server_base_url", "vllm_server_host", "vllm_server_port"],
)
def test_two_words_on_the_server_are_one_too_many(backend: Any, name: str) -> None:
    with pytest.raises(Misuse, match=f"grpo.{name}"):
        backend.build_vllm_options(GenerationConfig(backend="vllm"), {name: True})


@pytest.mark.parametrize(
    "name", ["seed", "n", "max_tokens", "model", "prompt", "stream", "logprobs", "echo"]
)
def test_options_of_requests_that_would_break_them_are_refused(backend: Any, name: str) -> None:
    with pytest.raises(Misuse, match=f"generation_kwargs: {name}"):
        backend.build_vllm_options(
            GenerationConfig(backend="vllm"), {"generation_kwargs": {"min_tokens": 1, name: 1}}
        )
    assert backend.build_vllm_options(GenerationConfig(), {"generation_kwargs": {name: 1}}) == {}
    backend.build_vllm_options(
        GenerationConfig(backend="vllm"), {"generation_kwargs": {"min_tokens": 1, "stop": ["x"]}}
    )


COLOCATE, SERVER = GenerationConfig(), GenerationConfig(backend="vllm")
NARROWED = [
    {"top_p": 0.95},
    {"top_k": 50},
    {"min_p": 0.1},
    {"repetition_penalty": 1.1},
    {"generation_kwargs": {"top_p": 0.9}},
    {"generation_kwargs": {"frequency_penalty": 0.5}},
]


@pytest.mark.parametrize("asked", NARROWED, ids=str)
def test_sampling_whose_probabilities_would_take_the_weight_of_long_completions_is_refused(
    backend: Any, asked: Any
) -> None:
    ((name, value),) = asked.get("generation_kwargs", asked).items()
    by_sequence = {"vllm_importance_sampling_mode": "sequence_mask"}
    for config, more in ((SERVER, by_sequence), (COLOCATE, {"use_vllm": True, **by_sequence})):
        with pytest.raises(
            Misuse, match=f"grpo: {name} {value} with vLLM.*vllm_importance_sampling_mode"
        ):
            backend.build_vllm_options(config, asked | more)
        for mended in (
            {"vllm_importance_sampling_mode": "token_truncate"},
            {"vllm_importance_sampling_correction": False},
        ):
            backend.build_vllm_options(config, asked | more | mended)
    assert backend.build_vllm_options(COLOCATE, asked) == {}, (
        "transformers' probabilities are asked of nobody"
    )
    backend.build_vllm_options(SERVER, asked, "rloo")


def test_sampling_that_changes_no_probability_goes_with_vllm(backend: Any) -> None:
    neutral = {
        "top_p": 1.0,
        "top_k": 0,
        "min_p": None,
        "repetition_penalty": 1.0,
        "temperature": 0.7,
    }
    assert (
        backend.build_vllm_options(SERVER, neutral | {"generation_kwargs": {"top_k": -1}})[
            "use_vllm"
        ]
        is True
    )


CPU, CUDA = (Device(kind, has_bf16=False, has_eight_bit=False) for kind in ("cpu", "cuda"))
NCCL = GenerationConfig(backend="vllm", sync="nccl")


def test_what_trl_asks_of_vllm_itself_is_refused_where_there_is_none(
    backend: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    for config, options in (
        (COLOCATE, {"use_vllm": True}),
        (NCCL, {"use_vllm": True, "vllm_mode": "server"}),
    ):
        with pytest.raises(Misuse, match=r"needs vLLM in the trainer's environment.*make gpu"):
            backend.refuse_without_vllm(config, options, CUDA)
    for config in (COLOCATE, SERVER):
        backend.refuse_without_vllm(config, backend.build_vllm_options(config, {}), CPU)


def test_what_trl_asks_of_vllm_itself_is_let_through_where_there_is_one(
    backend: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    backend.refuse_without_vllm(COLOCATE, {"use_vllm": True}, CUDA)
    backend.refuse_without_vllm(NCCL, backend.build_vllm_options(NCCL, {}), CUDA)


def test_nccl_without_cuda_is_refused(backend: Any) -> None:
    with pytest.raises(
        Misuse, match="generation.sync: nccl moves weights between GPUs, and this trains on cpu"
    ):
        backend.refuse_without_vllm(NCCL, backend.build_vllm_options(NCCL, {}), CPU)


def test_trls_own_class_is_back_when_the_run_is_over(backend: Any, tmp_path: Path) -> None:
    from trl.trainer import grpo_trainer, rloo_trainer

    from trainer.generation.backend import PreciseVllmGeneration

    own = grpo_trainer.VLLMGeneration
    stale = RunFolder(tmp_path).weights
    stale.mkdir()
    (stale / "of-a-killed-run.safetensors").write_text("old")
    with backend.install_generation(GenerationConfig(backend="vllm"), RunFolder(tmp_path), print):
        assert grpo_trainer.VLLMGeneration is rloo_trainer.VLLMGeneration is not own
        assert not stale.exists()
    assert grpo_trainer.VLLMGeneration is rloo_trainer.VLLMGeneration is own
    for other in (GenerationConfig(), GenerationConfig(backend="vllm", sync="nccl")):
        with backend.install_generation(other, RunFolder(tmp_path), print) as served:
            assert served is None
            assert grpo_trainer.VLLMGeneration is PreciseVllmGeneration
        assert grpo_trainer.VLLMGeneration is own


def test_the_demo_with_vllm_learns_the_same_in_the_same_way() -> None:
    plain = load_stage(configs() / "train" / "demo_ocaml.yaml").model_dump()
    served = load_stage(configs() / "train" / "demo_ocaml_vllm.yaml").model_dump()
    differing = {name for name in plain if plain[name] != served[name]}
    assert differing == {"generation", "output_dir"}
    assert plain["reward"]["early"]
    assert served["generation"]["verify_sync"] == "always"
    assert served["generation"]["max_logprob_difference"] <= 1e-4


# ---------------------------------------------------------------------- how vLLM is started


def options_of(command: list[str]) -> dict[str, str]:
    """Those that have values."""
    pairs = zip(command, command[1:], strict=False)
    return {
        name: value for name, value in pairs if name.startswith("--") and not value.startswith("--")
    }


def test_a_server_on_a_cpu_gets_what_keeps_it_alive() -> None:
    command = build_command(VllmServerOptions(model="m"), "cpu")
    options = options_of(command)
    assert options["--host"] == "127.0.0.1"
    assert options["--logprobs-mode"] == "processed_logprobs"
    assert yaml.safe_load(options["--weight-transfer-config"]) == {"backend": "file"}
    assert options["--dtype"] == "float32"
    assert {"--enforce-eager", "--no-enable-chunked-prefill"} <= {*command}
    assert options["--generation-config"] == "vllm", (
        "not the model's own top_k and repetition_penalty"
    )
    assert "--enable-lora" not in command


def test_a_server_on_cuda_is_left_its_own_settings() -> None:
    command = build_command(
        VllmServerOptions(model="m", lora_rank=16, extra=("--max-model-len", "512")),
        "cuda",
    )
    options = options_of(command)
    assert yaml.safe_load(options["--weight-transfer-config"]) == {"backend": "file"}, (
        "what every run can send"
    )
    assert (options["--max-lora-rank"], options["--max-model-len"]) == ("16", "512")
    assert not {"--enforce-eager", "--kv-cache-memory-bytes"} & {*command}
    assert "--dtype" not in options


def test_a_server_on_a_machines_only_card_leaves_room_for_the_trainer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    options = VllmServerOptions(model="m")
    assert options_of(build_command(options, "cuda", cards=1))["--gpu-memory-utilization"] == "0.35"
    assert "--gpu-memory-utilization" not in build_command(options, "cuda", cards=2)
    asked = VllmServerOptions(model="m", extra=("--gpu-memory-utilization", "0.8"))
    assert options_of(build_command(asked, "cuda", cards=1))["--gpu-memory-utilization"] == "0.8"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert "--gpu-memory-utilization" not in build_command(options, "cuda", cards=1), (
        "a card of its own"
    )


def test_development_endpoints_cannot_be_switched_off_from_outside(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("VLLM_SERVER_DEV_MODE", "0")
    monkeypatch.setenv("VLLM_NO_USAGE_STATS", "0")
    environment = build_environment()
    assert environment["VLLM_SERVER_DEV_MODE"] == "1"
    assert environment["VLLM_ALLOW_RUNTIME_LORA_UPDATING"] == "1"
    assert environment["VLLM_NO_USAGE_STATS"] == "0", "that is for whoever starts it to say"


@pytest.mark.parametrize(
    ("wish", "complaint"),
    [
        (VllmServerOptions(model="m", device="abacus"), "--device abacus"),
        (VllmServerOptions(model="m", sync="pigeon"), "--sync pigeon"),
        (VllmServerOptions(model="m"), "make vllm"),
    ],
)
def test_what_cannot_be_started_is_told_before_anything_is(
    wish: VllmServerOptions, complaint: str
) -> None:
    with pytest.raises(Misuse, match=complaint):
        serve(wish, print)
