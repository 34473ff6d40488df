"""Which backend writes the completions, as the config's `generation` says, and how TRL is
configured for it.

Three of them: this process through transformers (TRL's own code), a vLLM server with weights as
files or adapters (`HttpVllmGeneration`), and a vLLM server with TRL's own NCCL transfer, where
there is CUDA. What is said to the server is `client`'s.
"""

from __future__ import annotations

import importlib.util
import secrets
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch
from accelerate.utils import broadcast_object_list, gather_object, is_peft_model
from trl.generation.vllm_generation import VLLMGeneration
from trl.trainer import grpo_trainer, rloo_trainer

from gradus.errors import GradusError, Misuse
from gradus.weight_checksums import (
    Checksums,
    collect_checksums,
    compute_checksum,
    find_differing,
)
from trainer.config.device import Device
from trainer.config.run import GenerationConfig
from trainer.generation.client import Client, GenerationState, How, Model
from trainer.generation.parity import compute_logprobs, get_served_dtype, refuse_differing
from trainer.generation.server import VllmServer
from trainer.generation.weights import (
    WeightsFolder,
    compute_adapter_checksums,
    iter_merged_parameters,
)
from trainer.runs.distributed import is_leader, run_on_all_ranks
from trainer.runs.folder import RunFolder

_OURS = {
    "n": "set grpo.num_generations",
    "max_tokens": "set grpo.max_completion_length",
    "seed": "every group would be drawn alike in every step, and vLLM 0.32 can die of it on a CPU",
    "structured_outputs": "set grpo.vllm_structured_outputs_regex",
    **dict.fromkeys(
        ("model", "prompt", "logprobs", "prompt_logprobs", "echo", "stream"), "it is ours to set"
    ),
}
"""What `grpo.generation_kwargs` may not hold, and what to do instead."""
BY_TOKEN = "token_truncate"
"""How tokens are weighed for the difference between trainer and vLLM, where the config names no
mode. TRL's default, `sequence_mask`, multiplies the weights of all tokens of a completion
(docs/decisions/0037-weights-by-token.md)."""
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "top_p": (1, None),
    "top_k": (0, -1, None),
    "min_p": (0, None),
    "repetition_penalty": (1, None),
    "presence_penalty": (0, None),
    "frequency_penalty": (0, None),
}
"""Options of sampling with which vLLM's probabilities are the trainer's."""


def build_vllm_options(
    config: GenerationConfig, options: Mapping[str, Any], stage: str = "grpo"
) -> dict[str, Any]:
    """Return what of it TRL's configuration class gets. Raises Misuse where its options do not go
    with vLLM or with it."""
    weighing: dict[str, Any] = {}
    if stage == "grpo" and (config.backend == "vllm" or options.get("use_vllm")):
        _refuse_vanishing_weights(options)
        mode = options.get("vllm_importance_sampling_mode", BY_TOKEN)
        weighing["vllm_importance_sampling_mode"] = mode
    if config.backend == "in_process":
        return weighing
    for name in (
        "use_vllm",
        "vllm_mode",
        "vllm_server_base_url",
        "vllm_server_host",
        "vllm_server_port",
    ):
        if name in options:
            raise Misuse(
                f"{stage}.{name}: generation.backend: vllm sets it; leave it out (generation.url"
                " says where)"
            )
    for name in options.get("generation_kwargs") or {}:
        if name in _OURS:
            raise Misuse(f"{stage}.generation_kwargs: {name}: {_OURS[name]}")
    server = {"use_vllm": True, "vllm_mode": "server", "vllm_server_base_url": config.url}
    return {**server, **weighing}


def _refuse_vanishing_weights(options: Mapping[str, Any]) -> None:
    """In its sequence modes TRL 1.16 multiplies a completion's loss by the trainer's probability
    of it over vLLM's."""
    by_token = options.get("vllm_importance_sampling_mode", BY_TOKEN).startswith("token_")
    if by_token or options.get("vllm_importance_sampling_correction") is False:
        return
    sampling = {**options, **(options.get("generation_kwargs") or {})}
    for name, neutral in _NEUTRAL.items():
        if sampling.get(name) not in neutral:
            raise Misuse(
                f"grpo: {name} {sampling[name]} with vLLM: its probabilities are then others than"
                " the trainer's, by up to 5% a token with top_p 0.95, and TRL multiplies what a"
                " completion teaches by the quotients of all of its tokens: long ones would teach"
                " nothing. Leave it out, or set grpo.vllm_importance_sampling_mode: token_truncate"
            )


