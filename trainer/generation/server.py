"""One vLLM server over HTTP: completions, log-probabilities, new weights. Knows neither TRL nor
torch.

Nothing here waits without end, not even for an answer that trickles. What another try may mend is a
`ServerTrouble`; what none will mend is a `GenerationStopped`, which ends the run. Both name the
server and what was asked of it.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx

from trainer.config.run import GenerationConfig
from trainer.generation.responses import (
    GenerationStopped,
    Sampled,
    TransientServerError,
    get_field,
    parse_group,
    parse_prompt_logprobs,
)

POLL_S = 1.0
CONNECT_S = 10.0
CONTROL_S = 60.0
"""Timeout of requests for the server's state, in seconds."""
CHECKSUM_EXTENSION = "services.generation.checksums.ChecksumExtension"
"""Class whose methods `gradus vllm` adds to vLLM's workers."""
BROKEN_OFF = "broken off"
"""Name of weights whose transfer was not finished."""
MAX_GROUPS_IN_FLIGHT = 256
REQUEST_SETTING = " (generation.request_timeout_s)"

OnGroup = Callable[[int, list[Sampled]], None]


class VllmServer:
    def __init__(self, config: GenerationConfig) -> None:
        self.url = config.url.rstrip("/")
        self._request_s = config.request_timeout_s
        key = os.environ.get("GRADUS_VLLM_API_KEY")
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        # Reading the system's certificates takes longer than a request; it is done once, and only
        # where https needs it.
        self._tls = httpx.create_ssl_context() if self.url.startswith("https:") else False

    # ----------------------------------------------------------------------------------- how it is

    def await_ready(self, within_s: float, log: Callable[[str], None]) -> None:
        """Return once it is healthy, and says when that takes waiting. Raises GenerationStopped
        after `within_s`."""
        give_up_at = time.monotonic() + within_s
        is_announced = False
        while True:
            try:
                self._request("GET", "/health", timeout_s=CONNECT_S)
                return
            except (TransientServerError, GenerationStopped) as error:
                trouble = str(error)
            if time.monotonic() >= give_up_at:
                raise GenerationStopped(
                    f"no vLLM server at {self.url} after {within_s:g} s: {trouble}\n"
                    "Start one with `gradus vllm MODEL`, or set generation.url to where it is."
                )
            if not is_announced:
                log(f"waiting for the vLLM server at {self.url}, {within_s:g} s at most: {trouble}")
                is_announced = True
            time.sleep(POLL_S)

    def get_version(self) -> str:
        return str(get_field(self._request("GET", "/version"), "version", str))

    def model(self) -> str:
        """Return the name of what it serves."""
        if not (names := self.list_models()):
            raise TransientServerError(f"{self.url} serves no model")
        return names[0]

    def list_models(self) -> list[str]:
        """Return the names of everything that it serves, adapters among them."""
        entries = get_field(self._request("GET", "/v1/models"), "data", list)
        return [str(get_field(model, "id", str)) for model in entries]

    def get_settings(self) -> Mapping[str, Any]:
        """vLLM's own configuration. Raises GenerationStopped when its development endpoints are
        off."""
        try:
            answer = self._request("GET", "/server_info", params={"config_format": "json"})
        except GenerationStopped as stopped:
            raise GenerationStopped(
                f"{stopped}\nThe server at {self.url} was started without VLLM_SERVER_DEV_MODE=1,"
                " so its weights cannot be replaced. Start it with `gradus vllm MODEL`, which sets"
                " what is needed."
            ) from None
        settings: Mapping[str, Any] = get_field(answer, "vllm_config", dict)
        return settings

    def get_weight_version(self) -> str | None:
        """Return what the last update was called; None before the first one."""
        answer = self._request("GET", "/weight_info")
        version = answer.get("weight_version") if isinstance(answer, dict) else None
        return str(version) if version not in (None, "", "default") else None

    def collects_checksums(self) -> bool:
        """Return whether it was started by `gradus vllm`, which adds checksums to its workers."""
        extension = (self.get_settings().get("parallel_config") or {}).get("worker_extension_cls")
        return extension == CHECKSUM_EXTENSION

    def collect_checksums(self, sync: str) -> list[Mapping[str, Any]]:
        """Return checksums of the newest adapter (`sync` is lora) or of all weights, by each of
        its processes."""
        method = "collect_weight_checksums"
        if sync == "lora":
            method = "collect_newest_adapter_checksums"
        answer = self._request("POST", "/collective_rpc", {"method": method})
        results: list[Mapping[str, Any]] = get_field(answer, "results", list)
        for result in results:
            get_field(result, "tensors", dict)
            get_field(result, "joined", dict)
        return results

    # ------------------------------------------------------------------------------------- weights

    def start_updates(self) -> None:
        """Once for every server, and again for one that was started anew."""
        self._request("POST", "/init_weight_transfer_engine", {"init_info": {}})

    def update(self, file: Path, version: str, within_s: float) -> None:
        """Replace all weights by those of a file that the server can read.

        Where that breaks off the server stays paused: half of its layers have no weights, and going
        on would kill it.
        """
        give_up_at = time.monotonic() + within_s

        def send_step(path: str, body: Any = None, params: Mapping[str, str] | None = None) -> None:
            left_s = give_up_at - time.monotonic()
            if left_s <= 0:
                limit = f"{within_s:g} s (generation.sync_deadline_s)"
                raise TransientServerError(f"{self.url} did not take new weights within {limit}")
            self._request("POST", path, body, params=params, timeout_s=left_s)

        send_step("/pause", params={"mode": "keep"})
        try:
            send_step("/start_weight_update", {})
        except TransientServerError:
            with suppress(
                TransientServerError
            ):  # an update that was broken off, by whomever, has to be ended first
                send_step("/finish_weight_update", {"weight_version": BROKEN_OFF})
            send_step("/start_weight_update", {})
        send_step("/update_weights", {"update_info": {"path": str(file)}})
        send_step("/finish_weight_update", {"weight_version": version})
        send_step("/reset_prefix_cache")
        send_step("/resume")

    def load_adapter(self, name: str, path: str, within_s: float) -> None:
        body = {"lora_name": name, "lora_path": path}
        self._request("POST", "/v1/load_lora_adapter", body, timeout_s=within_s, is_json=False)

    def unload_adapter(self, name: str) -> None:
        self._request("POST", "/v1/unload_lora_adapter", {"lora_name": name}, is_json=False)

    # ---------------------------------------------------------------------- completions

    def complete(
        self,
        model: str,
        prompts: Mapping[int, Sequence[int]],
        n: int,
        parameters: Mapping[str, Any],
        vocab_size: int,
        done: OnGroup,
    ) -> None:
        """`n` completions for each prompt; `done` gets the prompt's key and its group as soon as
        that is there.

        Raises ServerTrouble or GenerationStopped after everything that could be had was handed
        over.
        """
        fixed = {
            "model": model,
            "n": n,
            "logprobs": 0,
            "return_token_ids": True,
            "return_tokens_as_token_ids": True,
        }
        body = {**parameters, **fixed}
        path = "/v1/completions"
        slots = asyncio.Semaphore(MAX_GROUPS_IN_FLIGHT)

        async def complete_prompt(http: httpx.AsyncClient, key: int, prompt: Sequence[int]) -> None:
            async with slots:
                request = {**body, "prompt": [list(prompt)]}
                answer = await self._send_request(
                    http, "POST", path, request, timeout_s=self._request_s, setting=REQUEST_SETTING
                )
            done(key, parse_group(answer, prompt, n, parameters["max_tokens"], vocab_size))

        async def complete_all() -> list[BaseException | None]:
            async with self._open_client() as http:
                requests = [complete_prompt(http, key, prompt) for key, prompt in prompts.items()]
                return await asyncio.gather(*requests, return_exceptions=True)

        errors = []
        for error in asyncio.run(complete_all()):
            if error is not None:
                errors.append(error)
        for error in sorted(errors, key=lambda error: isinstance(error, TransientServerError)):
            raise error  # what no other try will mend comes first

    def logprobs(self, model: str, ids_T: Sequence[int]) -> list[float]:
        """Return log-probabilities of every token but the first, given those before it, without
        temperature."""
        body = {
            "model": model,
            "prompt": [list(ids_T)],
            "max_tokens": 1,
            "temperature": 1.0,
            "prompt_logprobs": 0,
        }
        answer = self._request("POST", "/v1/completions", body, timeout_s=self._request_s)
        return parse_prompt_logprobs(answer, ids_T)

    # ---------------------------------------------------------------------------------------- HTTP

    def _open_client(self) -> httpx.AsyncClient:
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
        return httpx.AsyncClient(
            base_url=self.url, headers=self._headers, verify=self._tls, limits=limits
        )

    def _request(self, method: str, path: str, body: Any = None, **options: Any) -> Any:
        """As `_send_request`, with a connection of its own."""

        async def send() -> Any:
            async with self._open_client() as http:
                return await self._send_request(http, method, path, body, **options)

        return asyncio.run(send())

    async def _send_request(
        self,
        http: httpx.AsyncClient,
        method: str,
        path: str,
        body: Any,
        *,
        params: Mapping[str, str] | None = None,
        timeout_s: float = CONTROL_S,
        setting: str = "",
        is_json: bool = True,
    ) -> Any:
        """Return the JSON of an answer, or its text; `setting` is where a person sets the time that
        it may take."""
        timeout = httpx.Timeout(None, connect=min(CONNECT_S, timeout_s))
        try:
            async with asyncio.timeout(timeout_s):
                got = await http.request(method, path, json=body, params=params, timeout=timeout)
        except TimeoutError:
            raise TransientServerError(
                f"{self.url}{path}: no answer after {timeout_s:g} s{setting}"
            ) from None
        except httpx.HTTPError as error:
            text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            raise TransientServerError(f"{self.url}{path}: {text}") from None
        text = got.content.decode("utf-8", "replace")
        if got.status_code == 200:
            if not is_json:
                return text
            try:
                return json.loads(text) if text.strip() else {}
            except (ValueError, RecursionError):  # a number of 5,000 digits is a ValueError
                raise TransientServerError(
                    f"{self.url}{path}: answered with no JSON: {text[:200]!r}"
                ) from None
        message = f"{self.url}{path}: status {got.status_code}: {text[:500]}"
        if (
            got.status_code in (404, 408, 425, 429)
            and path.startswith("/v1/")
            or got.status_code >= 500
        ):
            raise TransientServerError(
                message
            )  # 404: a server that was started again knows no adapter any more
        raise GenerationStopped(message)
