"""`gradus vllm`: becomes vLLM's own server, with the options that training needs.

Clients of its port can replace its weights, so it listens on loopback unless something else keeps
them away. Needs vLLM in this environment.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

from gradus.errors import Misuse

LOOPBACK = ("127.0.0.1", "::1", "localhost")
DEVICES = ("auto", "cuda", "cpu")
BACKENDS = ("file", "nccl")  # how the server takes new weights; every run can send the first
CPU_KV_CACHE_MB = 256
SHARED_CARD = 0.35
"""Share of its memory that a vLLM server takes of a machine's only card, where the trainer needs
the rest."""

_QUIET = {
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "TOKENIZERS_PARALLELISM": "false",
}
# Without these, weights and adapters cannot be replaced.
_DEVELOPMENT = {"VLLM_SERVER_DEV_MODE": "1", "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1"}


@dataclass(frozen=True, slots=True)
class VllmServerOptions:
    """Command-line options of `gradus vllm`."""

    model: str
    """A folder, or a name on the hub."""
    host: str = "127.0.0.1"
    port: int = 8001
    device: str = "auto"
    lora_rank: int | None = None
    """The largest rank of adapters; None: no adapters."""
    sync: str = "file"
    exposed: bool = False
    """Other hosts are kept off its port by other means."""
    extra: tuple[str, ...] = ()
    """Options for vLLM itself, last."""


def serve(options: VllmServerOptions, report: Callable[[str], None]) -> NoReturn:
    """Put vLLM in the place of this process. Raises Misuse where it would be unfit."""
    _refuse_unusable(options)
    import torch

    cards = torch.cuda.device_count()
    device = options.device
    if device == "auto":
        device = "cuda" if cards else "cpu"
    if device == "cuda" and _is_card_shared(cards):
        report(
            "gradus: this machine has one card, which a trainer needs too: vLLM takes"
            f" {SHARED_CARD:.0%} of its memory (--gpu-memory-utilization takes more)"
        )
    os.execve(sys.executable, build_command(options, device, cards), build_environment())


def build_command(options: VllmServerOptions, device: str, cards: int = 0) -> list[str]:
    """Return how vLLM is started. Its module and not its script: the script looks for a package
    that its CPU build lacks."""
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", options.model]
    command += ["--host", options.host, "--port", str(options.port)]
    command += ["--logprobs-mode", "processed_logprobs", "--max-logprobs", "-1"]
    # without it, vLLM samples with the model's own top_k and repetition_penalty where a request is
    # silent
    command += ["--generation-config", "vllm"]
    command += ["--weight-transfer-config", json.dumps({"backend": options.sync})]
    command += ["--worker-extension-cls", "services.generation.checksums.ChecksumExtension"]
    if options.lora_rank is not None:
        # the adapter in use, the one before it, and one that is being loaded
        command += ["--enable-lora", "--max-lora-rank", str(options.lora_rank), "--max-loras", "3"]
    if device == "cpu":
        command += ["--dtype", "float32", "--enforce-eager", "--gpu-memory-utilization", "0.3"]
        command += ["--kv-cache-memory-bytes", str(CPU_KV_CACHE_MB << 20)]
        # vLLM 0.32 dies on a CPU of a request with a seed whose prompt is read in chunks
        command += ["--no-enable-chunked-prefill", "--max-num-batched-tokens", "8192"]
    elif _is_card_shared(cards):
        command += ["--gpu-memory-utilization", str(SHARED_CARD)]
    return [*command, *options.extra]


def build_environment() -> dict[str, str]:
    return {**_QUIET, **os.environ, **_DEVELOPMENT}


def _is_card_shared(cards: int) -> bool:
    """Return whether the trainer needs the card as well: it is the only one that this process sees,
    and not one that a person gave the server alone (CUDA_VISIBLE_DEVICES)."""
    return cards == 1 and "CUDA_VISIBLE_DEVICES" not in os.environ


def _refuse_unusable(options: VllmServerOptions) -> None:
    for name, value, allowed in (
        ("--device", options.device, DEVICES),
        ("--sync", options.sync, BACKENDS),
    ):
        if value not in allowed:
            raise Misuse(f"{name} {value}: it is one of {', '.join(allowed)}")
    if importlib.util.find_spec("vllm") is None:
        raise Misuse(
            "this environment has no vLLM. Use one of its own: `make vllm` makes .venv-vllm for a"
            " CPU, `make gpu` makes .venv-gpu for CUDA"
        )
    if options.host not in LOOPBACK and not options.exposed:
        raise Misuse(
            f"--host {options.host}: clients of that port can replace the model's weights. Keep it"
            " on 127.0.0.1, or add --trust-network where something else keeps others away, such as"
            " a network of its own"
        )
