"""Which backend writes the completions, as the config's `generation` says, and how TRL is told. Generates nothing.

Three of them: this process through transformers (TRL's own code), a vLLM server with weights as files or adapters
(`served`), and a vLLM server with TRL's own NCCL transfer, where there is CUDA.
"""

from __future__ import annotations

import importlib.util
import secrets
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

from trl.trainer import grpo_trainer, rloo_trainer

from gradus.errors import Misuse
from trainer.config.device import Device
from trainer.config.run import GenerationConfig
from trainer.generation.client import GenerationState
from trainer.generation.vllm_generation import HttpVllmGeneration, PreciseVllmGeneration
from trainer.generation.weights import WeightsFolder
from trainer.runs.distributed import is_leader
from trainer.runs.folder import RunFolder

_OURS = {
    "n": "set grpo.num_generations",
    "max_tokens": "set grpo.max_completion_length",
    "seed": "every group would be drawn alike in every step, and vLLM 0.32 can die of it on a CPU",
    "structured_outputs": "set grpo.vllm_structured_outputs_regex",
    **dict.fromkeys(("model", "prompt", "logprobs", "prompt_logprobs", "echo", "stream"), "it is ours to set"),
}
"""What `grpo.generation_kwargs` may not hold, and what to do instead."""
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "top_p": (1, None),
    "top_k": (0, -1, None),
    "min_p": (0, None),
    "repetition_penalty": (1, None),
    "presence_penalty": (0, None),
    "frequency_penalty": (0, None),
}
"""Options of sampling with which vLLM's probabilities are the trainer's."""


def vllm_options(config: GenerationConfig, options: Mapping[str, Any], stage: str = "grpo") -> dict[str, Any]:
    """What of it TRL's configuration class is told. Raises Misuse where its options do not go with vLLM or with it."""
    if stage == "grpo" and (config.backend == "vllm" or options.get("use_vllm")):
        _refuse_vanishing_weights(options)
    if config.backend == "in_process":
        return {}
    for name in ("use_vllm", "vllm_mode", "vllm_server_base_url", "vllm_server_host", "vllm_server_port"):
        if name in options:
            raise Misuse(f"{stage}.{name}: generation.backend: vllm sets it; leave it out (generation.url says where)")
    for name in options.get("generation_kwargs") or {}:
        if name in _OURS:
            raise Misuse(f"{stage}.generation_kwargs: {name}: {_OURS[name]}")
    return {"use_vllm": True, "vllm_mode": "server", "vllm_server_base_url": config.url}


def _refuse_vanishing_weights(options: Mapping[str, Any]) -> None:
    """TRL 1.16 multiplies a completion's loss by the trainer's probability of it over vLLM's, unless told otherwise."""
    by_token = str(options.get("vllm_importance_sampling_mode")).startswith("token_")
    if by_token or options.get("vllm_importance_sampling_correction") is False:
        return
    asked = {**options, **(options.get("generation_kwargs") or {})}
    for name, neutral in _NEUTRAL.items():
        if asked.get(name) not in neutral:
            raise Misuse(
                f"grpo: {name} {asked[name]} with vLLM: its probabilities are then others than the trainer's, by up to "
                "5% a token with top_p 0.95, and TRL multiplies what a completion teaches by the quotients of all of "
                "its tokens: long ones would teach nothing. Leave it out, or set grpo.vllm_importance_sampling_mode: "
                "token_truncate"
            )


def refuse_without_vllm(config: GenerationConfig, options: Mapping[str, Any], device: Device) -> None:
    """Raises Misuse where TRL is to talk to vLLM by itself, in colocate mode or over NCCL, and cannot here."""
    over_nccl = config.backend == "vllm" and config.sync == "nccl"
    if over_nccl and device.kind != "cuda":
        raise Misuse(f"generation.sync: nccl moves weights between GPUs, and this trains on {device.kind}; use file")
    by_trl = over_nccl or (config.backend == "in_process" and options.get("use_vllm"))
    if by_trl and importlib.util.find_spec("vllm") is None:
        raise Misuse(
            f"{'generation.sync: nccl' if over_nccl else 'use_vllm'}: needs vLLM in the trainer's environment, which "
            "has none: pip install 'gradus[train,vllm]'. A server with generation: {backend: vllm, sync: file} does not"
        )


@contextmanager
def generating(
    config: GenerationConfig, folder: RunFolder, say: Callable[[str], None]
) -> Iterator[GenerationState | None]:
    """A trainer of TRL's that is made inside the block generates this way; None where TRL does it all by itself.

    What was written for the server is gone after the block.
    """
    served = None
    ours: Callable[..., Any] = PreciseVllmGeneration
    if config.backend == "vllm" and config.sync != "nccl":
        run = f"gradus-{time.strftime('%Y%m%dT%H%M%S')}-{secrets.token_hex(3)}"
        if is_leader() and config.folder is None:
            shutil.rmtree(folder.weights, ignore_errors=True)  # a run that was killed left its own
        served = GenerationState(config, WeightsFolder(config.folder or folder.weights, run), run, say)
        ours = partial(HttpVllmGeneration, served=served)
    # TRL has no other way to be given a backend of one's own that keeps its importance-sampling correction. Each of its
    # trainers that generate has a name of its own for what talks to vLLM.
    own = grpo_trainer.VLLMGeneration
    grpo_trainer.VLLMGeneration = rloo_trainer.VLLMGeneration = ours
    try:
        yield served
    finally:
        grpo_trainer.VLLMGeneration = rloo_trainer.VLLMGeneration = own
        if served is not None:
            served.close()
