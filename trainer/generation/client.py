"""One run's dealings with its vLLM server: is it fit, has it the weights of now, what if it dies.
Writes no weights.

TRL's generation sees a `Client` as its vLLM client: `generate` and `get_server_info`. No completion
of other weights than those of now gets through: whose weights the server holds is asked before and
after, and compared once per sync by the probabilities that both sides give the same tokens.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch

from gradus.weight_checksums import Checksums, find_differing
from trainer.config.run import GenerationConfig
from trainer.generation.parity import (
    compare_logprobs,
    get_served_dtype,
    refuse_differing,
    select_mean_bound,
)
from trainer.generation.responses import (
    GenerationStopped,
    Sampled,
    TransientServerError,
    refuse_untested,
)
from trainer.generation.server import OnGroup, VllmServer
from trainer.generation.weights import WeightsFolder

How = Literal["lora", "nccl", "file"]
"""How the server gets weights: a value of `generation.sync` but `auto`."""
Write = Callable[[str], tuple[Path, Checksums]]
"""Writes the weights of now under a name."""


@dataclass(frozen=True, slots=True)
class Model:
    """The trainer's model, as far as it is compared with the server's."""

    logprobs: Callable[[Sequence[int]], list[float]]
    """Log-probability of every token but the first."""
    vocab_size: int
    dtype: str


PROBE_TOKENS = 256
"""What is compared at most: two tables of this many rows by the vocabulary are made for it."""


@dataclass
class GenerationState:
    """What a run knows of its server beside TRL's options."""

    config: GenerationConfig
    folder: WeightsFolder
    run: str
    """Unique id of the run, by which the server reports whose weights it holds."""
    log: Callable[[str], None]
    on_group: OnGroup = lambda index, group: None
    """Told of each group of completions as it is done; the index counts the prompts of the
    batch."""
    metrics: dict[str, float] = field(default_factory=dict)
    """Metrics of the last batch."""
    client: Client | None = None
    """In the main process, once there is a trainer."""


@dataclass(frozen=True, slots=True)
class Request:
    """What a batch of completions is asked with."""

    prompts: list[list[int]]
    n: int
    """Completions for each prompt."""
    parameters: Mapping[str, Any]
    """Sampling, by vLLM's names."""


Groups = dict[int, list[Sampled]]
"""Completions by the index of their prompt."""


def select_sync(server: VllmServer, config: GenerationConfig, wants_adapter: bool) -> How:
    """Return how weights will travel to a server that answers. Raises GenerationStopped when it
    cannot take them."""
    refuse_untested(server.get_version(), allowed=config.allow_untested_versions)
    settings = server.get_settings()
    mode = (settings.get("model_config") or {}).get("logprobs_mode")
    if mode != "processed_logprobs":
        raise GenerationStopped(
            f"the vLLM server at {server.url} runs with --logprobs-mode {mode}: its"
            " log-probabilities are not those of what it samples. Start it with `gradus vllm"
            " MODEL`, or that option = processed_logprobs."
        )
    serves_adapters = bool(settings.get("lora_config"))
    backend = (settings.get("weight_transfer_config") or {}).get("backend")
    way: How = "lora" if wants_adapter and serves_adapters else "file"
    if config.sync != "auto":
        way = config.sync
    if way == "lora":
        if not serves_adapters:
            raise GenerationStopped(
                f"the vLLM server at {server.url} was started without --enable-lora; `gradus vllm"
                " MODEL --lora-rank R` serves adapters"
            )
        refuse_changed_base(server)
    elif way != backend:
        raise GenerationStopped(
            f"the vLLM server at {server.url} takes weights by {backend or 'nothing'}, and this run"
            f" sends them by {way}: start it with `gradus vllm MODEL --sync {way}`"
        )
    return way


def refuse_changed_base(server: VllmServer) -> None:
    """Raise GenerationStopped when the server's base model was replaced: an adapter goes with the
    model as read."""
    if (version := server.get_weight_version()) is not None:
        raise GenerationStopped(
            f"the vLLM server at {server.url} no longer holds its base model but weights"
            f" {version!r};"
            " an adapter on them would be wrong without an error. Start the server again."
        )


