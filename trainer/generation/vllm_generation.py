"""Completions from a vLLM server for TRL's trainers, with weights in step where there is no NCCL.

Takes the place of TRL's own `VLLMGeneration` in server mode: what it gathers and spreads over processes, its sampling
options and its walk through the weights stay TRL's. What is said to the server is `client`'s.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch
from accelerate.utils import broadcast_object_list, is_peft_model
from trl.generation.vllm_generation import VLLMGeneration

from gradus.errors import GradusError, Misuse
from trainer.generation.client import Client, GenerationState, How
from trainer.models.adapters import merged_parameters

Result = TypeVar("Result")


class PreciseVllmGeneration(VLLMGeneration):  # type: ignore[misc]
    """TRL's class, with adapters merged as `merged_parameters` does where every process holds the whole model."""

    def _iter_named_params(self) -> Iterator[tuple[str, torch.Tensor]]:
        model = self.accelerator.unwrap_model(self.model)
        if not is_peft_model(model) or self._is_sharded:
            yield from super()._iter_named_params()
            return
        for name, tensor in merged_parameters(model):
            yield self._fix_param_name_to_vllm(name), tensor

    @property
    def _is_sharded(self) -> bool:
        """Whether no process holds all of the weights."""
        return bool(self._dist.is_zero3 or self._dist.is_fsdp)


class HttpVllmGeneration(PreciseVllmGeneration):
    """TRL's class with our client in it. Only the main process talks to the server; all of them learn how it went."""

    def __init__(self, *, served: GenerationState, **options: Any) -> None:
        self.served = served
        super().__init__(**options)

    def _init_vllm(self) -> None:
        adapter = self._wants_adapter()
        if self._is_sharded and self.served.config.verify_sync != "never":
            raise Misuse(
                "generation.verify_sync: no process holds the whole model (ZeRO-3 or FSDP), so none can compare it "
                "with the server; set never, and watch sampling/sampling_logp_difference/max in metrics.jsonl"
            )
        self._how: How = self._by_main(lambda: self._connected(adapter))

    def _connected(self, adapter: bool) -> How:
        vocab_size = self.accelerator.unwrap_model(self.model).get_input_embeddings().num_embeddings
        self.vllm_client = Client(self.served, self._write, self._difference, vocab_size)
        self.served.client = self.vllm_client
        return self.vllm_client.connect(adapter)

    def _wants_adapter(self) -> bool:
        """Whether the change of the weights is a LoRA adapter that vLLM can serve as one."""
        sync, model = self.served.config.sync, self.accelerator.unwrap_model(self.model)
        plain = is_peft_model(model) and not model.active_peft_config.modules_to_save and not self._is_sharded
        if sync == "lora" and not plain:
            raise Misuse(
                "generation.sync: lora needs a LoRA model without modules_to_save, whole in every process (no ZeRO-3, "
                "no FSDP); use file, http or auto"
            )
        return plain and sync in ("auto", "lora")

    def sync_weights(self) -> None:
        """Give the server the weights of this step. Every process walks through them: gathering is done together."""
        if not self.accelerator.is_main_process and self._how == "weights":
            for _ in self._iter_named_params():
                pass
        self._by_main(lambda: self.vllm_client.new_version())

    def generate(self, *arguments: Any, **options: Any) -> Any:
        """As TRL's. What ends it in the main process ends it in all: the others wait there for completions."""
        try:
            return super().generate(*arguments, **options)
        except GradusError as stopped:
            if self.accelerator.is_main_process:
                broadcast_object_list([_RemoteError(stopped)], from_process=0)
            raise

    def _by_main(self, attempt: Callable[[], Result]) -> Result:
        """What `attempt` returns or raises in the main process, in all of them."""
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

    def _write(self, name: str) -> Path:
        if self._how == "lora":
            return self.served.folder.adapter(name, self.accelerator.unwrap_model(self.model))
        return self.served.folder.weights(name, self._iter_named_params())

    def _difference(self, ids_T: Sequence[int], logprobs_T: Sequence[float]) -> float:
        return largest_difference(self.accelerator.unwrap_model(self.model), ids_T, logprobs_T)


class _RemoteError:
    """What ended the main process's work, sent where its result is waited for: whoever unpacks it raises that."""

    def __init__(self, stopped: GradusError) -> None:
        self.stopped = stopped

    def __iter__(self) -> Iterator[Any]:
        raise self.stopped


def largest_difference(model: Any, ids_T: Sequence[int], served_T1: Sequence[float]) -> float:
    """The largest difference between the model's log-probabilities of `ids_T[1:]` and those that a server gave.

    Infinite when there is nothing to compare, or when a figure is no number.
    """
    own_T1 = _logprobs(model, ids_T)
    if not served_T1 or len(own_T1) != len(served_T1):
        return math.inf
    differences = [abs(own - served) for own, served in zip(own_T1, served_T1, strict=True)]
    return max(differences) if all(map(math.isfinite, differences)) else math.inf


def _logprobs(model: Any, ids_T: Sequence[int]) -> list[float]:
    training = model.training
    model.eval()  # dropout would be a difference of its own
    try:
        with torch.no_grad():
            ids = torch.tensor([list(ids_T)], device=model.device)
            logits_TV = model(input_ids=ids).logits[0, :-1].float()
            all_TV = torch.log_softmax(logits_TV, dim=-1)
            chosen: list[float] = all_TV.gather(-1, ids[0, 1:, None])[:, 0].tolist()
            return chosen
    finally:
        model.train(training)
