"""Completions from a vLLM server for TRL's trainers, with weights in step where there is no NCCL.

Takes the place of TRL's own `VLLMGeneration` in server mode: what it gathers and spreads over processes, its sampling
options and its walk through the weights stay TRL's. Ours is how weights travel (a file, or a LoRA adapter), that groups
are handed over as they are done, what happens when the server dies, and the proof that both hold the same weights.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

from accelerate.utils import broadcast_object_list, is_peft_model
from trl.generation.vllm_generation import VLLMGeneration

from gradus.errors import Misuse
from trainer.config import GenerationConfig
from trainer.generation.parity import largest_difference
from trainer.generation.server import GenerationStopped, OnGroup, Sampled, ServerTrouble, VllmServer
from trainer.generation.versions import refuse_untested
from trainer.generation.weights import Channel, OverHttp, SharedFolder, write_adapter, write_weights

Say = Callable[[str], None]


@dataclass
class Served:
    """What a run knows of its server beside TRL's options."""

    config: GenerationConfig
    folder: Path
    """Where weights are written."""
    run: str
    """Of no other run: the server is asked by it whose weights it holds."""
    say: Say
    on_group: OnGroup = lambda index, group: None
    """Told of each group of completions as it is done; the index counts the prompts of the batch."""
    metrics: dict[str, float] = field(default_factory=dict)
    """Of the last batch."""


class ServedGeneration(VLLMGeneration):  # type: ignore[misc]
    """TRL's class with our client in it. Only the main process talks to the server."""

    def __init__(self, *, served: Served, **options: Any) -> None:
        self.served = served
        super().__init__(**options)

    def _init_vllm(self) -> None:
        how: list[How | None] = [None]
        if self.accelerator.is_main_process:
            self.vllm_client = Client(self.served, self._write, self._difference)
            how = [self.vllm_client.connect(self._wants_adapter())]
        self._how = broadcast_object_list(how, from_process=0)[0]

    def _wants_adapter(self) -> bool:
        """Whether the change of the weights is a LoRA adapter that vLLM can serve as one."""
        sync, model = self.served.config.sync, self.accelerator.unwrap_model(self.model)
        plain = is_peft_model(model) and not model.active_peft_config.modules_to_save
        if sync == "lora" and not plain:
            raise Misuse("generation.sync: lora needs a LoRA model without modules_to_save; use file, http or auto")
        return plain and sync in ("auto", "lora")

    def sync_weights(self) -> None:
        """Give the server the weights of this step. Every process walks through them: gathering is done together."""
        if self.accelerator.is_main_process:
            self.vllm_client.new_version()
        elif self._how == "weights":
            for _ in self._iter_named_params():
                pass

    def _write(self, name: str) -> Path:
        if self._how == "lora":
            return write_adapter(self.served.folder, name, self.accelerator.unwrap_model(self.model))
        return write_weights(self.served.folder, name, self._iter_named_params())

    def _difference(self, ids_T: Sequence[int], logprobs_T: Sequence[float]) -> float:
        return largest_difference(self.accelerator.unwrap_model(self.model), ids_T, logprobs_T)


How = Literal["lora", "weights"]
Write = Callable[[str], Path]
Compare = Callable[[Sequence[int], Sequence[float]], float]