class Client:
    def __init__(self, served: GenerationState, write: Write, model: Model) -> None:
        self._served = served
        self._config = served.config
        self._write = write
        self._trainer_model = model
        self._server = VllmServer(served.config)
        self._how: How = "file"
        self._base = ""
        self._number = 0
        self._weights_path: Path | None = None
        self._checksums: Checksums = {}
        self._has_checksums = False
        self.served_dtype = torch.bfloat16
        """Type of the server's weights, once it is connected."""
        self._unverified = False
        self._last: Request | None = None
        self._ahead: tuple[Request, Future[Groups]] | None = None
        """Completions of the next batch, which are being written."""

    # ---------------------------------------------------------------------- beginning and end

    def connect(self, wants_adapter: bool) -> How:
        """Return how weights will travel. Raises GenerationStopped when the server is not one that
        we can keep in step."""
        self._server.await_ready(self._config.restart_wait_s, self._served.log)
        try:
            self._base = self._server.model()
            self._how = select_sync(self._server, self._config, wants_adapter)
            self._has_checksums = self._server.collects_checksums()
            self.served_dtype = get_served_dtype(self._server.get_settings())
        except TransientServerError as trouble:
            raise GenerationStopped(str(trouble)) from None
        description = "LoRA adapters" if self._how == "lora" else "files of all weights"
        self._served.log(
            f"generating with vLLM at {self._server.url}; weights are synchronized by {description}"
        )
        return self._how

    def get_server_info(self) -> Any:
        return self._server.get_settings()

    def close(self) -> None:
        """Leave nothing behind: no adapter in the server, no weights on the disk."""
        self._served.on_group = lambda index, group: None
        if self._how == "lora":
            with suppress(TransientServerError, GenerationStopped):
                self._remove_other_adapters(None)
        with suppress(OSError):
            self._served.folder.clear()

    # ---------------------------------------------------------------------------------------- sync

    def send_weights(self) -> None:
        """Write the weights of now and have the server load them, once the completions that were
        begun ahead are there. Raises GenerationStopped after bounded tries."""
        if self._ahead is not None:
            wait([self._ahead[1]])
        started = time.monotonic()
        self._number += 1
        try:
            self._weights_path, self._checksums = self._write(self._name)
        except OSError as error:
            raise GenerationStopped(
                f"the weights could not be written for the vLLM server: {error}"
            ) from None
        self._retry(
            self._load,
            "take new weights",
            "It may be left paused with half of them: start it again.",
        )
        verify = self._config.verify_sync
        self._unverified |= verify == "always" or (verify == "first" and self._number == 1)
        self._served.metrics["sync_s"] = time.monotonic() - started

    @property
    def _name(self) -> str:
        return f"{self._served.run}-{self._number}"

    @property
    def _model(self) -> str:
        return self._name if self._how == "lora" else self._base

    def _load(self) -> None:
        assert self._weights_path is not None
        deadline_s = self._config.sync_deadline_s
        if self._how != "lora":
            if not (self._server.get_weight_version() or "").startswith(self._served.run):
                self._server.start_updates()
            self._server.update(self._weights_path.resolve(), self._name, deadline_s)
        else:
            if self._name not in self._list_own_adapters():
                path = str(self._weights_path.resolve())
                self._server.load_adapter(self._name, path, deadline_s)
            self._remove_other_adapters(self._name)
        if self._has_checksums:
            collected = self._server.collect_checksums(self._how)
            compared, differing = find_differing(self._checksums, collected)
            self._served.metrics["sync_tensors_compared"] = compared
            refuse_differing(compared, differing)

    def _list_own_adapters(self) -> set[str]:
        return {name for name in self._server.list_models() if name.startswith(self._served.run)}

    def _remove_other_adapters(self, current: str | None) -> None:
        for name in self._list_own_adapters() - {current}:
            self._server.unload_adapter(name)

    def _is_current(self) -> bool:
        """Return whether the server holds the weights of now. Raises GenerationStopped when an
        adapter's base has changed."""
        if self._how == "lora":
            refuse_changed_base(self._server)
            return self._name in self._list_own_adapters()
        return self._server.get_weight_version() == self._name

    def _verify(self, prompts: Sequence[Sequence[int]]) -> None:
        """Raise GenerationStopped when trainer and server give the same tokens other
        probabilities."""
        probe = build_probe(prompts)
        mean, largest = compare_logprobs(
            self._trainer_model.logprobs(probe), self._server.logprobs(self._model, probe)
        )
        self._served.metrics["sync_logprob_difference_max"] = largest
        self._served.metrics["sync_logprob_difference_mean"] = mean
        bound = self._config.max_logprob_difference or select_mean_bound(
            (self._trainer_model.dtype, str(self.served_dtype))
        )
        self._unverified = False
        if not mean <= bound:
            raise GenerationStopped(
                f"trainer and vLLM server {self._server.url} differ by {mean:.3g} in the mean"
                f" log-probability of a token, more than {bound:g}"
                " (generation.max_logprob_difference): it does not hold the weights of this step"
                f" ({self._name}). Nothing was trained on its completions."
            )

    # ------------------------------------------------------------------------------------ generate

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        features: Any = None,
        *,
        n: int,
        max_tokens: int,
        logprobs: int | None = 0,
        structured_outputs_regex: str | None = None,
        generation_kwargs: Mapping[str, Any] | None = None,
        **sampling: Any,
    ) -> dict[str, Any]:
        """`n` completions per prompt, as TRL wants them. Raises GenerationStopped after bounded
        tries."""
        parameters = {**sampling, **(generation_kwargs or {}), "max_tokens": max_tokens}
        if structured_outputs_regex is not None:
            parameters["structured_outputs"] = {"regex": structured_outputs_regex}
        started = time.monotonic()
        request = Request(list(map(list, prompts)), n, parameters)
        self._last = request
        if self._ahead is not None and self._ahead[0] == request:
            groups = self._ahead[1].result()
            self._ahead = None
        else:
            groups = self._complete(request, self._served.on_group, is_verifying=True)
        self._served.metrics["generate_s"] = time.monotonic() - started
        completion_ids = []
        logprobs_found = []
        token_ids = []
        for index in range(len(prompts)):
            for completion in groups[index]:
                completion_ids.append(completion.ids_T)
                logprobs_found.append([[logprob] for logprob in completion.logprobs_T])
                token_ids.append([[token] for token in completion.ids_T])
        return {
            "prompt_ids": request.prompts,
            "completion_ids": completion_ids,
            "logprobs": logprobs_found,
            "logprob_token_ids": token_ids,
        }

    def start_ahead(self, prompts: Sequence[Sequence[int]]) -> None:
        """Begin to write the completions of the next batch, with the weights and the sampling of
        this one; `generate` returns them when it is asked for these prompts.

        Raises GenerationStopped when the server does not hold those weights. What goes wrong later
        is raised by `generate`.
        """
        assert self._last is not None
        request = Request(list(map(list, prompts)), self._last.n, self._last.parameters)
        if self._unverified:
            self._verify(prompts)  # now: while the server writes, the trainer's weights change
        future: Future[Groups] = Future()
        on_group = self._served.on_group

        def write() -> None:
            try:
                future.set_result(self._complete(request, on_group, is_verifying=False))
            except BaseException as error:  # noqa: BLE001 - raised where the result is asked for
                future.set_exception(error)

        self._ahead = (request, future)
        threading.Thread(target=write, name="completions ahead", daemon=True).start()

    def _complete(self, request: Request, on_group: OnGroup, *, is_verifying: bool) -> Groups:
        """Return all groups of a batch. Raises GenerationStopped after bounded tries."""
        groups: Groups = {}
        attempt = partial(self._complete_missing, request, groups, on_group, is_verifying)
        self._retry(attempt, "complete prompts")
        return groups

    def _complete_missing(
        self, request: Request, groups: Groups, on_group: OnGroup, is_verifying: bool
    ) -> None:
        """Ask for the groups that are not there yet; keep them if the server held the weights of
        now all along."""
        if self._weights_path is not None and not self._is_current():
            # A server that was started again holds what it read from disk.
            self._served.log(
                f"the vLLM server at {self._server.url} does not hold weights {self._name}: sending"
                " them"
            )
            self._load()
            self._unverified = self._config.verify_sync != "never"
        if self._unverified and is_verifying:
            self._verify(request.prompts)
        new: Groups = {}

        def add_group(index: int, group: list[Sampled]) -> None:
            new[index] = group
            on_group(index, group)

        missing = {}
        for index, prompt in enumerate(request.prompts):
            if index not in groups:
                missing[index] = prompt
        vocab_size = self._trainer_model.vocab_size
        try:
            self._server.complete(
                self._model, missing, request.n, request.parameters, vocab_size, add_group
            )
        finally:
            if new and self._is_current():
                groups |= new
        if len(groups) < len(request.prompts):
            raise TransientServerError(
                f"{self._server.url} was given other weights while it wrote completions"
            )

    def _retry(self, attempt: Callable[[], None], action: str, afterwards: str = "") -> None:
        """`attempt`, again after trouble once the server is there. Raises GenerationStopped after
        `tries`."""
        for number in range(1, self._config.tries + 1):
            try:
                attempt()
                return
            except TransientServerError as trouble:
                if number == self._config.tries:
                    raise GenerationStopped(
                        f"the vLLM server at {self._server.url} did not {action} in {number} tries;"
                        f" the last: {trouble}" + (f"\n{afterwards}" if afterwards else "")
                    ) from None
                self._served.log(
                    f"vLLM, try {number} of {self._config.tries} to {action}: {trouble}"
                )
                self._server.await_ready(self._config.restart_wait_s, self._served.log)


def build_probe(prompts: Sequence[Sequence[int]]) -> list[int]:
    """Return tokens to compare probabilities on: the longest prompt's first ones; a lone token
    twice, for one that follows."""
    longest = max(prompts, key=len)
    return list(longest[:PROBE_TOKENS]) if len(longest) > 1 else [*longest, *longest]
