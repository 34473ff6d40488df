"""`gradus vllm`: vLLM's own server with the options that training needs, checked once it is up.

Clients of its port can replace its weights, so it listens on loopback, and it ends if it can be
reached from elsewhere. Needs vLLM in this environment.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from types import FrameType
from typing import Any

import httpx

from gradus.errors import InternalFault, Misuse, QueueFault

LOOPBACK = ("127.0.0.1", "::1", "localhost")
DEVICES = ("auto", "cuda", "cpu")
BACKENDS = ("file", "nccl")
"""How the server takes new weights; every run can send the first."""
SHARED_CARD = 0.35
"""Share of its memory that a vLLM server takes of a machine's only card, where the trainer needs
the rest."""
POLL_S = 0.5
PR_SET_PDEATHSIG = 1
STOP_S = 30.0
SIGNALLED = 128
"""Exit status of a program that a signal ended: this plus the signal's number, as in shells."""
CPU_KV_CACHE_MB = 256

_QUIET = {
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "TOKENIZERS_PARALLELISM": "false",
}
_DEVELOPMENT = {"VLLM_SERVER_DEV_MODE": "1", "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1"}
"""Without these, weights and adapters cannot be replaced."""


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
    sync: str = BACKENDS[0]
    exposed: bool = False
    """Other hosts are kept off its port by other means."""
    start_s: float = 600.0
    extra: tuple[str, ...] = ()
    """Options for vLLM itself, last."""

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"


def command_of(options: VllmServerOptions, device: str, cards: int = 0) -> list[str]:
    """How vLLM is started. Its module and not its script: the script looks for a package that its
    CPU build lacks."""
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", options.model]
    command += ["--host", options.host, "--port", str(options.port)]
    command += ["--logprobs-mode", "processed_logprobs", "--max-logprobs", "-1"]
    # without it, vLLM samples with the model's own top_k and repetition_penalty where a request is
    # silent
    command += ["--generation-config", "vllm"]
    command += ["--weight-transfer-config", json.dumps({"backend": options.sync})]
    if options.lora_rank is not None:
        # the adapter in use, the one before it, and one that is being loaded
        command += ["--enable-lora", "--max-lora-rank", str(options.lora_rank), "--max-loras", "3"]
    if device == "cpu":
        command += ["--dtype", "float32", "--enforce-eager", "--gpu-memory-utilization", "0.3"]
        command += ["--kv-cache-memory-bytes", str(CPU_KV_CACHE_MB << 20)]
        # vLLM 0.32 dies on a CPU of a request with a seed whose prompt is read in chunks
        command += ["--no-enable-chunked-prefill", "--max-num-batched-tokens", "8192"]
    elif _shares_card(cards):
        command += ["--gpu-memory-utilization", str(SHARED_CARD)]
    return [*command, *options.extra]


def _shares_card(cards: int) -> bool:
    """Whether the trainer needs the card as well: it is the only one that this process sees, and
    not one that a person gave the server alone (CUDA_VISIBLE_DEVICES)."""
    return cards == 1 and "CUDA_VISIBLE_DEVICES" not in os.environ


def environment_of() -> dict[str, str]:
    return {**_QUIET, **os.environ, **_DEVELOPMENT}


def serve(options: VllmServerOptions, say: Callable[[str], None]) -> int:
    """Run the server until it ends or a signal ends it; its exit status. Raises Misuse or Fault
    when it is unfit."""
    _refuse_unusable(options)
    import torch

    cards = torch.cuda.device_count()
    device = options.device
    if device == "auto":
        device = "cuda" if cards else "cpu"
    if device == "cuda" and _shares_card(cards):
        say(
            "gradus: this machine has one card, which a trainer needs too: vLLM takes"
            f" {SHARED_CARD:.0%} of its memory (--gpu-memory-utilization takes more)"
        )
    with subprocess.Popen(
        command_of(options, device, cards), env=environment_of(), preexec_fn=_dies_with_us()
    ) as server:  # noqa: PLW1509
        _pass_signals_on(server)
        try:
            _await_health(options, server)
            _self_test(options)
            say(f"gradus: vLLM serves {options.model} on {options.url} ({device})")
            status = server.wait()
            return status if status >= 0 else SIGNALLED - status
        finally:
            _end(server)