class Client:
    """The server as TRL's generation sees it: `generate` and `get_server_info`."""

    def __init__(self, served: Served, write: Write, compare: Compare) -> None:
        self._served = served
        self._config = served.config
        self._write = write
        self._compare = compare
        self._server = VllmServer(served.config)
        self._how: How = "weights"
        self._channel: Channel = SharedFolder()
        self._base = ""
        self._number = 0
        self._written: Path | None = None
        self._unverified = False
        self._probe: list[int] = []

    # --------------------------------------------------------------------------------------------------- start

    def connect(self, wants_adapter: bool) -> How:
        """How weights will travel. Raises GenerationStopped when the server is not one that we can keep in step."""
        self._server.await_ready(self._config.restart_wait_s)
        try:
            refuse_untested(self._server.version(), allowed=self._config.allow_untested_versions)
            settings = self._server.settings()
            self._base = self._server.model()
            self._how = "lora" if wants_adapter and settings.get("lora_config") else "weights"
            self._refuse_unfit(settings, wants_adapter)
        except ServerTrouble as trouble:
            raise GenerationStopped(str(trouble)) from None
        if self._how == "weights":
            self._server.begin_updates()
            if self._config.sync == "http":
                self._channel = OverHttp(self._config.serve_weights_at, self._served.folder)
        how = {"lora": "LoRA adapters", "weights": "files of all weights"}[self._how]
        self._served.say(f"completions by vLLM at {self._server.url}, kept in step by {how}")
        return self._how

    def _refuse_unfit(self, settings: Any, wants_adapter: bool) -> None:
        mode = (settings.get("model_config") or {}).get("logprobs_mode")
        if mode != "processed_logprobs":
            raise GenerationStopped(
                f"the vLLM server at {self._server.url} runs with --logprobs-mode {mode}: its log-probabilities are "
                "not those of what it samples. Start it with `gradus vllm MODEL`, or that option = processed_logprobs."
            )
        if self._how == "lora":
            if (held := self._server.weight_version()) is not None:
                raise GenerationStopped(
                    f"the vLLM server at {self._server.url} no longer holds its base model but weights {held!r}; an "
                    "adapter on them would be wrong without an error. Start the server again."
                )
            return
        if wants_adapter and self._config.sync == "lora":
            raise GenerationStopped(f"the vLLM server at {self._server.url} was started without --enable-lora")
        backend = (settings.get("weight_transfer_config") or {}).get("backend")
        if backend != "file":
            raise GenerationStopped(
                f"the vLLM server at {self._server.url} takes weights by {backend or 'nothing'}, not by files: start "
                'it with `gradus vllm MODEL`, or with our plugin and --weight-transfer-config \'{"backend":"file"}\'.'
            )

    def get_server_info(self) -> Any:
        return self._server.settings()

    # ----------------------------------------------------------------------------------------------------- sync

    def new_version(self) -> None:
        """Write the weights of now and have the server load them."""
        started = time.monotonic()
        self._number += 1
        self._written = self._write(self._name)
        self._tried(self._load, "take new weights")
        self._unverified = self._config.verify_sync == "always" or (
            self._config.verify_sync == "first" and self._number == 1
        )
        self._served.metrics["sync_s"] = time.monotonic() - started

    @property
    def _name(self) -> str:
        return f"{self._served.run}-{self._number}"

    @property
    def _model(self) -> str:
        return self._name if self._how == "lora" else self._base

    def _load(self) -> None:
        assert self._written is not None
        deadline_s = self._config.sync_deadline_s
        if self._how == "weights":
            self._server.update(self._channel.info(self._written), self._name, deadline_s)
            return
        known = self._server.adapters()
        if self._name not in known:
            self._server.load_adapter(self._name, str(self._written.resolve()), deadline_s)
        for old in known - {self._name}:
            if old.startswith(self._served.run):
                self._server.unload_adapter(old)

    def _ensure_current(self) -> None:
        """A server that was started again holds what it read from disk: give it the weights of now once more."""
        if self._written is None:
            return
        if self._how == "lora":
            current = self._name in self._server.adapters()
        else:
            current = self._server.weight_version() == self._name
        if not current:
            self._served.say(f"the vLLM server at {self._server.url} does not hold weights {self._name}: sending them")
            if self._how == "weights":
                self._server.begin_updates()
            self._load()
            self._unverified = self._config.verify_sync != "never"

    def _verify(self) -> None:
        """Raises GenerationStopped when trainer and server do not give the same tokens the same probability."""
        probe = self._probe
        difference = self._compare(probe, self._server.logprobs(self._model, probe))
        self._unverified = False
        self._served.metrics["sync_logprob_difference_max"] = difference
        if not difference <= self._config.max_logprob_difference:
            raise GenerationStopped(
                f"trainer and vLLM server {self._server.url} disagree by {difference:.3g} in the log-probability of a "
                f"token (generation.max_logprob_difference: {self._config.max_logprob_difference:g}): it does not hold "
                f"the weights of this step ({self._name}). Nothing was trained on its completions."
            )

    # ------------------------------------------------------------------------------------------------- generate

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        features: Any = None,
        *,
        n: int,
        logprobs: int | None = 0,
        structured_outputs_regex: str | None = None,
        generation_kwargs: dict[str, Any] | None = None,
        **sampling: Any,
    ) -> dict[str, Any]:
        """`n` completions per prompt, as TRL wants them. Raises GenerationStopped after bounded tries."""
        if features is not None:
            raise Misuse("generation over HTTP is for text: this run has images")
        how = {**sampling, **(generation_kwargs or {})}
        if structured_outputs_regex is not None:
            how["structured_outputs"] = {"regex": structured_outputs_regex}
        started = time.monotonic()
        groups: dict[int, list[Sampled]] = {}
        self._probe = _probe_of(prompts)
        self._tried(partial(self._complete, prompts, n, how, groups), "complete prompts")
        self._served.metrics["generate_s"] = time.monotonic() - started
        flat = [one for index in range(len(prompts)) for one in groups[index]]
        return {
            "prompt_ids": [list(prompt) for prompt in prompts],
            "completion_ids": [one.ids_T for one in flat],
            "logprobs": [[[logprob] for logprob in one.logprobs_T] for one in flat],
            "logprob_token_ids": [[[token] for token in one.ids_T] for one in flat],
        }

    def _complete(
        self, prompts: Sequence[Sequence[int]], n: int, how: dict[str, Any], groups: dict[int, list[Sampled]]
    ) -> None:
        """Ask for the groups that are not there yet."""
        self._ensure_current()
        if self._unverified:
            self._verify()

        def done(index: int, group: list[Sampled]) -> None:
            groups[index] = group
            self._served.on_group(index, group)

        missing = {index: prompt for index, prompt in enumerate(prompts) if index not in groups}
        self._server.complete(self._model, missing, n, how, done)

    def _tried(self, attempt: Callable[[], None], what: str) -> None:
        """`attempt`, again after trouble once the server is there. Raises GenerationStopped after `tries`."""
        for number in range(1, self._config.tries + 1):
            try:
                attempt()
                return
            except ServerTrouble as trouble:
                if number == self._config.tries:
                    raise GenerationStopped(
                        f"the vLLM server at {self._server.url} did not {what} in {number} tries; the last: {trouble}"
                    ) from None
                self._served.say(f"vLLM, try {number} of {self._config.tries} to {what}: {trouble}")
                self._server.await_ready(self._config.restart_wait_s)


def _probe_of(prompts: Sequence[Sequence[int]]) -> list[int]:
    """Tokens to compare probabilities on: the longest of the batch's prompts."""
    longest = max(range(len(prompts)), key=lambda index: len(prompts[index]))
    return list(prompts[longest])
