"""One vLLM server over HTTP: completions, log-probabilities, new weights. Knows neither TRL nor torch.

Nothing here waits without end, not even for an answer that trickles. What another try may mend is a `ServerTrouble`;
what none will mend is a `GenerationStopped`, which ends the run. Both name the server and what was asked of it.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import httpx

from trainer.config import GenerationConfig
from trainer.generation.answers import Bounds, Sampled, field_of, group_of, logprobs_of
from trainer.generation.trouble import GenerationStopped, ServerTrouble

POLL_S = 1.0
CONNECT_S = 10.0
CONTROL_S = 60.0
"""For requests that only ask how the server is."""
BROKEN_OFF = "broken off"
"""What weights are called that nobody finished sending."""
MAX_GROUPS_IN_FLIGHT = 256
MAX_ANSWER_BYTES = 256 << 20
"""Of one answer; a group of 64 completions of 32,768 tokens takes about 100 MiB."""

OnGroup = Callable[[int, list[Sampled]], None]


class VllmServer:
    def __init__(self, config: GenerationConfig) -> None:
        self.url = config.url.rstrip("/")
        self._request_s = config.request_timeout_s
        key = os.environ.get(config.api_key_env)
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        # Reading the system's certificates takes longer than a request; it is done once, and only where https needs it.
        self._tls = httpx.create_ssl_context() if self.url.startswith("https:") else False
        self._http = httpx.Client(base_url=self.url, headers=self._headers, verify=self._tls)

    def close(self) -> None:
        self._http.close()

    # ------------------------------------------------------------------------------------------------ how it is

    def await_ready(self, within_s: float, say: Callable[[str], None]) -> None:
        """Returns once it is healthy, and says when that takes waiting. Raises GenerationStopped after `within_s`."""
        give_up_at, said = time.monotonic() + within_s, False
        while (trouble := self._trouble()) is not None:
            if time.monotonic() >= give_up_at:
                raise GenerationStopped(
                    f"no vLLM server at {self.url} after {within_s:g} s: {trouble}\n"
                    "Start one with `gradus vllm MODEL`, or set generation.url to where it is."
                )
            if not said:
                say(f"waiting for the vLLM server at {self.url}, {within_s:g} s at most: {trouble}")
                said = True
            time.sleep(POLL_S)

    def _trouble(self) -> str | None:
        try:
            self._ask("GET", "/health", timeout_s=CONNECT_S)
        except (ServerTrouble, GenerationStopped) as trouble:
            return str(trouble)
        return None

    def version(self) -> str:
        return str(field_of(self._ask("GET", "/version"), "version", str))

    def model(self) -> str:
        """The name of what it serves."""
        models = field_of(self._ask("GET", "/v1/models"), "data", list)
        if not models:
            raise ServerTrouble(f"{self.url} serves no model")
        return str(field_of(models[0], "id", str))

    def settings(self) -> Mapping[str, Any]:
        """vLLM's own configuration. Raises GenerationStopped when its development endpoints are off."""
        try:
            said = self._ask("GET", "/server_info", params={"config_format": "json"})
        except GenerationStopped as stopped:
            raise GenerationStopped(
                f"{stopped}\nThe server at {self.url} was started without VLLM_SERVER_DEV_MODE=1, so its weights "
                "cannot be replaced. Start it with `gradus vllm MODEL`, which sets what is needed."
            ) from None
        found: Mapping[str, Any] = field_of(said, "vllm_config", dict)
        return found

    def weight_version(self) -> str | None:
        """What the last update was called; None before the first one."""
        said = self._ask("GET", "/weight_info")
        version = said.get("weight_version") if isinstance(said, dict) else None
        return str(version) if version not in (None, "", "default") else None

    def adapters(self) -> set[str]:
        """The names of everything that it serves, adapters among them."""
        models = field_of(self._ask("GET", "/v1/models"), "data", list)
        return {str(field_of(model, "id", str)) for model in models}

    # ------------------------------------------------------------------------------------------------- weights

    def begin_updates(self) -> None:
        """Once for every server, and again for one that was started anew."""
        self._ask("POST", "/init_weight_transfer_engine", {"init_info": {}})

    def update(self, info: Mapping[str, str], version: str, within_s: float) -> None:
        """Replace all weights by those that `info` says where to find.

        Where that breaks off the server stays paused: half of its layers have no weights, and going on would kill it.
        """
        give_up_at = time.monotonic() + within_s

        def step(path: str, body: Any = None, params: Mapping[str, str] | None = None) -> None:
            self._ask("POST", path, body, params=params, timeout_s=_left(give_up_at, self.url, within_s))

        step("/pause", params={"mode": "keep"})
        try:
            step("/start_weight_update", {})
        except ServerTrouble:
            with suppress(ServerTrouble):  # an update that was broken off, by whomever, has to be ended first
                step("/finish_weight_update", {"weight_version": BROKEN_OFF})
            step("/start_weight_update", {})
        step("/update_weights", {"update_info": dict(info)})
        step("/finish_weight_update", {"weight_version": version})
        step("/reset_prefix_cache")
        step("/resume")

    def load_adapter(self, name: str, path: str, within_s: float) -> None:
        self._ask("POST", "/v1/load_lora_adapter", {"lora_name": name, "lora_path": path}, timeout_s=within_s)

    def unload_adapter(self, name: str) -> None:
        self._ask("POST", "/v1/unload_lora_adapter", {"lora_name": name})

    # --------------------------------------------------------------------------------------------- completions

    def complete(
        self,
        model: str,
        prompts: Mapping[int, Sequence[int]],
        n: int,
        how: Mapping[str, Any],
        bounds: Bounds,
        done: OnGroup,
    ) -> None:
        """`n` completions for each prompt; `done` gets the prompt's key and its group as soon as that is there.

        Raises ServerTrouble or GenerationStopped after everything that could be had was handed over.
        """
        fixed = {"model": model, "n": n, "logprobs": 0, "return_token_ids": True, "return_tokens_as_token_ids": True}
        asyncio.run(self._complete(prompts, {**how, **fixed}, bounds, done))

    async def _complete(
        self, prompts: Mapping[int, Sequence[int]], body: Mapping[str, Any], bounds: Bounds, done: OnGroup
    ) -> None:
        slots = asyncio.Semaphore(MAX_GROUPS_IN_FLIGHT)
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
        options: dict[str, Any] = {"base_url": self.url, "headers": self._headers, "limits": limits}
        async with httpx.AsyncClient(**options, verify=self._tls) as http:

            async def one(key: int, prompt: Sequence[int]) -> None:
                async with slots:
                    said = await self._posted(http, {**body, "prompt": [list(prompt)]})
                with self._named("/v1/completions"):
                    done(key, group_of(said, prompt, body["n"], bounds))

            asked = [one(key, prompt) for key, prompt in prompts.items()]
            ended = await asyncio.gather(*asked, return_exceptions=True)
        errors = [error for error in ended if isinstance(error, BaseException)]
        for error in sorted(errors, key=lambda error: isinstance(error, ServerTrouble)):
            raise error  # what no other try will mend comes first

    async def _posted(self, http: httpx.AsyncClient, body: Mapping[str, Any]) -> Any:
        path = "/v1/completions"
        timeout = httpx.Timeout(None, connect=CONNECT_S)
        try:
            async with asyncio.timeout(self._request_s), http.stream("POST", path, json=body, timeout=timeout) as got:
                return self._read(got, await _whole(got.aiter_bytes()))
        except TimeoutError:
            raise self._late(path, self._request_s, "generation.request_timeout_s") from None
        except httpx.HTTPError as error:
            raise self._broken(path, error) from None

    def logprobs(self, model: str, ids_T: Sequence[int]) -> list[float]:
        """Of every token but the first, given those before it; without temperature."""
        body = {"model": model, "prompt": [list(ids_T)], "max_tokens": 1, "temperature": 1.0, "prompt_logprobs": 0}
        said = self._ask("POST", "/v1/completions", body, timeout_s=self._request_s)
        with self._named("/v1/completions"):
            return logprobs_of(said, ids_T)

    # ---------------------------------------------------------------------------------------------------- HTTP

    def _ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        params: Mapping[str, str] | None = None,
        timeout_s: float = CONTROL_S,
    ) -> Any:
        timeout = httpx.Timeout(timeout_s, connect=min(CONNECT_S, timeout_s))
        give_up_at = time.monotonic() + timeout_s
        try:
            with self._http.stream(method, path, json=body, params=params, timeout=timeout) as got:
                return self._read(got, _whole_before(got.iter_bytes(), give_up_at))
        except (TimeoutError, httpx.ReadTimeout):
            raise self._late(path, timeout_s) from None
        except httpx.HTTPError as error:
            raise self._broken(path, error) from None

    def _read(self, response: httpx.Response, body: bytes) -> Any:
        path, text = response.url.path, body.decode("utf-8", "replace")
        if response.status_code == 200:
            try:
                return json.loads(text) if text.strip() else {}
            except (ValueError, RecursionError):  # a number of 5,000 digits is a ValueError
                raise ServerTrouble(f"{self.url}{path}: answered with no JSON: {text[:200]!r}") from None
        said = f"{self.url}{path}: status {response.status_code}: {text[:500]}"
        if response.status_code in (404, 408, 425, 429) and path.startswith("/v1/") or response.status_code >= 500:
            raise ServerTrouble(said)  # 404: a server that was started again knows no adapter any more
        raise GenerationStopped(said)

    def _late(self, path: str, after_s: float, setting: str = "") -> ServerTrouble:
        return ServerTrouble(f"{self.url}{path}: no answer after {after_s:g} s{setting and f' ({setting})'}")

    def _broken(self, path: str, error: httpx.HTTPError) -> ServerTrouble:
        text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        return ServerTrouble(f"{self.url}{path}: {text}")

    @contextmanager
    def _named(self, path: str) -> Iterator[None]:
        """Trouble with an answer names who gave it."""
        try:
            yield
        except ServerTrouble as trouble:
            raise ServerTrouble(f"{self.url}{path}: {trouble}") from None


async def _whole(parts: AsyncIterator[bytes]) -> bytes:
    whole = bytearray()
    async for part in parts:
        _grow(whole, part)
    return bytes(whole)


def _whole_before(parts: Iterator[bytes], give_up_at: float) -> bytes:
    whole = bytearray()
    for part in parts:
        _grow(whole, part)
        if time.monotonic() > give_up_at:
            raise TimeoutError
    return bytes(whole)


def _grow(whole: bytearray, part: bytes) -> None:
    whole += part
    if len(whole) > MAX_ANSWER_BYTES:
        raise ServerTrouble(f"an answer of more than {MAX_ANSWER_BYTES} bytes")


def _left(give_up_at: float, url: str, within_s: float) -> float:
    left_s = give_up_at - time.monotonic()
    if left_s <= 0:
        raise ServerTrouble(f"{url} did not take new weights within {within_s:g} s (generation.sync_deadline_s)")
    return left_s