def _refuse_unusable(options: VllmServerOptions) -> None:
    for name, value, known in (
        ("--device", options.device, DEVICES),
        ("--sync", options.sync, BACKENDS),
    ):
        if value not in known:
            raise Misuse(f"{name} {value}: it is one of {', '.join(known)}")
    if importlib.util.find_spec("vllm") is None:
        raise Misuse(
            "this environment has no vLLM. Use one of its own: `make vllm` makes .venv-vllm for a"
            " CPU; with CUDA, pip install 'gradus-rl[vllm]' into a fresh environment"
        )
    if options.host not in LOOPBACK and not options.exposed:
        raise Misuse(
            f"--host {options.host}: clients of that port can replace the model's weights. Keep it"
            " on 127.0.0.1, or add --trust-network where something else keeps others away, such as"
            " a network of its own"
        )


def _dies_with_us() -> Callable[[], Any] | None:
    """preexec function of the child: it gets SIGTERM when `gradus vllm` is killed and cannot pass a
    signal on."""
    if sys.platform != "linux":
        return None
    return partial(
        ctypes.CDLL(None).prctl, PR_SET_PDEATHSIG, int(signal.SIGTERM)
    )  # looked up before the fork


def _pass_signals_on(server: subprocess.Popen[bytes]) -> None:
    def stop(number: int, frame: FrameType | None) -> None:
        server.send_signal(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)


def _await_health(options: VllmServerOptions, server: subprocess.Popen[bytes]) -> None:
    give_up_at = time.monotonic() + options.start_s
    while time.monotonic() < give_up_at:
        if (status := server.poll()) is not None:
            raise InternalFault(
                f"vLLM ended with status {status} before it served; it said why above",
                retryable=False,
            )
        try:
            if httpx.get(f"{options.url}/health", timeout=5).status_code == 200:
                return
        except httpx.HTTPError:
            pass
        time.sleep(POLL_S)
    raise QueueFault(f"vLLM was not healthy after {options.start_s:g} s (--start-timeout-s)")


def _self_test(options: VllmServerOptions) -> None:
    """Raises InternalFault when the server is not what training needs, or others can reach it."""
    info = httpx.get(f"{options.url}/server_info", params={"config_format": "json"}, timeout=30)
    settings: Any = info.json()["vllm_config"] if info.status_code == 200 else {}
    mode = (settings.get("model_config") or {}).get("logprobs_mode")
    if mode != "processed_logprobs":
        raise InternalFault(
            f"vLLM came up with logprobs mode {mode}, not processed_logprobs", retryable=False
        )
    if not options.exposed and (reached := reachable_from_outside(options.port)):
        raise InternalFault(
            f"vLLM's port answers on {', '.join(reached)}: its clients can replace the model's"
            " weights",
            retryable=False,
        )


def reachable_from_outside(port: int) -> Sequence[str]:
    """Addresses of this machine, other than loopback, on which something answers at `port`."""
    return [address for address in _own_addresses() if _answers(address, port)]


def _own_addresses() -> set[str]:
    found = set()
    for family, probe in ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1")):
        with socket.socket(family, socket.SOCK_DGRAM) as asking:
            try:
                asking.connect((probe, 9))  # sends nothing: only asks which address would be used
            except OSError:
                continue
            found.add(asking.getsockname()[0])
    return {address for address in found if not address.startswith("127.") and address != "::1"}


def _answers(address: str, port: int) -> bool:
    try:
        with socket.create_connection((address, port), timeout=2):
            return True
    except OSError:
        return False


def _end(server: subprocess.Popen[bytes]) -> None:
    if server.poll() is None:
        server.terminate()
        try:
            server.wait(STOP_S)
        except subprocess.TimeoutExpired:
            server.kill()