def refuse_without_vllm(
    config: GenerationConfig, options: Mapping[str, Any], device: Device
) -> None:
    """Raise Misuse where TRL is to talk to vLLM by itself, in colocate mode or over NCCL, and
    cannot here."""
    over_nccl = config.backend == "vllm" and config.sync == "nccl"
    if over_nccl and device.kind != "cuda":
        raise Misuse(
            f"generation.sync: nccl moves weights between GPUs, and this trains on {device.kind};"
            " use file"
        )
    by_trl = over_nccl or (config.backend == "in_process" and options.get("use_vllm"))
    if by_trl and importlib.util.find_spec("vllm") is None:
        raise Misuse(
            f"{'generation.sync: nccl' if over_nccl else 'use_vllm'}: needs vLLM in the trainer's"
            " environment, which has none: `make gpu` makes .venv-gpu with both. A server with"
            " generation: {backend: vllm, sync: file} does not"
        )


@contextmanager
def install_generation(
    config: GenerationConfig,
    folder: RunFolder,
    log: Callable[[str], None],
) -> Iterator[GenerationState | None]:
    """A trainer of TRL's that is made inside the block generates this way; None where TRL does it
    all by itself.

    What was written for the server is gone after the block.
    """
    served = None
    ours: Callable[..., Any] = PreciseVllmGeneration
    if config.backend == "vllm" and config.sync != "nccl":
        run = f"gradus-{time.strftime('%Y%m%dT%H%M%S')}-{secrets.token_hex(3)}"
        if is_leader() and config.folder is None:
            shutil.rmtree(folder.weights, ignore_errors=True)  # a run that was killed left its own
        served = GenerationState(
            config, WeightsFolder(config.folder or folder.weights, run), run, log
        )
        ours = partial(HttpVllmGeneration, served=served)
    # TRL has no other way to be given a backend of one's own that keeps its importance-sampling
    # correction. Each of its trainers that generate has a name of its own for what talks to vLLM.
    original = grpo_trainer.VLLMGeneration
    grpo_trainer.VLLMGeneration = rloo_trainer.VLLMGeneration = ours
    try:
        yield served
    finally:
        grpo_trainer.VLLMGeneration = rloo_trainer.VLLMGeneration = original
        if served is not None and served.client is not None:
            served.client.close()


Result = TypeVar("Result")


class PreciseVllmGeneration(VLLMGeneration):  # type: ignore[misc]
    """TRL's class, with adapters merged as `iter_merged_parameters` does where every process holds
    the whole model, and with weights compared by checksums after each transfer."""

    _sent: Checksums
    """Checksums of the weights of the last walk through them, in the type in which vLLM holds
    them."""
    _served_dtype: torch.dtype | None = None
    """That type, in the processes that compare what they sent with what vLLM holds."""

    def sync_weights(self) -> None:
        """Give vLLM the weights of this step. Raises GenerationStopped in all processes where vLLM
        then holds others."""
        super().sync_weights()
        run_on_all_ranks(self._compare_weights)

    def _compare_weights(self) -> None:
        """Raise GenerationStopped where vLLM holds other weights than this process sent."""
        if self.mode == "colocate":
            collected = self.llm.apply_model(collect_checksums)
        elif self.accelerator.is_main_process:
            server = VllmServer(GenerationConfig(url=self.vllm_client.base_url))
            collected = server.collect_checksums("nccl") if server.collects_checksums() else []
        else:
            collected = []
        if collected:
            refuse_differing(*find_differing(self._sent, collected))

    def _init_vllm(self) -> None:
        super()._init_vllm()
        if self.mode == "colocate":
            self._served_dtype = self.llm.llm_engine.model_config.dtype
        elif self.accelerator.is_main_process:
            self._served_dtype = get_served_dtype(self.vllm_client.get_server_info())

    def _iter_named_params(self) -> Iterator[tuple[str, torch.Tensor]]:
        self._sent = {}
        dtype = self._served_dtype
        for name, tensor in self._iter_whole_params():
            if dtype is not None and tensor.is_floating_point():
                self._sent[name] = compute_checksum([tensor.to(dtype)])
            yield name, tensor

    def _iter_whole_params(self) -> Iterator[tuple[str, torch.Tensor]]:
        model = self.accelerator.unwrap_model(self.model)
        if not is_peft_model(model):
            yield from super()._iter_named_params()
        elif self._is_sharded:
            # TRL merges in place and unmerges at the end, before packed tensors are copied
            for name, tensor in super()._iter_named_params():
                yield name, tensor.clone()
        else:
            for name, tensor in iter_merged_parameters(model):
                yield self._fix_param_name_to_vllm(name), tensor

    @property
    def _is_sharded(self) -> bool:
        """Whether no process holds all of the weights."""
        return bool(self._dist.is_zero3 or self._dist.is_fsdp)


class HttpVllmGeneration(PreciseVllmGeneration):
    """TRL's class with our client in it. Only the main process talks to the server; all of them
    learn how it went."""

    def __init__(self, *, served: GenerationState, **options: Any) -> None:
        self.served = served
        super().__init__(**options)

    def _init_vllm(self) -> None:
        adapter = self._should_send_adapter()
        if self._is_sharded and self.served.config.verify_sync != "never":
            raise Misuse(
                "generation.verify_sync: no process holds the whole model (ZeRO-3 or FSDP), so none"
                " can compare it with the server; set never, and watch"
                " sampling/sampling_logp_difference/max in metrics.jsonl"
            )
        self._how: How = self._run_on_main(lambda: self._create_client(adapter))

    def _create_client(self, adapter: bool) -> How:
        model = self.accelerator.unwrap_model(self.model)
        trainer_model = Model(
            partial(compute_logprobs, model),
            model.get_input_embeddings().num_embeddings,
            dtype=str(model.dtype),
        )
        self.vllm_client = Client(self.served, self._write, trainer_model)
        self.served.client = self.vllm_client
        how = self.vllm_client.connect(adapter)
        self._served_dtype = self.vllm_client.served_dtype
        return how

    def _should_send_adapter(self) -> bool:
        """Return whether the change of the weights is a LoRA adapter that vLLM can serve as one."""
        sync = self.served.config.sync
        model = self.accelerator.unwrap_model(self.model)
        plain = (
            is_peft_model(model)
            and not model.active_peft_config.modules_to_save
            and not self._is_sharded
        )
        if sync == "lora" and not plain:
            raise Misuse(
                "generation.sync: lora needs a LoRA model without modules_to_save, whole in every"
                " process (no ZeRO-3, no FSDP); use file or auto"
            )
        return plain and sync in ("auto", "lora")

    def sync_weights(self) -> None:
        """Give the server the weights of this step. Every process walks through them: gathering is
        done together."""
        if not self.accelerator.is_main_process and self._how != "lora":
            for _ in self._iter_named_params():
                pass
        self._run_on_main(lambda: self.vllm_client.send_weights())

    def start_ahead(self, prompts: Sequence[Sequence[int]], num_generations: int) -> None:
        """Begin to write the completions of the round that follows. `prompts` are tokens of this
        process's, each prompt `num_generations` times in a row."""
        everywhere = gather_object(list(prompts))
        self._run_on_main(lambda: self.vllm_client.start_ahead(everywhere[::num_generations]))

    def generate(self, *arguments: Any, **options: Any) -> Any:
        """As TRL's. What ends it in the main process ends it in all: the others wait there for
        completions."""
        try:
            return super().generate(*arguments, **options)
        except GradusError as stopped:
            if self.accelerator.is_main_process:
                broadcast_object_list([_RemoteError(stopped)], from_process=0)
            raise

    def _run_on_main(self, attempt: Callable[[], Result]) -> Result:
        """Return what `attempt` returns or raises in the main process, in all of them."""
        outcome: list[Any] = [None]
        if self.accelerator.is_main_process:
            try:
                outcome = [attempt()]
            except GradusError as stopped:
                outcome = [_RemoteError(stopped)]
        (had,) = broadcast_object_list(outcome, from_process=0)
        if isinstance(had, _RemoteError):
            raise had.stopped
        result: Result = had
        return result

    def _write(self, name: str) -> tuple[Path, Checksums]:
        if self._how == "lora":
            model = self.accelerator.unwrap_model(self.model)
            checksums = compute_adapter_checksums(model, self.vllm_client.served_dtype)
            return self.served.folder.adapter(name, model), checksums
        path = self.served.folder.weights(name, self._iter_named_params())
        return path, self._sent


class _RemoteError:
    """What ended the main process's work, sent where its result is waited for: unpacking it raises
    that."""

    def __init__(self, stopped: GradusError) -> None:
        self.stopped = stopped

    def __iter__(self) -> Iterator[Any]:
        raise self.stopped
